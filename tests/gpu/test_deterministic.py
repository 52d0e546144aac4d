"""`deterministic` on a GPU: two runs, and a run that was saved and resumed, end with the same bits."""

import os

import pytest
import torch

from dqnitro import session
from dqnitro.config import Config

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # before any test uses the GPU: cuBLAS reads it once
CONFIG = Config(
    env_id="breakout", envs="console", n_envs=16, device="cuda", replay_capacity=16 * 100, first_fill_steps=200,
    batch_size=32, steps_per_update=4.0, target_sync_steps=200, max_steps=1_600, deterministic=True,
    wrappers=("no-grad", "fused-adam", "channels-last", "bfloat16"),
)  # fmt: skip


def weights(result: session.Result) -> list[torch.Tensor]:
    return [value.cpu() for _, value in sorted(result.agent.learner.get_state().items())]


@pytest.mark.gpu
@pytest.mark.parametrize("runner", ["inline", "hybrid", "device"])
def test_runs_and_resumed_runs_are_equal_bit_for_bit(runner, tmp_path):
    config = CONFIG.replace(runner=runner)
    one, two = (weights(session.train(config)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    session.train(config.replace(max_steps=800), tmp_path / "run")
    resumed = weights(session.resume(tmp_path / "run", max_steps=1_600))
    assert all(torch.equal(a, b) for a, b in zip(one, resumed, strict=True))

"""Sessions of several ranks, as threads on the CPU: shards of a checkpoint, resumes, and what goes wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from dqnitro import session
from dqnitro.config import Config
from dqnitro.errors import CheckpointError, RanksDiffer, StorageError
from dqnitro.store import checkpoint, shards
from support import fakes_envs
from support.replicas_reference import Crew

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", envs="gym-sync", runner="device", device="cpu", gpus=2, frame_stack=2,
    screen_size=36, n_envs=4, network="small", hidden_units=8, batch_size=8, first_fill_steps=40,
    replay_capacity=4 * 100, steps_per_update=16.0, target_sync_steps=50, torch_threads=1, learning_rate=1e-3,
    checkpoint_every_s=0, max_steps=300,
)  # fmt: skip


@pytest.fixture
def crew(monkeypatch):
    threads = torch.get_num_threads()
    yield Crew(monkeypatch)
    torch.set_num_threads(threads)


def start(crew, run, **changes):
    c = CATCH.replace(**changes)
    return crew.run(c, lambda: session.train(c, run))


def go_on(crew, run, **changes):
    c = Config.from_dict(checkpoint.load(run, lambda name: False)[1]["config"]).replace(**changes)
    if c.gpus == 1:
        return session.resume(run, **changes)
    return crew.run(c, lambda: session.resume(run, **changes))


def saved(run):
    return checkpoint.load(run)


def weights(run) -> dict[str, np.ndarray]:
    return saved(run)[0]["learner"]


def joined_frames(arrays, manifest) -> np.ndarray:
    parts = [arrays[f"agent.r{r}"] for r in range(manifest["ranks"])] if "ranks" in manifest else [arrays["agent"]]
    return np.concatenate([part["ring.frames"] for part in parts], 1)


@pytest.mark.parametrize("runner", ["device", "hybrid"])
def test_a_resumed_run_is_the_run_that_was_not_stopped(crew, tmp_path, runner):
    whole = start(crew, tmp_path / "whole", runner=runner)
    start(crew, tmp_path / "two", runner=runner, max_steps=130)
    assert saved(tmp_path / "two")[1]["clock"]["updates"] < whole.updates - 5
    result = go_on(crew, tmp_path / "two", max_steps=300)
    assert (result.steps, result.updates, result.games) == (whole.steps, whole.updates, whole.games)
    assert result.games > 8 and whole.updates > 12
    a, b = weights(tmp_path / "whole"), weights(tmp_path / "two")
    assert a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)
    assert np.array_equal(joined_frames(*saved(tmp_path / "whole")), joined_frames(*saved(tmp_path / "two")))


def test_each_rank_writes_its_shard_and_all_games_are_told(crew, tmp_path):
    result = start(crew, tmp_path)
    _, manifest = saved(tmp_path)
    assert manifest["format"] == checkpoint.SHARDED and manifest["ranks"] == 2
    assert {f"{name}.r{r}.safetensors" for name in ("agent", "envs") for r in (0, 1)} < set(manifest["files"])
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert sum(line["event"] == "game" for line in lines) == result.games > 8
    assert result.agent.envs.spec.n_envs == 4 and result.steps >= 300


def test_another_number_of_ranks_gets_the_same_replay_and_games(crew, tmp_path, capsys):
    start(crew, tmp_path, max_steps=130)
    before, counts = joined_frames(*saved(tmp_path)), saved(tmp_path)[1]["clock"]
    alone = shards.load(tmp_path, 0, 1)
    assert np.array_equal(alone.arrays["agent"]["ring.frames"], before) and alone.ranks == 2
    assert len(alone.arrays["envs"]["steps"]) == 4 and len(alone.arrays["agent"]["score"]) == 4
    for gpus in (4, 2):
        result = go_on(crew, tmp_path, gpus=gpus, max_steps=counts["steps"])  # saved again where it stands
        arrays, manifest = saved(tmp_path)
        assert f"replay and environments are dealt out to {gpus}" in capsys.readouterr().err
        assert np.array_equal(joined_frames(arrays, manifest), before)
        assert manifest["clock"] == counts and manifest["config"]["gpus"] == gpus
        assert result.steps == counts["steps"]
    after = go_on(crew, tmp_path, gpus=4, max_steps=counts["steps"] + 60)
    assert after.updates > counts["updates"] and after.games > 0


def test_ranks_with_other_weights_are_noticed_and_nothing_is_saved(crew, tmp_path):
    start(crew, tmp_path, max_steps=130)
    before = [p.name for p in checkpoint.complete(tmp_path / "checkpoints")]

    def spoil(rank, agent):
        if rank == 1:
            real = agent.get_state

            def other():
                arrays, record = real()
                next(iter(arrays["learner"].values())).add_(1e-6)
                return arrays, record

            agent.get_state = other

    crew.on_built = spoil
    with pytest.raises(RanksDiffer, match="rank 1 of 2 has other weights than rank 0"):
        go_on(crew, tmp_path, max_steps=200)
    assert [p.name for p in checkpoint.complete(tmp_path / "checkpoints")] == before
    assert checkpoint.load(tmp_path)[1]["ranks"] == 2


@pytest.mark.parametrize(
    ("error", "kind"), [(OSError(28, "no space"), StorageError), (ValueError("x"), CheckpointError)]
)
def test_a_rank_that_cannot_save_leaves_the_older_checkpoint(crew, tmp_path, monkeypatch, error, kind):
    start(crew, tmp_path, max_steps=130)
    before = [p.name for p in checkpoint.complete(tmp_path / "checkpoints")]
    real = checkpoint.write_files

    def write(folder, arrays):
        if "agent.r1" in arrays:
            raise error
        return real(folder, arrays)

    monkeypatch.setattr(checkpoint, "write_files", write)
    with pytest.raises(kind, match="rank 1 could not save"):
        go_on(crew, tmp_path, max_steps=200)
    assert [p.name for p in checkpoint.complete(tmp_path / "checkpoints")] == before
    assert checkpoint.load(tmp_path)[1]["ranks"] == 2
    assert not list((tmp_path / "checkpoints").glob(".tmp-*"))


def test_a_bad_loss_ends_all_ranks_with_a_checkpoint(crew, tmp_path):
    from dqnitro.errors import DivergedError

    def spoil(rank, agent):
        if rank == 1:
            agent.ring.reward.fill_(float("nan"))

            def outcome(real=agent.player.outcome):
                reward, *rest = real()
                return reward * float("nan"), *rest

            agent.player.outcome = outcome

    crew.on_built = spoil
    with pytest.raises(DivergedError):
        start(crew, tmp_path, clip_rewards=False)
    assert checkpoint.complete(tmp_path / "checkpoints")


def test_consoles_on_a_gpu_are_packed_again_as_they_were():
    n = 70
    whole = np.arange(n * 5, dtype=np.int32).reshape(n, 5)
    assert np.array_equal(shards.unpacked(shards.packed(whole), n), whole)
    assert shards.packed(whole).shape == (3, 5, 32) and shards.packed(whole)[1, 4, 2] == whole[34, 4]

"""The rung `cuda-graphs` on a GPU: recorded, replayed, and learning what the plain learner learns."""

import numpy as np
import pytest
import torch

from dqnitro import recipes
from dqnitro.lab.bench.workload import make_batch
from dqnitro.learn.gpu.cuda_graphs import WARM_CALLS
from dqnitro.learn.learner import Learner
from support.fakes import spec as made_up

pytestmark = pytest.mark.gpu
SPEC = made_up(8, 4, 84)


def learners(*wrappers: str) -> tuple[Learner, Learner]:
    config = recipes.baseline("pong").replace(device="cuda", double=True, wrappers=("no-grad", *wrappers))
    return Learner(config, SPEC, "cuda"), Learner(
        config.replace(wrappers=(*config.wrappers, "cuda-graphs")), SPEC, "cuda"
    )


@pytest.mark.parametrize("wrappers", [(), ("fused-adam",), ("fused-adam", "channels-last", "bfloat16")], ids=str)
def test_recorded_updates_learn_the_same(wrappers, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    plain, recorded = learners(*wrappers)
    tolerance = 1e-2 if "bfloat16" in wrappers else 2e-3
    obs = np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84), dtype=np.uint8)
    for k in range(20):
        batch = make_batch(SPEC, 32, "cuda")
        batch = batch._replace(reward_t=torch.randn(32, generator=torch.Generator().manual_seed(k)).cuda())
        losses = [learner.update(batch)[0] for learner in (plain, recorded)]
        assert torch.allclose(*losses, rtol=1e-2, atol=1e-4)
        assert (plain.greedy(obs) == recorded.greedy(obs)).mean() >= 0.75
        if k == 10:
            for learner in (plain, recorded):
                learner.sync_target()
    assert recorded.update_on_gpu.n_replays == 20 - WARM_CALLS, "the graph was replayed"
    x = torch.from_numpy(obs).cuda()
    first = learners(*wrappers)[0].online(x).float()
    a, b = (learner.online(x).float() for learner in (plain, recorded))
    # The recorded optimiser works out its bias correction on the GPU. Twenty steps of 1e-4 may differ by that much in
    # a weight.
    assert (a - b).abs().max() <= tolerance < (a - first).abs().max() / 2, "and both have learned more than that"


def test_losses_that_were_kept_are_not_overwritten():
    _, recorded = learners("fused-adam")
    batches = [make_batch(SPEC, 32, "cuda")._replace(reward_t=torch.full((32,), float(k)).cuda()) for k in range(8)]
    kept = [recorded.update(b)[0] for b in batches]
    assert len({loss.item() for loss in kept}) == 8 and kept[-1] > kept[0]


def test_a_recorded_learner_can_be_saved_and_goes_on():
    _, one = learners()
    batch = make_batch(SPEC, 32, "cuda")
    for _ in range(6):
        one.update(batch)
    _, other = learners()
    other.set_state(one.get_state())
    for _ in range(6):
        losses = [learner.update(batch)[0] for learner in (one, other)]
        assert torch.allclose(*losses, rtol=1e-3)

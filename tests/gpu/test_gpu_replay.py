"""The rung `gpu-replay` on a GPU: the run of `cuda-graphs` alone, bit for bit, in one start per choice and update."""

import numpy as np
import pytest
import torch

from dqnitro import recipes
from dqnitro.config import Config
from dqnitro.ladder import climb
from dqnitro.learn.gpu.cuda_graphs import WARM_CALLS
from dqnitro.replay.placed import PlacedReplay
from dqnitro.run import make_run

pytestmark = pytest.mark.gpu
UPDATES = 300
# With and without the rungs below it, and with environments whose frames go through a second copy.
CLIMBS = {
    "textbook": (("console", "cuda-graphs"), {}),
    "all rungs below": (
        ("pinned-copies", "frame-replay", "console", "fused-adam", "inplace-relu", "channels-last", "bfloat16",
         "cuda-graphs"),
        {},
    ),
    "four environments, three steps, two updates": (
        ("frame-replay", "console", "fused-adam", "cuda-graphs"),
        {"n_envs": 4, "n_step": 3, "steps_per_update": 2.0, "double": True},
    ),
}  # fmt: skip


@pytest.fixture(autouse=True)
def same_kernels(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def config(name: str) -> Config:
    rungs, changes = CLIMBS[name]
    base = recipes.baseline("pong").replace(
        device="cuda", first_fill_steps=100, replay_capacity=400, target_sync_steps=40, epsilon_start=0.5,
        epsilon_end=0.5, seed=3,
    )  # fmt: skip
    return climb(base, rungs).replace(**changes)


def parameters(agent):
    return [p.detach().clone() for p in agent.learner.online.parameters()]


def play(agent, ticks, updates: int):
    out = []
    while agent.clock.updates < updates:
        out.append(next(ticks))
    return out


@pytest.mark.parametrize("name", CLIMBS)
def test_it_is_the_run_of_cuda_graphs_alone(name):
    made = [make_run(c) for c in (config(name), climb(config(name), ("gpu-replay",)))]
    try:
        first = parameters(made[0][0])
        a, b = (play(agent, ticks, UPDATES) for agent, ticks in made)
        one, two = (agent for agent, _ in made)
        assert isinstance(two.replay, PlacedReplay) and two.learner._placed is not None
        assert two.learner._placed._run.n_replays == two.clock.updates - WARM_CALLS, "every update was one start"
        assert [(t.steps, t.updates, t.ends) for t in a] == [(t.steps, t.updates, t.ends) for t in b]
        losses = [[t.loss.item() for t in ticks if t.loss is not None] for ticks in (a, b)]
        assert losses[0] == losses[1], "the losses that were kept are those of their own updates"
        pairs = list(zip(first, parameters(one), parameters(two), strict=True))
        assert all(torch.equal(y, z) for _, y, z in pairs) and not any(torch.equal(x, y) for x, y, _ in pairs)
        two.learner.check_finite()
    finally:
        for agent, _ in made:
            agent.close()


def test_the_replay_holds_what_was_played():
    """Copies that nobody waits for: after hundreds of steps without a wait every frame lies where it belongs."""
    base = config("textbook").replace(epsilon_start=1.0, epsilon_end=1.0, first_fill_steps=300)
    made = [make_run(c) for c in (base.replace(replay="frames"), climb(base, ("gpu-replay",)))]
    try:
        for _, ticks in made:
            for _ in range(250):
                next(ticks)
        one, two = (agent.replay.get_state() for agent, _ in made)
        assert all((one[k] == two[k]).all() for k in one) and one["frames"].any()
    finally:
        for agent, _ in made:
            agent.close()


def test_a_saved_run_goes_on_as_it_was():
    c = climb(config("textbook"), ("gpu-replay",)).replace(envs="wrappers")
    one, ticks = make_run(c)
    play(one, ticks, 50)
    arrays, record = one.get_state()
    arrays = {group: {k: np.array(v) for k, v in values.items()} for group, values in arrays.items()}
    play(one, ticks, 100)
    other, others = make_run(c)
    other.set_state(arrays, record)
    play(other, others, 100)
    # Its first updates run as they are, where the other run replays a graph.
    assert all(torch.allclose(x, y, atol=1e-4) for x, y in zip(parameters(one), parameters(other), strict=True))
    one.close()
    other.close()


def test_a_loss_that_is_not_finite_is_noticed_by_its_number():
    from dqnitro.errors import DivergedError

    agent, ticks = make_run(climb(config("textbook"), ("gpu-replay",)))
    play(agent, ticks, 20)
    agent.learner.check_finite()
    with torch.no_grad():
        next(agent.learner.online.parameters()).fill_(float("nan"))
    play(agent, ticks, 30)
    with pytest.raises(DivergedError, match="update 21"):
        agent.learner.check_finite()
    agent.close()

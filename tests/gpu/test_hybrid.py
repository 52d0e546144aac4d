"""The hybrid runner on a GPU, its environments in two groups that alternate."""

import copy
import itertools
import json

import pytest
import torch

from dqnitro.config import Config
from dqnitro.run.gpu.hybrid import make

pytestmark = pytest.mark.gpu
BREAKOUT = Config(
    env_id="breakout", envs="console", n_envs=16, runner="hybrid", device="cuda", replay_capacity=16 * 100,
    first_fill_steps=200,
    batch_size=32, steps_per_update=4.0, max_episode_frames=200, epsilon_start=0.5, target_sync_steps=400,
    wrappers=("no-grad", "fused-adam", "bfloat16", "own-kernels"),
)  # fmt: skip


def test_it_acts_on_what_its_environments_show():
    """Our kernels act on the frames in the ring, the plain pass on the stacks beside it."""
    agent, ticks = make(BREAKOUT)
    assert len(agent.players) == 2
    act = agent.learner.parts.around_act(agent.learner.parts.act)
    try:
        for _ in range(120):
            next(ticks)
            group, player = agent.groups[agent.turn], agent.players[agent.turn]
            group.ring.see(player.obs[:, -1], group.age)  # as `choose` begins
            agent.acting.refresh(agent.turn)  # the plain pass has only the newest weights
            plain = act(agent.learner.online, player.obs).squeeze(-1)
            torch.testing.assert_close(agent.values(agent.turn), plain.float(), rtol=0, atol=1e-2)
            torch.cuda.synchronize()  # the runner's own streams wait for no other
        assert agent.clock.updates > 100
    finally:
        agent.close()


@pytest.mark.parametrize("wrapper", ["own-kernels", "channels-last"])
def test_each_part_acts_on_what_was_learned_after_its_last_turn(wrapper):
    """Whatever the two streams do meanwhile, and whoever computes the updates."""
    agent, ticks = make(BREAKOUT.replace(wrappers=("no-grad", "fused-adam", wrapper, "bfloat16")))
    acting, update, learn_owed, newest, old = agent.acting, agent.update, agent.learn_owed, {}, 0

    def watched(k):
        learn_owed(k)
        torch.cuda.synchronize()
        newest[k] = [x.clone() for x in update.tensors(update.weights)]

    agent.learn_owed = watched
    try:
        for _ in range(120):
            next(ticks)
            torch.cuda.synchronize()
            for k, kept in newest.items():
                mine = update.tensors(acting.weights[k])
                assert all(torch.equal(x, y) for x, y in zip(kept, mine, strict=True))
                old += not all(torch.equal(x, y) for x, y in zip(mine, update.tensors(update.weights), strict=True))
        assert old > 50  # the part that waits is a turn behind
        assert torch.isfinite(agent.report[3]) and agent.clock.updates > 100
    finally:
        agent.close()


@pytest.mark.parametrize("stop_at", [61, 62])
def test_a_saved_run_goes_on_as_if_it_had_not_stopped(stop_at, monkeypatch):
    """Random play, so that rounding cannot change the experience; saved while a part is at play."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    config = BREAKOUT.replace(epsilon_start=1.0, epsilon_end=1.0)

    def numbers(ticks, n):
        return [(t.steps, t.updates, t.ends) for t in itertools.islice(ticks, n)]

    whole, ticks = make(config)
    first = copy.deepcopy(whole.learner.online)
    expected = numbers(ticks, 150)
    saving, some = make(config)
    before = numbers(some, stop_at)
    arrays, told = saving.get_state()
    resumed, more = make(config)
    resumed.set_state(arrays, json.loads(json.dumps(told)))
    assert before + numbers(more, 150 - stop_at) == expected
    for agent in (whole, resumed):
        assert len(agent.playing) == 1
        agent.get_state()  # waits for who is at play
    assert any(ends for *_, ends in expected) and expected[-1][1] > 100
    for name in ("frames", "action", "reward", "terminated", "valid"):
        assert torch.equal(getattr(whole.ring, name), getattr(resumed.ring, name)), name
    for name, chance in whole.chances.items():
        assert torch.equal(chance.get_state(), resumed.chances[name].get_state()), name
    assert whole.update.masters.step == resumed.update.masters.step == expected[-1][1]
    x, y, z = (torch.cat([p.detach().flatten() for p in n.parameters()]) for n in (
        whole.learner.online, resumed.learner.online, first))  # fmt: skip
    assert (x - y).norm() < (x - z).norm() / 4
    for agent in (whole, saving, resumed):
        agent.close()


def test_no_kernel_is_left_to_compile_once_the_run_has_begun(monkeypatch):
    from triton import knobs

    agent, ticks = make(BREAKOUT)
    compiled: list[str] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **facts: compiled.append(facts["src"].name))
    try:
        for _ in range(120):
            next(ticks)
        torch.cuda.synchronize()
        assert agent.clock.updates > 100 and not compiled
    finally:
        agent.close()

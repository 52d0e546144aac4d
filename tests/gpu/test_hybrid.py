"""The hybrid runner on a card, its environments in two parts that take turns."""

import itertools
import json

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.run.hybrid import make

pytestmark = pytest.mark.gpu
BREAKOUT = Config(
    env_id="breakout", envs="console", n_envs=16, runner="hybrid", device="cuda", replay_capacity=16 * 100, first_fill_steps=200,
    batch_size=32, steps_per_update=4.0, max_episode_frames=200, epsilon_start=0.5, target_sync_steps=400,
    wrappers=("no-grad", "fused-adam", "bfloat16", "own-kernels"),
)  # fmt: skip


def test_it_acts_on_what_its_environments_show():
    """Our kernels act on the frames in the ring, the plain pass on the stacks beside it."""
    agent, ticks = make(BREAKOUT)
    assert len(agent.players) == 2
    try:
        for _ in range(120):
            next(ticks)
            part, player = agent.parts[agent.turn], agent.players[agent.turn]
            part.ring.see(player.obs[:, -1], part.age)  # as `choose` begins
            agent.acting.refresh(agent.turn)
            plain = agent._act(agent.learner.online, player.obs).squeeze(-1)
            torch.testing.assert_close(agent.values(agent.turn), plain.float(), rtol=0, atol=1e-2)
            torch.cuda.synchronize()  # the runner's own streams wait for no other
        assert agent.clock.updates > 100
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
    expected = numbers(ticks, 150)
    torch.cuda.synchronize()
    saving, first = make(config)
    before = numbers(first, stop_at)
    arrays, told = saving.get_state()
    resumed, more = make(config)
    resumed.set_state(arrays, json.loads(json.dumps(told)))
    assert before + numbers(more, 150 - stop_at) == expected
    for agent in (whole, resumed):
        assert len(agent.playing) == 1
        agent.get_state()  # waits for who is at play
    assert any(ends for *_, ends in expected) and expected[-1][1] > 100
    for name in ("frames", "action", "reward", "done", "valid"):
        assert torch.equal(getattr(whole.ring, name), getattr(resumed.ring, name)), name
    rounding = expected[-1][1] * config.learning_rate  # Adam turns the sign of a tiny gradient into a whole step
    for x, y in zip(whole.learner.online.parameters(), resumed.learner.online.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=rounding)
    for agent in (whole, saving, resumed):
        agent.close()
    assert np.isfinite(float(whole.report[3]))

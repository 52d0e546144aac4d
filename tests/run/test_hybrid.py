"""The hybrid runner, here with both halves on the CPU: the card's tensors against what the environments showed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import fakes_envs
from dqnitro import train
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.run import hybrid, make_run
from dqnitro.run.ring import space_to_depth

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", envs="gym-sync", runner="hybrid", frame_stack=2, screen_size=36, n_envs=8, gamma=0.95,
    learning_rate=5e-4, steps_per_update=4.0, first_fill_steps=400, epsilon_decay_steps=4_000, hidden_units=64, n_step=3,
    batch_size=32, target_sync_steps=200, replay_capacity=8 * 300, torch_threads=1, wrappers=("no-grad", "fused-adam"),
)  # fmt: skip


@pytest.fixture(params=[1, 2, 3])
def parts(request, monkeypatch) -> int:
    """Environments that take turns; on a CPU a run would have one part."""
    monkeypatch.setattr(hybrid, "parts_of", lambda config, device: hybrid.split(config, request.param))
    return request.param


def listen(agent) -> list[list[Any]]:
    """What every part's environments bring, in lists that grow."""
    heard: list[list[Any]] = []
    for player in agent.players:
        steps: list[Any] = []
        recv = player.envs.recv
        player.envs.recv = lambda recv=recv, steps=steps: steps.append(recv()) or steps[-1]
        heard.append(steps)
    return heard


def test_the_card_sees_what_the_environments_show(parts):
    agent, ticks = make_run(CATCH)
    heard = listen(agent)
    resets = 0
    for _ in range(60 * parts):
        tick = next(ticks)
        part, step = agent.parts[agent.turn], heard[agent.turn][-1]
        assert np.array_equal(part.player.obs.numpy(), step.obs_t)
        ended = np.zeros(len(step.reset), bool)
        ended[[end.env for end in step.ends]] = True
        assert np.array_equal(part.player.away.numpy() != 0, ended)
        assert [e.env - part.first for e in tick.ends] == [e.env for e in step.ends]
        resets += int(step.reset.sum())
    assert resets > 8
    agent.close()


def test_the_ring_holds_the_decisions_and_nothing_else(parts):
    agent, ticks = make_run(CATCH)
    heard = listen(agent)
    first = [p.obs[:, -1].clone() for p in agent.players]
    for _ in range(50 * parts):
        next(ticks)
    ring = agent.ring
    assert int(ring.head) == int(ring.filled) == 50
    for part, steps, frame in zip(agent.parts, heard, first, strict=True):
        columns = slice(part.first, part.first + len(frame))
        assert int(part.ring.head) == 50
        resets = torch.from_numpy(np.stack([s.reset for s in steps[:50]]))
        assert torch.equal(ring.valid[:50, columns], ~resets)
        assert np.array_equal(ring.reward[:50, columns].numpy(), np.stack([s.reward_t for s in steps[:50]]))
        assert np.array_equal(ring.done[:50, columns].numpy(), np.stack([s.terminated for s in steps[:50]]))
        shown = torch.stack([frame, *(torch.from_numpy(s.obs_t[:, -1].copy()) for s in steps[:49])])
        assert torch.equal(ring.frames[:50, columns], space_to_depth(shown) if ring.deep else shown)
    assert int(ring.valid[:50].sum()) == agent.clock.steps
    agent.close()


def test_what_is_drawn_is_complete_in_every_column(parts):
    """A part that is ahead must not be drawn from where the others have nothing yet."""
    agent, ticks = make_run(CATCH.replace(n_step=1, first_fill_steps=2_400))
    for _ in range(70 * parts):
        next(ticks)
        t, env = agent.ring.draw(4_000, 1, agent.head, agent.filled)
        assert int(env.max()) == 7 and int(env.min()) == 0
        behind = min(int(p.ring.head) for p in agent.parts)
        assert int(t.max()) < behind or behind < 12
    agent.close()


def test_updates_and_syncs_are_owed_as_in_the_inline_loop():
    counts = {}
    for runner in ("inline", "hybrid"):
        agent, ticks = make_run(CATCH.replace(runner=runner, replay="frames"))
        for tick in itertools.islice(ticks, 150):
            if tick.steps >= 900:
                break
        counts[runner] = agent.clock.updates_due() - agent.clock.updates, agent.clock.owes_sync()
        assert agent.clock.updates > 50
        agent.close()
    # one tick's steps are owed until the next tick begins, in both
    assert counts["inline"] == counts["hybrid"]


def test_it_solves_catch(parts):
    result = train(CATCH.replace(max_steps=30_000, stop_at_score=0.8))
    assert result.ended == "solved", f"mean score {result.mean_score} after {result.steps} steps"


def test_a_saved_run_goes_on_as_if_it_had_not_stopped(parts):
    def weights(stop_at):
        agent, ticks = make_run(CATCH)
        for _ in range(stop_at):
            next(ticks)
        arrays, record = agent.get_state()
        agent.close()
        other, more = make_run(CATCH)
        other.set_state(arrays, record)
        games = [end for _ in range(160 * parts - stop_at) for end in next(more).ends]
        other.close()
        return [p.detach().clone() for p in other.learner.online.parameters()], games

    whole, games = weights(0)
    for stop_at in range(90 * parts, 91 * parts):
        again, later = weights(stop_at)
        assert later == games[len(games) - len(later) :]
        assert all(torch.equal(x, y) for x, y in zip(whole, again, strict=True))


def test_a_run_that_is_saved_is_not_disturbed(parts):
    def parameters(save):
        agent, ticks = make_run(CATCH)
        for k in range(120 * parts):
            next(ticks)
            if save and k % 7 == 0:
                agent.get_state()
        agent.close()
        return [p.detach().clone() for p in agent.learner.online.parameters()]

    assert all(torch.equal(x, y) for x, y in zip(parameters(False), parameters(True), strict=True))


def test_two_parts_where_threads_play_and_have_enough_to_do():
    config, card = CATCH.replace(envs="console", n_envs=64, env_threads=16), torch.device("cuda")
    assert [c.n_envs for c in hybrid.parts_of(config, card)] == [32, 32]
    assert len({c.seed for c in hybrid.parts_of(config, card)}) == 2, "they do not play the same games"
    for alone in (config.replace(n_envs=31), config.replace(envs="gym-sync"), config.replace(env_threads=64)):
        assert hybrid.parts_of(alone, card) == [alone]
    assert hybrid.parts_of(config, torch.device("cpu")) == [config]


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"env_id": "CartPole-v1"}, "shows none"), ({"prioritized": True, "replay": "frames"}, "uniformly")],
)
def test_what_it_cannot_do_is_said_in_a_line(changes, says):
    with pytest.raises(ConfigError, match=says):
        make_run(CATCH.replace(**changes))


@pytest.mark.parametrize("double", [False, True])
def test_updates_made_together_are_the_updates_made_one_by_one(double, monkeypatch):
    """Same draws, same parameters: the target network's pass over all batches at once changes nothing."""

    def parameters(sizes):
        agent, ticks = make_run(CATCH.replace(double=double, n_envs=32, steps_per_update=4.0, replay_capacity=32 * 100))
        assert agent.updates.group == 8 and agent.updates.parts(19) == [8, 8, 1, 1, 1]
        while next(ticks).steps < 390:  # nothing learned yet
            pass
        agent.head.copy_(agent.ring.head), agent.filled.copy_(agent.ring.filled)
        draws = [agent.ring.draw(32, 3, agent.head, agent.filled) for _ in range(8)]
        for size in sizes:
            taken, draws = draws[:size], draws[size:]
            monkeypatch.setattr(
                agent.ring, "draw", lambda *_, d=taken: tuple(torch.cat(x) for x in zip(*d, strict=True))
            )
            agent.updates.run(size)
        assert agent.report[1] == 8
        agent.close()
        return [p.detach().clone() for p in agent.learner.online.parameters()]

    together, one_by_one = parameters([8]), parameters([1] * 8)
    for a, b in zip(together, one_by_one, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_the_first_bad_update_of_a_group_is_the_one_reported():
    agent, _ = make_run(CATCH)
    agent.updates._report(torch.tensor([1.0, 2.0, 3.0]))
    assert agent.report[1:].tolist()[0] == 3 and agent.report[3] == 3.0 and agent.report[4] == -1
    agent.updates._report(torch.tensor([1.0, float("nan"), 3.0, float("inf")]))
    agent.updates._report(torch.tensor([float("nan")]))
    assert agent.report[1] == 8 and agent.report[4] == 5
    agent.close()

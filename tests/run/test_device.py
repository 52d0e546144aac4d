"""The device runner without a GPU: the same pieces, called one after the other on a simple game in place of the
consoles.
"""

from __future__ import annotations

import itertools
import json

import pytest
import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.run.build import make_clock
from dqnitro.run.gpu.agent import UPDATES
from dqnitro.run.gpu.device import STEPS_PER_GRAPH, DeviceAgent, Graphs, make
from dqnitro.run.gpu.device import ticks as ticks_of
from support.fakes_device import GAME, Catch, agent, config


def ticks(a: DeviceAgent):
    return ticks_of(a, Graphs(a))


def test_steps_games_and_updates_are_counted():
    a = agent(config(batch_size=8))
    seen = list(itertools.islice(ticks(a), 20))
    assert (
        isinstance(a.player, Catch) and seen[-1].steps == a.player.played
    )  # environments that were resetting did not step
    games = [end for tick in seen for end in tick.ends]
    assert games and all(end.steps == GAME and -GAME <= end.score <= GAME for end in games)
    # one update for every four vector-step decisions after the fill, counted in vector steps
    filled = next(i for i, tick in enumerate(seen) if tick.steps >= 200)
    vector_steps = (len(seen) - 1 - filled) * 16
    assert seen[-1].updates == vector_steps * 8 // 4


# as few updates as learn it: some 500
QUICKLY = {"epsilon_decay_steps": 800, "steps_per_update": 8.0, "batch_size": 16, "learning_rate": 2e-3}


def test_it_learns():
    run = ticks(agent(config(**QUICKLY)))
    early = [end.score for tick in itertools.islice(run, 4) for end in tick.ends]
    late = [end.score for tick in itertools.islice(run, 34) for end in tick.ends][-40:]
    assert sum(early) / len(early) < 3
    assert sum(late) / len(late) > 5


STRONG = {"munchausen": True, "quantiles": 8, "dueling": True, "network": "impala", "impala_norm": "layer"}


def test_it_learns_with_quantiles_munchausen_targets_and_priorities():
    a = agent(config(**STRONG | QUICKLY | {"prioritized": True, "network": "small"}))
    late = [end.score for tick in itertools.islice(ticks(a), 38) for end in tick.ends][-40:]
    assert sum(late) / len(late) > 4  # at random it is 0, at best 6


RANDOM = {"implicit_quantiles": 4, "noisy_sigma": 0.5}  # passes that want random numbers


@pytest.mark.parametrize(
    "changes", [{}, {"double": True}, {"munchausen": True}, STRONG, RANDOM, RANDOM | {"munchausen": True}]
)
def test_updates_from_the_ring_are_those_of_the_learner(changes):
    """The losses that the ring's update reports are those of the learner for the same transitions."""
    a = agent(config(batch_size=8, first_fill_steps=300, **changes))
    for _ in itertools.islice(ticks(a), 3):  # nothing is learned yet
        pass
    a.sync_target()
    t, env = torch.randint(10, 40, (8,)), torch.randint(0, 8, (8,))
    batch = a.ring.transitions(t, env, 1, a.config.gamma)
    chance = torch.Generator()
    draws = a.learner.wants.draw(8, torch.device("cpu"), chance.manual_seed(3))
    expected = a.learner.loss(a.learner.online, a.learner.target, batch, draws)[0].item()
    assert a.update.learn(t, env, None, chance.manual_seed(3))[0].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("n_envs", "steps_per_update"), [(8, 4.0), (8, 3.0), (8, 64.0), (16, 5.0)])
def test_owed_updates_are_never_lost(n_envs, steps_per_update):
    a = agent(config(n_envs=n_envs, steps_per_update=steps_per_update))
    graphs = Graphs(a)
    total = sum(sum(graphs.plan(first, 16)) for first in range(0, 160 * 16, 16))
    assert total == int(160 * 16 * n_envs / steps_per_update)


@pytest.mark.parametrize(("steps_per_update", "per_graph"), [(64.0, 16), (0.125, 16), (0.05, 6), (0.005, 1)])
def test_a_graph_is_shorter_only_where_steps_owe_very_many_updates(steps_per_update, per_graph):
    assert Graphs(agent(config(steps_per_update=steps_per_update, target_sync_steps=4))).per_graph == per_graph


def numbers(run, n: int) -> list[tuple]:
    return [(t.steps, t.updates, t.epsilon, t.ends) for t in itertools.islice(run, n)]


# stopped well after the fill, before it is complete, and between two updates
@pytest.mark.parametrize(("behind", "steps_per_update", "stop_at"), [(0, 16.0, 8), (1, 16.0, 1), (1, 40.0, 9)])
def test_a_saved_run_goes_on_as_if_it_had_not_stopped(behind, steps_per_update, stop_at):
    """With `behind` 1, as on a GPU, a graph is under way when the run is saved: its games must not be lost."""
    c = config(steps_per_update=steps_per_update, first_fill_steps=60)
    whole = agent(c)
    whole.behind = behind
    expected = numbers(ticks(whole), 14)

    a = agent(c)
    a.behind = behind
    first = numbers(ticks(a), stop_at)
    arrays, record = a.get_state()
    b = agent(c)
    b.behind, b.players = behind, a.players  # this game saves no state of its own
    b.set_state(arrays, json.loads(json.dumps(record)))
    assert first + numbers(ticks(b), 14 - stop_at) == expected
    assert expected[-1][1] > 10 and first[-1][1] < expected[-1][1] and any(ends for *_, ends in expected)
    for x, y in zip(whole.learner.online.parameters(), b.learner.online.parameters(), strict=True):
        assert torch.equal(x, y)


def test_a_saved_optimiser_goes_into_the_tensors_that_are_there():
    """A recorded graph knows Adam's moments by their address."""
    a = agent(config(first_fill_steps=60, steps_per_update=16.0))
    run = ticks(a)
    assert numbers(run, 6)[-1][1] > 0
    arrays, record = a.get_state()
    moments = [v for state in a.learner.optimizer.state.values() for v in state.values()]
    places, values = [v.data_ptr() for v in moments], [v.clone() for v in moments]
    numbers(run, 1)
    assert not all(torch.equal(v, w) for v, w in zip(moments, values, strict=True))
    a.set_state(arrays, record)
    after = [v for state in a.learner.optimizer.state.values() for v in state.values()]
    assert [v.data_ptr() for v in after] == places
    assert all(torch.equal(v, w) for v, w in zip(after, values, strict=True))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"env_id": "CartPole-v1"}, "only plays Atari games"),
        ({"act_device": "cpu"}, "acts where it learns"),
        ({"resize": "linear", "envs": "wrappers"}, "resize area only"),
    ],
    ids=str,
)
def test_what_the_runner_does_not_do_is_refused(changes, what):
    with pytest.raises(ConfigError, match=what) as e:
        make(config(**changes))
    assert "hint:" in str(e.value)


def test_the_fused_optimiser_is_put_on_where_it_is_missing(monkeypatch):
    class Stop(Exception):
        pass

    def look(c, device, *rest):
        raise Stop(c.wrappers)

    monkeypatch.setattr("dqnitro.atari.cuda.build.require", lambda device=None: torch)
    monkeypatch.setattr("dqnitro.run.gpu.device.CudaEnvs", look)
    for wrappers in (("no-grad",), ("no-grad", "fused-adam")):
        with pytest.raises(Stop) as e:
            make(config(wrappers=wrappers))
        assert e.value.args == (("no-grad", "fused-adam"),)


def test_without_a_gpu_the_runner_says_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="runner device: this torch .* sees no CUDA device. hint: "):
        make(config())


def syncs_seen(a: DeviceAgent, updates: int) -> list[int]:
    """After how many updates the target was copied. Between copies it does not change."""
    seen: list[int] = []
    real, made, kept = a.learn, 0, [p.clone() for p in a.learner.target.parameters()]

    def learn(size: int = 1, k: int = -1) -> None:
        nonlocal made, kept
        if int(a.syncs) > made:
            made = int(a.syncs)
            seen.append(int(a.report[UPDATES]))
            kept = [p.detach().clone() for p in a.learner.online.parameters()]
        assert all(torch.equal(x, y) for x, y in zip(a.learner.target.parameters(), kept, strict=True))
        real(size, k)

    a.learn = learn
    run = ticks(a)
    while next(run).updates < updates:
        pass
    assert any(not torch.equal(x, y) for x, y in zip(a.learner.online.parameters(), kept, strict=True))
    return seen


def syncs_of_the_clock(c: Config, updates: int, together: int, per_step: int) -> list[int]:
    """The same from the inline clock, one update after the other; each sync is moved on to the next draw."""
    clock, due = make_clock(c), set()
    for _ in range(updates):
        if clock.owes_sync():
            due.add(clock.updates)
            clock.count_sync()
        clock.count_update()
    draws = [0]  # after how many updates samples are drawn
    while draws[-1] <= updates:
        of_step = [together] * (per_step // together) + [1] * (per_step % together)
        draws += [draws[-1] + sum(of_step[: i + 1]) for i in range(len(of_step))]
    moved = {next(d for d in draws if d >= u) for u in due}
    return sorted(d for d in moved if d < updates)


@pytest.mark.parametrize(
    ("n_envs", "steps_per_update", "period"),
    [
        (8, 8.0, 256),  # two graphs for a period
        (8, 8.0, 40),  # three periods in a graph
        (8, 8.0, 100),  # no multiple of a vector step
        (16, 16.0, 12),  # more than one period in every vector step
        (16, 4.0, 50),  # four updates in a step, drawn together: a sync between them is made after them
        (16, 2.0, 12),  # as many as are drawn together, and more than one period among them
        (16, 64.0, 100),  # an update every four vector steps
    ],
)
def test_the_target_is_copied_where_the_inline_clock_would(n_envs, steps_per_update, period):
    c = config(
        n_envs=n_envs, steps_per_update=steps_per_update, target_sync_steps=period, first_fill_steps=60, batch_size=4,
        replay_capacity=n_envs * 400,
    )  # fmt: skip
    a = agent(c)
    seen = syncs_seen(a, int(max(20, 2.5 * period / steps_per_update)))
    updates = int(a.report[UPDATES])
    assert seen == syncs_of_the_clock(c, updates, a.together, max(1, int(n_envs / steps_per_update)))
    assert len(seen) >= 2 and updates >= 20


def test_a_target_in_half_precision_is_copied_as_well():
    a = agent(config(first_fill_steps=60, batch_size=4))
    a.learner.target.bfloat16()
    for parameter in a.learner.online.parameters():
        parameter.data.add_(1.0)
    for period, owed in ((10**6, False), (4, True)):
        a._sync_steps.fill_(period)
        a.sync_target_if_due()
        pairs = zip(a.learner.target.parameters(), a.learner.online.parameters(), strict=True)
        same = [to.dtype == torch.bfloat16 and torch.equal(to, of.bfloat16()) for to, of in pairs]
        assert all(same) if owed else not all(same)


def test_a_sync_cuts_no_graph_and_needs_no_other_one():
    """A graph is as long, and its patterns are as many, whether the target is copied often or never."""
    for period in (4, 50, 10**6):
        a = agent(config(target_sync_steps=period, first_fill_steps=60, batch_size=4))
        graphs = Graphs(a)
        patterns, run = set(), graphs.run

        def keep(updates, run=run, patterns=patterns):
            patterns.add(updates)
            run(updates)

        graphs.run = keep
        steps = [t.steps for t in itertools.islice(ticks_of(a, graphs), 5)]
        assert patterns == {(0,) * STEPS_PER_GRAPH, (2,) * STEPS_PER_GRAPH} and steps[0] > 16
        assert int(a.syncs) == int(60 + 4.0 * (int(a.report[UPDATES]) - 2)) // period

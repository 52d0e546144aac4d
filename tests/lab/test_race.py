"""A racer measures what it says, learns from its first timed step on, and costs next to nothing itself."""

import itertools
import signal
import time
from types import SimpleNamespace

import pytest
import torch

from dqnitro import recipes
from dqnitro.lab import race

SMALL = {"hidden_units": 16, "batch_size": 8}


def config(**changes):
    return recipes.baseline("CartPole-v1").replace(**SMALL, **changes)


@pytest.mark.parametrize(("n_envs", "steps_per_update"), [(1, 1.0), (1, 0.5), (2, 1.0), (4, 8.0)])
def test_steps_updates_and_samples_are_those_of_the_timed_part(n_envs, steps_per_update):
    racer = race.Racer(config(n_envs=n_envs, steps_per_update=steps_per_update))
    try:
        clock = racer.agent.clock
        assert clock.updates >= race.WARM_UPDATES and clock.epsilon() == racer.config.epsilon_end
        before = clock.steps, clock.updates
        rate = racer.rate(0.05)
        assert (racer.steps, racer.updates) == (clock.steps - before[0], clock.updates - before[1])
        assert racer.updates > 0, "nothing was learned in the timed part"
        assert rate == pytest.approx(racer.steps / racer.seconds)
        # at most one tick's updates can be owed at either end
        assert racer.updates == pytest.approx(racer.steps / steps_per_update, abs=n_envs / steps_per_update + 1)
        assert sum(racer.share.values()) == pytest.approx(1.0, abs=0.02) and racer.share["learn"] > 0
    finally:
        racer.close()


def test_measuring_looks_at_the_clock_once_a_tick_and_costs_under_one_percent(monkeypatch):
    racer = race.Racer(config())
    looks = itertools.count()

    def look():
        next(looks)
        return time.perf_counter()

    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=look))
    racer.rate(0.1)
    monkeypatch.undo()
    racer.close()
    assert racer.ticks > 5
    assert next(looks) <= racer.ticks + 3
    assert 0 < racer.measuring_share() < 0.01


def test_a_racer_with_its_own_number_of_threads_leaves_the_process_as_it_was():
    usual = torch.get_num_threads()
    seen = []
    racer = race.Racer(config(torch_threads=usual + 1), lambda agent: None)
    assert torch.get_num_threads() == usual
    update = racer.agent.learner.update
    racer.agent.learner.update = lambda batch: (seen.append(torch.get_num_threads()), update(batch))[1]
    racer.rate(0.02)
    racer.close()
    assert set(seen) == {usual + 1} and torch.get_num_threads() == usual


def test_many_compiled_racers_are_all_compiled():
    """Beyond its limit torch.compile falls back to eager without an error, and a ladder would time the wrong thing."""
    import torch._dynamo
    from torch._dynamo.testing import CompileCounter

    def version(k, counter):
        return torch.compile(lambda x: x * k, backend=counter, dynamic=False)

    counter = CompileCounter()
    # torch's own way to put the limits back; monkeypatch would leave them hidden for the tests after this one
    with torch._dynamo.config.patch(recompile_limit=8, accumulated_recompile_limit=8):
        race.make_room_for_compiled(config(wrappers=("no-grad", "compile")))
        for k in range(12):
            version(k + 2, counter)(torch.ones(3))
    assert counter.frame_count == 12


def test_a_racer_that_cannot_be_built_is_skipped_with_the_reason():
    with race.Race(1.0) as r:
        assert r.build("cuda", config(device="cuda:7")) is None or torch.cuda.is_available()
        assert r.build("good", config()) is not None
        if not torch.cuda.is_available():
            assert "sees no CUDA device" in r.skipped["cuda"]


class Steady:
    """A contender that needs no building."""

    seconds = 1.0

    def __init__(self, rate, stop_at=None):
        self.turns, self._rate, self._stop_at = 0, rate, stop_at

    def rate(self, seconds):
        self.turns += 1
        if self.turns == self._stop_at:
            signal.raise_signal(signal.SIGINT)
        return self._rate

    def close(self): ...


class Failing(Steady):
    """Breaks in its second turn."""

    closed = False

    def rate(self, seconds):
        if self.turns == 1:
            raise RuntimeError("the GPU fell off the bus\nand more")
        return super().rate(seconds)

    def close(self):
        self.closed = True


def make_race(minutes=0.0, **racers):
    r = race.Race(minutes)
    r.racers.update(racers)
    return r


def test_ctrl_c_keeps_whole_rounds_only():
    r = make_race(a=Steady(1.0), b=Steady(2.0, stop_at=3))
    assert r.run(10, 0.1) == {"a": [1.0, 1.0], "b": [2.0, 2.0]}
    assert r.interrupted == "SIGINT" and r.rounds == 2


def test_who_fails_in_a_turn_is_out_and_the_others_go_on():
    bad = Failing(3.0)
    r = make_race(a=Steady(1.0), bad=bad, b=Steady(2.0))
    assert r.run(4, 0.1) == {"a": [1.0] * 4, "b": [2.0] * 4}
    assert r.skipped == {"bad": "failed while running: the GPU fell off the bus"} and bad.closed and r.rounds == 4


def test_a_racer_that_breaks_while_it_warms_up_is_closed():
    closed = []

    def breaks(agent):
        close, agent.close = agent.close, lambda: (closed.append(True), close())
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        race.Racer(config(), breaks)
    assert closed


def test_ctrl_c_before_the_first_round_is_over_is_no_result():
    with pytest.raises(KeyboardInterrupt):
        make_race(a=Steady(1.0), b=Steady(2.0, stop_at=1)).run(10, 0.1)


def test_minutes_bound_the_rounds_but_an_interval_needs_some(monkeypatch):
    now = itertools.count(0.0, 1.0)  # every look at the clock is a second
    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    r = make_race(minutes=20 / 60, a=Steady(1.0), b=Steady(2.0))
    r.run(1000, 2.0)
    assert 10 <= r.rounds <= 20  # a look a round, and the last seconds are too short for one more
    late = make_race(minutes=1e-9, a=Steady(1.0))
    late.run(1000, 2.0)
    assert late.rounds == 3 and late.seconds < 2.0


def test_building_leaves_time_for_short_turns_of_all():
    said: list[str] = []
    r = race.Race(10.0, said.append)
    r.racers = {"a": Steady(1.0)}  # type: ignore[dict-item]
    r.expected = 3
    r._end -= 595
    assert r.build("in time", config()) is not None, "five seconds are enough for three turns of two"
    assert said == ["building 1 of 3: in time"]
    r._end -= 1
    assert r.build("late", config()) is None and "give more" in r.skipped["late"]
    r.close()


@pytest.mark.parametrize(("load", "warns"), [(0.1, False), (99.0, True), (None, False)])
def test_a_busy_machine_is_said_to_be_busy(monkeypatch, load, warns):
    monkeypatch.setattr(race, "load_before", lambda: load)
    facts = race.facts_of(make_race())
    assert facts["load_before"] == load and bool(facts["warning"]) == warns
    assert not warns or "hint: measure again when it is idle" in facts["warning"]

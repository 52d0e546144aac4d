"""Training agents that take turns in one process: the basis of ladder, ablate and tune.

A racer is built once, before anything is timed: environments, compiled code, and a replay filled by random play. In its
turns it only trains on. All racers take a turn in every round, so a machine that slows down slows all of them.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dqnitro.agent import PHASES
from dqnitro.common.host import usable_cores
from dqnitro.common.signals import Interrupted, Signals
from dqnitro.config import Config
from dqnitro.errors import DivergedError, UserError
from dqnitro.lab.interleave import interleave, threads_put_back
from dqnitro.ladder import fitted
from dqnitro.run import make_run

FILL_STEPS = 500  # enough to sample from
CAPACITY = 5_000  # transitions; a replay's size changes its memory, hardly its speed, and every racer keeps its own
WARM_UPDATES = 5  # untimed: the first ones touch fresh memory
MAX_TURN_FACTOR = 20.0
FEWEST_ROUNDS = 3  # for an interval
SHORTEST_TURN_S = 0.5  # for which building leaves time
BUSY = 0.5  # load per core above which a result warns that others used the machine

Change = Callable[[Any], None]

# A setting that cannot work, a compiler that is missing, a library without a kernel, a loss that became NaN.
FAILURES = (UserError, DivergedError, RuntimeError, MemoryError, OSError, ImportError)


def reason(e: Exception, words: str) -> str:
    """One line: the first of a library's message."""
    if isinstance(e, UserError):
        return str(e)
    first = (str(e) or type(e).__name__).strip().splitlines()[0]
    return f"{words}: {first[:200]}"


def measuring_config(config: Config) -> Config:
    """The config as it is measured: small replay, short fill, exploration at its end, no limits."""
    fill = max(FILL_STEPS, config.batch_size)
    capacity = max(CAPACITY, 2 * fill, 32 * config.n_envs)  # a stack and some history for each of many environments
    return config.replace(
        first_fill_steps=fill, replay_capacity=capacity, epsilon_decay_steps=fill, max_steps=0, max_minutes=0.0
    )  # fmt: skip


NOTES = {
    "replay": (
        f"measured with a replay of {CAPACITY:,} transitions, "
        f"{FILL_STEPS} of them from random play before the clock starts"
    ),
    "epsilon": "measured with the exploration at the end of a run, when nearly every step asks the network",
    "fps": "steps (decisions) a second; a step is frame_skip console frames",
}


def make_room_for_compiled(config: Config) -> None:
    """torch.compile keeps 8 versions of a function and then silently runs it uncompiled; each racer's update is a
    version.
    """
    from dqnitro.learn.transforms import chosen

    if any(t.compiles for t in chosen(config.wrappers)):
        import torch._dynamo

        limits = torch._dynamo.config
        limits.recompile_limit = max(limits.recompile_limit, 256)
        limits.accumulated_recompile_limit = max(limits.accumulated_recompile_limit, 1024)


class Racer:
    """One agent that trains for some seconds whenever it is asked, and counts what it did in that time."""

    def __init__(self, config: Config, change: Change | None = None) -> None:
        import torch

        self.config = config
        # The number of threads belongs to the process, so it is put back before every turn and after building.
        make_room_for_compiled(config)
        began = time.perf_counter()
        with threads_put_back():
            self.agent, self._ticks = make_run(measuring_config(config))
            try:
                if change is not None:
                    change(self.agent)
                while next(self._ticks).updates < WARM_UPDATES:
                    pass
            except BaseException:
                self.agent.close()
                raise
            # As set by the config, or by its runner for the learner.
            self._threads = torch.get_num_threads()
        self.build_s = time.perf_counter() - began
        self.frames_per_step = self.agent.envs.spec.frames_per_step
        self.seconds, self.steps, self.updates, self.ticks = 0.0, 0, 0, 0
        self.phases: dict[str, float] = dict.fromkeys(PHASES, 0.0)

    def rate(self, seconds: float) -> float:
        """Train for about this many seconds, and for at least one update; returns steps a second."""
        a, clock = self.agent, time.perf_counter
        before = dict(a.phases.seconds)
        steps, updates, ticks = a.clock.steps, a.clock.updates, 0
        begin = clock()
        with threads_put_back(self._threads):
            # Reading the clock once per tick is all that measuring costs here; see `measuring_share`.
            while (spent := clock() - begin) < seconds or (
                a.clock.updates == updates and spent < seconds * MAX_TURN_FACTOR
            ):
                next(self._ticks)
                ticks += 1
            synchronize(a)
        spent = clock() - begin
        self.seconds += spent
        self.steps += a.clock.steps - steps
        self.updates += a.clock.updates - updates
        self.ticks += ticks
        for phase, was in before.items():
            self.phases[phase] = self.phases.get(phase, 0.0) + a.phases.seconds[phase] - was
        return (a.clock.steps - steps) / spent

    @property
    def samples_per_step(self) -> float:
        """Transitions learned from for each step played: the replay ratio."""
        return self.updates * self.config.batch_size / self.steps if self.steps else 0.0

    @property
    def ratio_error(self) -> float:
        """How far `samples_per_step` may be off: a turn can begin and end with a tick's updates owed."""
        c = self.config
        return c.batch_size * (c.n_envs / c.steps_per_update + 1) / self.steps if self.steps else 0.0

    @property
    def share(self) -> dict[str, float]:
        """Where the time went, by phase; "loop" is the rest."""
        if not self.seconds:
            return {}
        out = {p: s / self.seconds for p, s in self.phases.items()}
        return out | {"loop": max(0.0, 1.0 - sum(out.values()))}

    def facts(self) -> dict[str, Any]:
        """The columns of a row other than the speed."""
        per_s = 1.0 / self.seconds if self.seconds else 0.0
        return {
            "frames_per_step": self.frames_per_step,
            "frames_per_s": self.steps * self.frames_per_step * per_s,
            "updates_per_s": self.updates * per_s,
            "samples_per_step": self.samples_per_step,
            "share": self.share,
            "build_s": self.build_s,
            "measuring_share": self.measuring_share(),
        }

    def measuring_share(self) -> float:
        """The share of the time that went into measuring: readings of the clock, times the cost of one."""
        looks_a_tick = 1 + 1 + len(PHASES) + 2 * self.updates / max(1, self.ticks)
        return clock_cost_s() * looks_a_tick * self.ticks / self.seconds if self.seconds else 0.0

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a player that died was already reported; others still have to be closed
            close = getattr(self._ticks, "close", None)
            if close:
                close()
        self.agent.close()


def synchronize(agent: Any) -> None:
    """A GPU works asynchronously: wait for it, or its work would be counted in the next turn."""
    if agent.learner.device.type == "cuda":
        import torch

        torch.cuda.synchronize(agent.learner.device)


_clock_cost: list[float] = []


def clock_cost_s(looks: int = 20_000) -> float:
    """Seconds that one reading of the clock and an addition take here; measured once."""
    if not _clock_cost:
        total, begin = 0.0, time.perf_counter()
        for _ in range(looks):
            total += time.perf_counter() - begin
        _clock_cost.append((time.perf_counter() - begin) / looks)
    return _clock_cost[0]


@dataclass(frozen=True)
class Budget:
    """What measuring may take: `minutes` for everything (0: no limit), and `rounds` of turns of `seconds`, if they fit
    in.
    """

    minutes: float = 8.0
    rounds: int = 10
    seconds: float = 1.0


BUDGET = Budget()


class Race:
    """Builds racers within a time budget and runs them in rounds; only complete rounds count."""

    def __init__(self, minutes: float, say: Callable[[str], None] = lambda text: None) -> None:
        self._end = time.perf_counter() + minutes * 60 if minutes else float("inf")
        self.minutes, self._say = minutes, say
        self.load = load_before()
        self.racers: dict[str, Racer] = {}
        self.skipped: dict[str, str] = {}
        self.rates: dict[str, list[float]] = {}
        self.expected = 0  # how many racers will be built, for the reports; 0: unknown
        self._begun = 0
        self.interrupted: str | None = None  # the signal that ended it early
        self.seconds = 0.0

    def left_s(self) -> float:
        return self._end - time.perf_counter()

    def build(self, name: str, config: Config, change: Change | None = None) -> Racer | None:
        """A racer, or None with the reason in `skipped`. The first is always built; another only while the time that is
        left suffices for short turns of all.
        """
        n = len(self.racers) + 1
        if self.racers and self.left_s() < FEWEST_ROUNDS * SHORTEST_TURN_S * n:
            self.skipped[name] = f"building the others took nearly all of --minutes {self.minutes:g}; give more"
            return None
        self._begun += 1
        self._say(f"building {self._begun}{f' of {self.expected}' if self.expected else ''}: {name}")
        try:
            self.racers[name] = Racer(fitted(config)[0], change)
        except FAILURES as e:  # the others can still be measured
            self.skipped[name] = reason(e, "failed to start")
            return None
        return self.racers[name]

    def run(self, rounds: int, seconds: float, fewest: int = FEWEST_ROUNDS) -> dict[str, list[float]]:
        """Rates by name, one per round. Fewer rounds and shorter turns if the minutes do not suffice; a signal ends it
        early.

        A racer that fails in a turn is dropped, with the reason in `skipped`.
        """
        count = max(1, len(self.racers))
        left_s = self.left_s()
        if left_s < count * seconds * fewest:
            seconds = max(0.05, left_s / (count * fewest))
        most = min(rounds, max(fewest, math.ceil(min(left_s, 1e9) / (count * seconds))))
        self.seconds = seconds
        self.rates = {name: [] for name in self.racers}
        turns = {name: functools.partial(self._turn, name) for name in self.racers}
        done: dict[str, float] = {}
        with Signals().installed() as signals, contextlib.suppress(Interrupted):
            for r, name, rate in interleave(turns, rounds, seconds):
                if signals.caught:
                    self.interrupted = signals.caught
                    break
                done[name] = rate
                if not math.isnan(rate):
                    left = (most - r) * count * seconds - len(done) * seconds
                    turn = f"contender {len(done)} of {count}"
                    self._say(f"round {r + 1} of {most}, {turn}, {left:.0f} s left: {name} {rate:,.0f} steps/s")
                if len(done) < len(turns):
                    continue
                for n in self.racers:
                    self.rates[n].append(done[n])
                done = {}
                if r + 1 >= fewest and self.left_s() < count * seconds:
                    break
        self.interrupted = self.interrupted or signals.caught
        if self.interrupted and not self.rounds:
            raise KeyboardInterrupt
        return self.rates

    def _turn(self, name: str, seconds: float) -> float:
        if name not in self.racers:
            return math.nan
        try:
            return self.racers[name].rate(seconds)
        except FAILURES as e:
            self.skipped[name] = reason(e, "failed while running")
            self.racers.pop(name).close()
            del self.rates[name]
            return math.nan

    @property
    def rounds(self) -> int:
        return min((len(v) for v in self.rates.values()), default=0)

    def close(self) -> None:
        for racer in self.racers.values():
            racer.close()

    def __enter__(self) -> Race:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def load_before() -> float | None:
    """The average number of processes that wanted a core in the last minute; None if the system does not tell."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def facts_of(race: Race) -> dict[str, Any]:
    """Facts about a whole race, for the notes of a result."""
    shares = [r.measuring_share() for r in race.racers.values() if r.seconds]
    cores, warning = usable_cores(), None
    if race.load is not None and race.load > BUSY * cores:
        warning = (
            f"the machine was busy when measuring began (load {race.load:.1f} on {cores} cores); "
            "hint: measure again when it is idle"
        )
    return {**NOTES, "measuring_share": max(shares, default=0.0), "load_before": race.load, "warning": warning}

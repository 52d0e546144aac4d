"""Racers of known speed, so that the arithmetic of an experiment can be checked to the last digit. No clock, no
training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dqnitro.config import Config
from dqnitro.lab import race


def use(
    monkeypatch: Any, speed: Callable[[Config], float], wobble: tuple[float, ...] = (1.0, 1.02, 0.98, 1.01)
) -> list[Config]:
    """Make every racer run at speed(config), times what the machine does in that round; returns what was built."""
    built: list[Config] = []

    class FakeRacer:
        frames_per_step = 4
        build_s = 0.0
        phases: dict[str, float] = {}  # noqa: RUF012 - never written

        def __init__(self, config: Config, change: Any = None) -> None:
            self.config, self.turns = config, 0
            self.seconds, self.steps, self.updates, self.ticks = 0.0, 0, 0, 0
            self.closed = False
            speed(config)  # a speed may refuse
            built.append(config)

        def rate(self, seconds: float) -> float:
            value = speed(self.config) * wobble[self.turns % len(wobble)]
            self.turns += 1
            self.seconds += 1.0
            self.steps += 1600
            self.updates += round(1600 / self.config.steps_per_update)
            return value

        samples_per_step = race.Racer.samples_per_step
        ratio_error = race.Racer.ratio_error
        share = race.Racer.share
        facts = race.Racer.facts

        def measuring_share(self) -> float:
            return 0.0

        def close(self) -> None:
            self.closed = True

    monkeypatch.setattr(race, "Racer", FakeRacer)
    return built

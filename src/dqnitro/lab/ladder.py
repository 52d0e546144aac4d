"""`dqnitro ladder`: climb from the textbook DQN, one rung on top of the other; all rungs take turns in one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqnitro import ladder, recipes
from dqnitro.common.intervals import rate_interval, ratio_interval
from dqnitro.config import Config
from dqnitro.errors import ConfigError, UserError
from dqnitro.lab.race import BUDGET, Budget, Race, Racer, facts_of
from dqnitro.lab.store import header
from dqnitro.lab.time_to_solve import Solved, add_times
from dqnitro.lab.where import lab_plan, where

BASELINE, AUTO = "baseline", "auto"
WHAT = {
    BASELINE: "The textbook DQN with the settings of the book.",
    AUTO: "The recipe auto: the rungs and settings that solve a game soonest on this machine.",
}
BELOW = "gradients-everywhere"  # slower than the baseline by design: measured, but no rung builds on it
SAME_RATIO = 0.03  # samples per step within this share count as the same replay ratio


@dataclass
class Stand:
    """A place on the ladder: the rungs in force there and the row below."""

    name: str
    config: Config
    climbed: tuple[str, ...]
    on: str | None  # the row below, with which it is compared
    why: str | None = None  # why it cannot run here
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def promise(self) -> str:
        return {BASELINE: BASELINE, AUTO: "learning"}.get(self.name) or ladder.RUNGS[self.name].promise


def rung_names(config: Config, wanted: Sequence[str] | None, same_learning: bool) -> tuple[str, ...]:
    """The rungs to climb, in order; unknown names are an error with the nearest ones."""
    if wanted is not None:
        names = tuple(dict.fromkeys(wanted))
        for name in names:
            ladder.rung(name)
        return names
    names = ladder.default_climb(config) if same_learning else ladder.full_climb(config)
    return tuple(dict.fromkeys((BELOW, *names)))


def build_all(race: Race, base: Config, names: Sequence[str], more: int = 0) -> list[Stand]:
    """Build every rung that can run. One that cannot is listed with the reason, and the next rung builds on the one
    before it. `more` contenders will follow.
    """
    stands = [Stand(BASELINE, base, (), None)]
    race.expected = 1 + more + sum(place.why is None for place in ladder.path(base, tuple(names)))
    if race.build(BASELINE, base) is None:
        raise ConfigError(f"the baseline cannot run: {race.skipped[BASELINE]}")
    on = stands[0]
    for name in names:
        under = stands[0] if name == BELOW else on
        place = ladder.path(base, (*under.climbed, name))[-1]
        stand = Stand(name, place.config, place.climbed, under.name, place.why)
        if stand.why is None:
            if race.build(name, stand.config) is None:
                stand.why = race.skipped[name]
            elif not ladder.rung(name).detour:
                on = stand
        stands.append(stand)
    return stands


def add_auto(race: Race, game: str, changes: dict[str, Any], stands: list[Stand]) -> None:
    """The recipe `auto` as the last row, compared with the top of the climb."""
    try:
        plan = recipes.plan(AUTO, game, changes.get("device"))
        config = plan.config().replace(**changes)
    except UserError as e:
        return stands.append(Stand(AUTO, stands[0].config, (), BASELINE, str(e)))
    on = next(s for s in reversed(stands) if s.why is None and (s.name == BASELINE or not ladder.rung(s.name).detour))
    stand = Stand(AUTO, config, plan.rungs, on.name)
    if race.build(AUTO, config) is None:
        stand.why = race.skipped[AUTO]
    stands.append(stand)


def take_out_failed(stands: list[Stand], race: Race) -> None:
    """Rungs that failed while running get their reason; rungs on top of them are compared with the next row below."""
    if BASELINE not in race.rates:
        raise ConfigError(f"the baseline cannot run: {race.skipped[BASELINE]}")
    on = {s.name: s.on for s in stands}
    for stand in stands:
        if stand.why is None and stand.name not in race.rates:
            stand.why = race.skipped[stand.name]
        while stand.on is not None and stand.on not in race.rates:
            stand.on = on[stand.on]


def row_of(stand: Stand, race: Race) -> dict[str, Any]:
    """One row of the table, as plain data."""
    rung = ladder.RUNGS.get(stand.name)
    row: dict[str, Any] = {
        "name": stand.name, "promise": stand.promise, "climbed": list(stand.climbed), "on": stand.on,
        "aside": rung.detour if rung else False,
        "what": rung.what if rung else WHAT[stand.name],
        "hurts": rung.hurts if rung else "", "notes_say": rung.notes_say if rung else None,
        "state": "skipped" if stand.why else "measured", "why": stand.why, "solve": None,
    }  # fmt: skip
    if stand.why:
        return row
    rates, racer, baseline = race.rates[stand.name], race.racers[stand.name], race.racers[BASELINE]
    under = race.racers[stand.on] if stand.on else racer
    row |= {
        "fps": rate_interval(rates), "rates": rates, **racer.facts(),
        "gain": ratio_interval(rates, race.rates[stand.on]) if stand.on else None,
        "total": ratio_interval(rates, race.rates[BASELINE]),
        "equal_ratio": same_ratio(racer, baseline), "changes_ratio": not same_ratio(racer, under),
    }  # fmt: skip
    return row


def same_ratio(a: Racer, b: Racer) -> bool:
    """Do both train as many samples per step, up to the updates owed at either end of a turn?"""
    x, y = a.samples_per_step, b.samples_per_step
    return abs(x - y) <= SAME_RATIO * max(x, y) + a.ratio_error + b.ratio_error


def climb_ladder(
    game: str, names: Sequence[str] | None = None, *, same_learning: bool = False, budget: Budget = BUDGET,
    changes: dict[str, Any] | None = None, solved: Sequence[Solved] = (),
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:  # fmt: skip
    """The whole experiment; returns the result in the format of lab/store.py."""
    changes = changes or {}
    base = lab_plan(BASELINE, game, changes).config().replace(**changes)
    wanted = rung_names(base, names, same_learning)
    whole = names is None and not same_learning  # all of the ladder, up to `auto`
    with Race(budget.minutes, say) as race:
        stands = build_all(race, base, wanted, whole)
        if whole:
            add_auto(race, game, changes, stands)
        race.run(budget.rounds, budget.seconds)
        if not race.rounds:
            raise ConfigError("no round was completed", "give more --minutes, or fewer --rungs")
        take_out_failed(stands, race)
        rows = [row_of(stand, race) for stand in stands]
        notes = facts_of(race)
        add_times(rows, {s.name: s for s in stands}, solved)
        result = header(
            "ladder", base.env_id, to=BASELINE, minutes=budget.minutes, rounds=race.rounds, seconds=race.seconds
        )
        notes["where"] = where(changes).text
        return result | {"rows": rows, "notes": notes, "interrupted": race.interrupted}


def top(rows: Sequence[dict[str, Any]], promises: Sequence[str]) -> dict[str, Any] | None:
    """The fastest measured row of the climb itself whose rungs all keep one of these promises."""
    fit = [
        r for r in rows
        if r["state"] == "measured" and r["climbed"] and not r["aside"]
        and r["promise"] in promises and all(ladder.rung(n).promise in promises for n in r["climbed"])
    ]  # fmt: skip
    return max(fit, key=lambda r: r["fps"].mean, default=None)


def headlines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The result in a few sentences: the speed at the top, and the rungs that did not pay here."""
    out = []
    for promises, words in (
        (("exact", "close"), "with learning unchanged"),
        (("exact", "close", "learning"), "with all rungs"),
    ):
        row = top(rows, promises)
        if row is not None:
            t = row["total"]
            out.append(
                f"{words}: {t.mean:.2f}x [{t.low:.2f}, {t.high:.2f}] the baseline's steps a second, at {row['name']}"
            )
    useless = [
        r["name"] for r in rows
        if r["state"] == "measured" and r["gain"] is not None and r["gain"].low <= 1.0 and r["name"] != BELOW
    ]  # fmt: skip
    if useless:
        out.append(f"not measurably faster here than the row below: {', '.join(useless)}")
    return out

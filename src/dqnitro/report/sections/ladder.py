"""The ladder: a chart, a table whose rungs open, and where the time of a step goes on each of them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any

from dqnitro.common.parsing import Interval, interval, items, mapping, number, rows, shares, text
from dqnitro.report import html as h
from dqnitro.report.bar_charts import PROMISES, Bar, Scale, bars, promise_color, promise_legend, time_stacks
from dqnitro.report.formatting import bounds, duration, plural, rate, spread, times
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.sources import ARTICLE, BLOG, BOOK, SENTENCE
from dqnitro.report.table_cells import interval_cell, number_cell

COLUMNS = (
    "rung", "steps/s", "gain", "× baseline", "frames/s", "samples/step", "time to solve", "promise",
)  # fmt: skip
SAME_LEARNING = ("baseline", "exact", "close")


class Rung:
    """One row of a ladder's result."""

    def __init__(self, row: dict[str, Any], number_on_page: str) -> None:
        self.row, self.id = row, number_on_page
        self.name, self.promise = text(row.get("name"), "?"), text(row.get("promise"), "?")
        self.fps, self.gain, self.total = (interval(row.get(k)) for k in ("fps", "gain", "total"))
        self.measured = row.get("state") != "skipped" and self.fps is not None
        self.why = text(row.get("why"), "no reason given")
        self.detour = row.get("aside") is True  # measured in its place, but no later rung builds on it
        self.climbed = [str(n) for n in items(row.get("climbed"))]
        self.solve = mapping(row.get("solve"))
        self.solve_s = interval(self.solve.get("seconds"))

    @property
    def solved(self) -> str:
        """7 min 20 s, projected"""
        return "" if self.solve_s is None else f"{duration(self.solve_s.mean)}, {text(self.solve.get('how'), '?')}"


def rungs_of(result: Result, prefix: str = "ladder") -> list[Rung]:
    return [Rung(row, f"{prefix}-rung-{i}") for i, row in enumerate(rows(result.data.get("rows")))]


def top(rungs: Sequence[Rung], promises: Sequence[str]) -> Rung | None:
    """The fastest rung of the climb whose rungs all keep one of these promises."""
    kept = {r.name: r.promise for r in rungs}
    fit = [
        r
        for r in rungs
        if r.measured
        and r.total
        and r.climbed
        and not r.detour
        and all(kept.get(n, "?") in promises for n in (r.name, *r.climbed))
    ]
    return max(fit, key=lambda r: r.total.mean if r.total else 0.0, default=None)


def title(result: Result) -> str:
    return "The ladder"


def facts(result: Result) -> list[h.Fact]:
    """The textbook's speed, and how much faster the top of the ladder is."""
    out, rungs = [], rungs_of(result)
    base = next((r for r in rungs if r.name == "baseline" and r.fps), None)
    if base is not None and base.fps:
        out.append(("textbook DQN", rate(base.fps.mean), f"steps a second {bounds(base.fps)}"))
    for label, promises in (("same learning", SAME_LEARNING), ("all rungs", (*SAME_LEARNING, "learning"))):
        best = top(rungs, promises)
        if best is not None and best.total is not None:
            out.append((label, times(best.total.mean), f"{bounds(best.total, times)} up to {best.name}".strip()))
    return out


def section(result: Result, name: str, heading: str) -> h.Html:
    rungs = rungs_of(result, name)
    measured = [r for r in rungs if r.measured]
    skipped = [r for r in rungs if not r.measured]
    parts = [
        h.figure(_chart(measured), "No rung of this ladder was measured.", "large"),
        h.table(_table(measured, result)) if measured else h.Html(),
        _skipped(skipped),
        h.figure(_shares(measured), "The time of the phases was not measured.", "large") if measured else h.Html(),
        *(h.paragraph(n, "note") for n in _remarks(result)),
        h.paragraph(_sources(), "note"),
        common.repeat(result),
    ]
    return h.section(heading, *parts, note=_note(result, measured, skipped), name=name)


def _note(result: Result, measured: Sequence[Rung], skipped: Sequence[Rung]) -> str:
    rounds = number(result.data.get("rounds"))
    turns = f" over {rounds:g} interleaved rounds" if rounds else ""
    left = f" {plural(len(skipped), 'rung')} could not run here, for the reasons below." if skipped else ""
    different = any(r.row.get("equal_ratio") is False for r in measured)
    ratio = (
        " Where samples/step is marked, it differs from the baseline's: "
        "part of that speed comes from learning less per step."
        if different
        else ""
    )
    detour = (
        " Pale bars: measured in their place, then removed, so that later rungs do not build on them."
        if any(r.detour for r in measured)
        else ""
    )
    return (
        f"One change at a time, each on top of the ones before it: steps a second, 95% intervals{turns}. "
        f"Gain is the ratio to the rung below.{detour}{ratio}{left}"
    )


def _remarks(result: Result) -> list[str]:
    """How it was measured, as the result says."""
    said = [text(v) for k, v in mapping(result.data.get("notes")).items() if text(v)]
    share = number(mapping(result.data.get("notes")).get("measuring_share"))
    said += [f"measuring took {share:.2%} of the time"] if share is not None else []
    out = [f"{'; '.join(said)[:1].upper()}{'; '.join(said)[1:]}."] if said else []
    stopped = result.data.get("interrupted")
    return [*out, f"Stopped early by {stopped}; only complete rounds count."] if stopped else out


def _sources() -> h.Html:
    """Who the book and the notes are."""
    linked = {k: h.link(s.url, s.title) for k, s in (("book", BOOK), ("blog", BLOG), ("article", ARTICLE))}
    return h.Html(SENTENCE.format(**linked))


def _chart(measured: Sequence[Rung]) -> dict[str, Any] | None:
    base = next((r for r in measured if r.name == "baseline"), None)
    drawn = [
        Bar(
            r.name, r.fps, promise_color(r.promise), _end(r), _facts(r), r.id, strong=r is base, faint=r.detour,
        )
        for r in measured
        if r.fps
    ]  # fmt: skip
    scale = Scale(
        base=(base.fps.mean, "baseline") if base and base.fps else None, switch=True,
        legend=promise_legend([r.promise for r in measured]),
    )  # fmt: skip
    return bars("Steps a second", drawn, scale)


def _end(r: Rung) -> str:
    fps = rate(r.fps.mean) if r.fps else ""
    return fps if r.total is None or r.name == "baseline" else f"{fps} · {times(r.total.mean)}"


def _facts(r: Rung) -> list[tuple[str, str]]:
    """All that was measured, in words."""
    out: list[tuple[str, str]] = []

    def add(label: str, value: Interval | None, say: Any = rate) -> None:
        if value is not None:
            out.append((label, spread(value, say)))

    add("steps a second", r.fps)
    add(f"gain over {text(r.row.get('on'), 'the rung below')}", r.gain, times)
    add("ratio to the baseline", r.total if r.name != "baseline" else None, times)
    for key, label in (
        ("frames_per_s", "console frames a second"),
        ("updates_per_s", "updates a second"),
        ("samples_per_step", "samples a step"),
    ):
        value = _frames(r) if key == "frames_per_s" else number(r.row.get(key))
        if value is not None:
            out.append((label, rate(value)))
    if r.solved:
        out.append(("time to solve", r.solved))
    return out


def _frames(r: Rung) -> float | None:
    """Console frames a second; None where a step is one frame and they say nothing new."""
    return None if number(r.row.get("frames_per_step")) == 1 else number(r.row.get("frames_per_s"))


def _table(measured: Sequence[Rung], result: Result) -> h.Table:
    shown = []
    for r in measured:
        differs = r.row.get("equal_ratio") is False
        samples, frames = number(r.row.get("samples_per_step")), _frames(r)
        cells = (
            h.Cell(r.name, css="rung aside" if r.detour else "rung"),
            interval_cell(r.fps, rate),
            interval_cell(r.gain, times),
            interval_cell(r.total if r.name != "baseline" else None, times),
            number_cell(frames, rate),
            h.Cell("–" if samples is None else f"{samples:,.3g}", samples, "differs" if differs else ""),
            _time(r),
            h.Cell(_dot(r.promise), r.promise),
        )
        shown.append(h.Row(cells, detail=_detail(r, result), name=r.id))
    t = h.Table(COLUMNS, shown, "The ladder", numeric=(1, 2, 3, 4, 5), wide=(2, 4, 5, 6, 7), css="ladder")
    # Columns that are empty on this ladder would only take room.
    return _without(t, [i for i in (4, 5, 6) if all(row.cells[i].sort is None for row in shown)])


def _without(t: h.Table, drop: Sequence[int]) -> h.Table:
    keep = [i for i in range(len(t.columns)) if i not in drop]
    place = {old: new for new, old in enumerate(keep)}
    return h.Table(
        [t.columns[i] for i in keep],
        [h.Row([r.cells[i] for i in keep], r.marked, r.detail, r.name) for r in t.rows],
        t.caption, numeric=[place[i] for i in t.numeric if i in place], wide=[place[i] for i in t.wide if i in place],
        css=t.css,
    )  # fmt: skip


def _time(r: Rung) -> h.Cell:
    if r.solve_s is None:
        return h.Cell("–")
    how = h.esc(text(r.solve.get("how"), "?"))
    return h.Cell(h.Html(f"{duration(r.solve_s.mean)}<small>{how}</small>"), f"{r.solve_s.mean:.6g}")


def _dot(promise: str) -> h.Html:
    return h.Html(f'<span class="key block {promise_color(promise)}">{h.esc(promise)}</span>')


def _detail(r: Rung, result: Result) -> h.Html:
    measured = h.Html(
        f'<ul class="measures">{"".join(f"<li><span>{h.esc(k)}</span> {h.esc(v)}</li>" for k, v in _facts(r))}</ul>'
    )
    source = text(r.solve.get("source"))
    terms = [
        *_words(r),
        ("measured here", measured),
        ("time to solve from", source),
        ("rungs in force", ", ".join(r.climbed)),
        ("in the climb", "measured in its place, then removed: later rungs do not build on it" if r.detour else ""),
    ]
    return h.join(h.described(terms), _commands(r, result))


def _words(r: Rung) -> list[tuple[str, str]]:
    """What is known of a rung without measuring it."""
    about = PROMISES.get(r.promise, ("", ""))[1]
    return [
        ("promise", f"{r.promise}: {about}" if about else r.promise),
        ("what it does", text(r.row.get("what"))),
        ("when it hurts", text(r.row.get("hurts"))),
        ("the notes report", text(r.row.get("notes_say")) or ("" if r.name == "baseline" else "nothing")),
    ]


def _commands(r: Rung, result: Result) -> h.Html:
    """Measuring these rungs alone, and a run with exactly them."""
    if not result.game or (not r.climbed and r.name != "baseline"):
        return h.Html()
    also = [word for n in r.climbed for word in ("--also", n)]
    train = h.command("train", shlex.join(["dqnitro", "train", result.game, "--recipe", "baseline", *also]))
    if not r.climbed:
        return train
    return h.join(
        h.command("measure", shlex.join(["dqnitro", "ladder", result.game, "--rungs", ",".join(r.climbed)])), train
    )


def _skipped(skipped: Sequence[Rung]) -> h.Html:
    if not skipped:
        return h.Html()
    shown = [
        h.Row(
            (h.Cell(r.name, css="rung"), r.why, h.Cell(_dot(r.promise), r.promise)),
            detail=h.described(_words(r)),
            name=r.id,
        )
        for r in skipped
    ]
    head = h.paragraph("Not measured here", "subtitle")
    return h.join(
        head,
        h.table(h.Table(("rung", "reason", "promise"), shown, "Rungs that could not run here", css="ladder skipped")),
    )


def _shares(measured: Sequence[Rung]) -> dict[str, Any] | None:
    parts = {r.name: (share, r.fps.mean if r.fps else None) for r in measured if (share := shares(r.row.get("share")))}
    return time_stacks("Where the time of a step goes", parts)

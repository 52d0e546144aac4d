"""The console compared with ale-py, frame by frame."""

from __future__ import annotations

from dqnitro.common.parsing import number, rows, text
from dqnitro.report import html as h
from dqnitro.report.formatting import game_name, plural
from dqnitro.report.read_result import Result
from dqnitro.report.sections import common
from dqnitro.report.table_cells import shown


def title(result: Result) -> str:
    if told := text(result.data.get("title")):
        return told
    frames = number(result.data.get("frames"))
    return "The console compared with ale-py" + (f" over {plural(int(frames), 'frame')} a game" if frames else "")


def facts(result: Result) -> list[h.Fact]:
    games = rows(result.data.get("games"))
    same = sum(g.get("equal") is True for g in games)
    frames = sum(int(number(g.get("frames")) or 0) for g in games)
    return [("equal", f"{same} of {len(games)}", "games"), ("compared", f"{frames:,}", "frames, byte for byte")]


def section(result: Result, name: str, heading: str) -> h.Html:
    """The console and ale-py after every frame."""
    games = rows(result.data.get("games"))
    same = sum(g.get("equal") is True for g in games)
    frames = sum(int(number(g.get("frames")) or 0) for g in games)
    said = (
        f"{same} of {plural(len(games), 'game')} are equal to ale-py on every frame compared, {frames:,} frames in all."
    )
    cells = [
        h.Row(
            (
                h.Cell(game_name(text(g.get("game"), "?")), css="rung"),
                "equal" if g.get("equal") is True else h.Cell(text(g.get("difference")) or "different", css="differs"),
                h.Cell(shown(g.get("frames")), number(g.get("frames"))),
                h.Cell(shown(g.get("games_started")), number(g.get("games_started"))),
                h.Cell(shown(g.get("rewards")), number(g.get("rewards"))),
            ),
            marked=g.get("equal") is not True,
        )
        for g in games
    ]
    columns = ("game", "result", "frames", "games started", "rewards")
    t = h.Table(columns, cells, heading, filter_label="filter games", numeric=(2, 3, 4), wide=(3, 4), css="long")
    note = "RAM, screen, reward, lives and the end of the game are compared after every frame of random play."
    repeat = common.repeat(result)
    return h.section(
        heading, h.paragraph(said, "verdict"), h.table(t) if cells else h.Html(), repeat, note=note, name=name
    )

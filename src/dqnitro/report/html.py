"""Sections to one HTML file that needs no network. Every function here returns markup that is already escaped.

Only our own script may run: a policy in the head names its hash, so markup that slipped through would not be executed,
and no address can be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import html
import importlib.resources
import json
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dqnitro.report.charts import Chart

CONSOLE_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect width='16' "
    "height='16' rx='3' fill='%231d4ed8'/%3E"
    "%3Cpath d='M3 4h1.6v5H3zM11.4 7H13v5h-1.6zM7.2 7.2h1.6v1.6H7.2z' fill='white'/%3E%3C/svg%3E"
)

STYLES = ("page.css", "lab.css")
SCRIPTS = (
    "elements.js", "scales.js", "explore.js", "xy.js", "stack.js", "strip.js", "tables.js", "bars.js", "page.js",
)  # fmt: skip


class Html(str):
    """Markup. Plain strings become Html only through `esc`."""


@dataclass(frozen=True)
class Cell:
    """A cell of a table: the text shown, the value it sorts by, and a class of page.css."""

    text: Any
    sort: Any = None
    css: str = ""
    share: float | None = None  # drawn as a small bar behind the text, 0 to 1


@dataclass(frozen=True)
class Row:
    """A row of a table; a marked one survives the "only …" switch above the table. A row with a detail opens."""

    cells: Sequence[Any]
    marked: bool = False
    detail: Html | None = None
    name: str = ""  # an id, for charts that lead here


@dataclass(frozen=True)
class Table:
    """A table that sorts by its headings, with a filter where `filter_label` names one."""

    columns: Sequence[str]
    rows: Sequence[Row]
    caption: str
    filter_label: str = ""
    marked_label: str = ""  # text of the switch that leaves only marked rows; it is on when the page opens
    numeric: Sequence[int] = field(default_factory=tuple)  # columns set flush right
    wide: Sequence[int] = field(default_factory=tuple)  # columns that a phone leaves out (the detail has them)
    css: str = ""


Fact = tuple[str, str, str]  # of a headline: label, value, small print


def esc(x: Any) -> Html:
    """Text to markup; markup stays as it is."""
    return x if isinstance(x, Html) else Html(html.escape(str(x), quote=True))


def marked(text: str) -> Html:
    """Text in which `names` in backticks stand as code, as people write notes."""
    return Html(re.sub(r"`([^`]+)`", r"<code>\1</code>", esc(text)))


def join(*parts: Html, sep: str = "") -> Html:
    return Html(sep.join(parts))


def json_block(data: Any) -> Html:
    """Data for page.js. `<` is written as an escape, so no string in it can close the element it stands in."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    for ch in "<>&\u2028\u2029":
        text = text.replace(ch, f"\\u{ord(ch):04x}")
    return Html(f'<script type="application/json">{text}</script>')


def figure(chart: Chart | None, empty: str, size: str = "small") -> Html:
    """A chart, or a sentence in its place."""
    if chart is None:
        return Html(f'<p class="empty">{esc(empty)}</p>')
    return Html(
        f'<figure class="chart {esc(size)}"><figcaption>{esc(chart["title"])}</figcaption>{json_block(chart)}</figure>'
    )


def section(title: str, *parts: Html, note: str = "", name: str = "") -> Html:
    name = name or "".join(ch if ch.isalnum() else "-" for ch in title.lower())
    lead = f'<p class="note">{marked(note)}</p>' if note else ""
    return Html(
        f'<section id="{esc(name)}" aria-labelledby="{esc(name)}-title"><h2 id="{esc(name)}-title">{esc(title)}</h2>'
        f"{lead}{join(*parts)}</section>"
    )


def facts(items: Sequence[Fact]) -> Html:
    """The big numbers of a headline."""
    cells = "".join(
        f"<div><dt>{esc(label)}</dt><dd><b>{esc(value)}</b>{f'<small>{esc(small)}</small>' if small else ''}</dd></div>"
        for label, value, small in items
    )
    return Html(f'<dl class="facts">{cells}</dl>')


def table(t: Table) -> Html:
    tools = ""
    if t.filter_label:
        tools += (
            f'<input type="search" class="filter" placeholder="{esc(t.filter_label)}" '
            f'aria-label="{esc(t.filter_label)}">'
        )
    if t.marked_label:
        tools += f'<label><input type="checkbox" class="only-marked" checked> {esc(t.marked_label)}</label>'
    if tools:
        tools = f'<div class="tools">{tools}<span class="count" role="status"></span></div>'
    head = "".join(
        f'<th scope="col"{_css(_column(t, i))}><button type="button">{esc(name)}</button></th>'
        for i, name in enumerate(t.columns)
    )
    body = "".join(_row(row, t) for row in t.rows)
    return Html(
        f'<div class="table {esc(t.css)}">{tools}<div class="scroll"><table class="sortable">'
        f'<caption class="unseen">{esc(t.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></div>"
    )


def _row(row: Row, t: Table) -> str:
    out = []
    for i, raw in enumerate(row.cells):
        cell = raw if isinstance(raw, Cell) else Cell(raw)
        css = " ".join(c for c in (cell.css, _column(t, i), "" if cell.share is None else "meter") if c)
        sort = "" if cell.sort is None else f' data-sort="{esc(cell.sort)}"'
        bar = "" if cell.share is None else f' style="--share:{100 * min(1.0, max(0.0, cell.share)):.1f}%"'
        text = esc(cell.text)
        if i == 0 and row.detail is not None:
            text = Html(f'<button type="button" class="more" aria-expanded="true">{text}</button>')
        out.append(f"<td{_css(css)}{sort}{bar}>{text}</td>")
    name = f' id="{esc(row.name)}"' if row.name else ""
    detail = "" if row.detail is None else f'<tr class="detail"><td colspan="{len(row.cells)}">{row.detail}</td></tr>'
    return f"<tr{name}{_css('marked' if row.marked else '')}>{''.join(out)}</tr>{detail}"


def _column(t: Table, i: int) -> str:
    return " ".join(c for c, has in (("number", i in t.numeric), ("wide", i in t.wide)) if has)


def _css(name: str) -> str:
    return f' class="{esc(name)}"' if name else ""


def described(terms: Sequence[tuple[str, Any]]) -> Html:
    """Terms with their descriptions; empty ones are left out."""
    pairs = "".join(f"<div><dt>{esc(k)}</dt><dd>{esc(v)}</dd></div>" for k, v in terms if v not in ("", None))
    return Html(f'<dl class="described">{pairs}</dl>')


def details(summary: str, *parts: Html) -> Html:
    """What repeats the chart above it: there for those who want to sort or copy, and out of the way for the others."""
    return Html(f'<details class="figures"><summary>{esc(summary)}</summary>{join(*parts)}</details>')


def paragraph(text: Any, css: str = "") -> Html:
    return Html(f"<p{_css(css)}>{text if isinstance(text, Html) else marked(text)}</p>") if text else Html()


def pair(*parts: Html) -> Html:
    """Two columns on a wide screen."""
    return Html(f'<div class="pair">{join(*parts)}</div>')


def link(url: str, text: str) -> Html:
    """An address to follow; the page itself never fetches it."""
    return Html(f'<a href="{esc(url)}" rel="noreferrer">{esc(text)}</a>')


def contents(groups: Mapping[str, Sequence[tuple[str, str]]]) -> Html:
    """Links to the sections of a long page in groups: heading of a group -> (id of a section, title)."""

    def listed(links: Sequence[tuple[str, str]]) -> str:
        return "".join(f'<li><a href="#{esc(name)}">{esc(title)}</a></li>' for name, title in links)

    shown = "".join(
        f'<div><p class="group">{esc(group)}</p><ul>{listed(links)}</ul></div>'
        for group, links in groups.items()
        if links
    )
    return Html(f'<nav class="contents" aria-label="sections">{shown}</nav>')


def command(label: str, text: str) -> Html:
    """A command to copy."""
    return Html(
        f'<div class="command"><span>{esc(label)}</span><code tabindex="0">{esc(text)}</code>'
        '<button type="button" class="copy">copy</button></div>'
    )


def video(path: pathlib.Path, page: pathlib.Path, caption: str, embed_bytes: int) -> Html:
    """A video of a game: inside the page if it is small, linked otherwise."""
    if path.stat().st_size <= embed_bytes:
        source = "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode("ascii")
    else:
        from urllib.parse import quote

        source = quote(pathlib.Path(os.path.relpath(path, page.parent)).as_posix())
    still = poster(path)
    shown = f'poster="{still}" ' if still else ""
    # No autoplay: motion makes the rest of the page hard to read.
    return Html(
        f'<figure class="video"><video controls loop muted playsinline preload="metadata" {shown}src="{esc(source)}" '
        f'aria-label="{esc(caption)}"></video><figcaption>{esc(caption)}</figcaption></figure>'
    )


def poster(path: pathlib.Path) -> str:
    """A picture from the middle of a video as a data address: the first frame of a game shows nothing. Empty if it
    cannot be read.
    """
    try:
        import av
        import cv2

        with av.open(str(path)) as film:
            stream = film.streams.video[0]
            film.seek((film.duration or 0) // 2)  # to the key frame before it
            frame = next(film.decode(stream))
            picture = frame.to_ndarray(format="bgr24")
            wide = picture.repeat(round(stream.sample_aspect_ratio or 1), axis=1)  # as players show it
            ok, jpeg = cv2.imencode(".jpg", wide, [cv2.IMWRITE_JPEG_QUALITY, 80])
    except Exception:  # optional: a page without a still is a page
        return ""
    return "data:image/jpeg;base64," + base64.b64encode(jpeg.tobytes()).decode("ascii") if ok else ""


def axis_switch(axes: Mapping[str, str], name: str = "x-axis") -> Html:
    """A switch for the x axis of all charts that have both; every switch of a page needs a name of its own."""
    options = "".join(
        f'<label><input type="radio" class="x-axis" name="{esc(name)}" '
        f'value="{esc(k)}"{" checked" if i == 0 else ""}><span>{esc(v)}</span></label>'
        for i, (k, v) in enumerate(axes.items())
    )
    return Html(f'<fieldset class="switch"><legend>over</legend>{options}</fieldset>')


def document(title: str, header: Html, sections: Sequence[Html], footer: Html, refresh_s: float = 0.0) -> str:
    """The whole file. With `refresh_s` it fetches itself again, from where it came, after that many seconds."""
    css, script = style(), program()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "media-src 'self' data: file:; base-uri 'none'; form-action 'none'"
        + ("; connect-src 'self'" if refresh_s else "")
    )
    live = f' data-refresh="{refresh_s:g}"' if refresh_s else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{esc(policy)}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{esc(title)}</title>
<link rel="icon" href="{CONSOLE_ICON}">
<style>{css}</style>
</head>
<body{live}>
<a class="skip" href="#content">skip to the charts</a>
<header><button type="button" id="theme" hidden aria-label="switch between light and dark">◐</button>{header}</header>
<main id="content">
<noscript><p class="empty">The charts are drawn by a script in this file; scripts are switched off in this browser.</p>
</noscript>
{join(*sections, sep=chr(10))}
</main>
<footer>{footer}</footer>
<script>{script}</script>
</body>
</html>
"""


def style() -> str:
    return "".join(asset(name) for name in STYLES)


def program() -> str:
    """All files of the script as one: a file may use what stands in those before it, and nothing leaves the closure."""
    return '"use strict";\n(() => {\n' + "\n".join(asset(name) for name in SCRIPTS) + "})();\n"


def asset(name: str) -> str:
    return importlib.resources.files("dqnitro.report").joinpath("assets", name).read_text(encoding="utf-8")


def write_page(path: pathlib.Path, text: str) -> None:
    """Atomic: a reader sees the old page or the new one."""
    tmp = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        tmp.write_bytes(text.encode("utf-8", "replace"))  # JSON can hold half a surrogate pair, UTF-8 cannot
        tmp.replace(path)
    except OSError:
        tmp.unlink(missing_ok=True)
        raise

"""The page of runs and results in a real browser: charts, rows that open, switches, sorting, keyboard, phone, dark,
print.
"""

import pathlib
from collections.abc import Iterator

import pytest

from dqnitro.report.html import write_page
from dqnitro.report.lab_page import render_lab
from dqnitro.report.read_result import read_sources
from report import fake_results
from report.chromium import Chromium, find_chromium
from report.test_read_result import several_runs

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium here (Debian: apt-get install chromium; or set CHROMIUM=/path/to/it)"
)

LADDER = "#ladder figure.chart"
FIRST_COLUMN = (
    "[...document.querySelectorAll('#ladder .ladder:not(.skipped) tbody tr:not(.detail)')].map((r) "
    "=> r.cells[0].innerText.trim())"
)
VISIBLE_DETAILS = "[...document.querySelectorAll('tr.detail')].filter((r) => r.offsetParent).length"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    b = Chromium(tmp_path_factory.mktemp("profile"))
    yield b
    b.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Every kind of result and four runs."""
    folder = tmp_path_factory.mktemp("lab")
    runs, results = read_sources([*fake_results.write(folder / "results"), *several_runs(folder / "runs")])
    path = folder / "page.html"
    write_page(path, render_lab(runs, results, path))
    assert path.stat().st_size < 3_000_000
    return path


@pytest.fixture
def opened(browser: Chromium, page: pathlib.Path) -> Iterator[Chromium]:
    browser.open(page)
    yield browser
    assert browser.errors == []


def tip(b: Chromium, figure: str = LADDER) -> str:
    return b.js(
        f"(() => {{ const t = document.querySelector('{figure} .tip'); return t.hidden ? '' : t.innerText; }})()"
    )


def test_opens_from_a_file_without_an_error_or_a_request(opened: Chromium, page: pathlib.Path) -> None:
    assert [u for u in opened.requests if not u.startswith("data:")] == [page.resolve().as_uri()]
    assert opened.js("document.querySelector('h1').textContent") == "Speed lab", "of several games"


def test_every_chart_has_data_and_no_broken_number(opened: Chromium) -> None:
    points = opened.js("[...document.querySelectorAll('figure.chart')].map((f) => +f.dataset.points)")
    assert len(points) > 15 and all(n > 0 for n in points)
    assert opened.js(f"document.querySelectorAll('{LADDER}:first-of-type .bar-value').length") >= len(
        fake_results.CLIMB
    )
    drawn = "[...document.querySelectorAll('svg *')].flatMap((e) => [...e.attributes].map((a) => a.value))"
    assert not opened.js(f"{drawn}.some((v) => /NaN|Infinity|undefined/.test(v))")
    assert opened.js("document.querySelectorAll('#learning-1 path.band').length") == 1


def test_longer_bars_are_faster_rungs(opened: Chromium) -> None:
    opened.js(f"document.querySelector('{LADDER} input[value=linear]').click()")
    widths = opened.js(
        f"[...document.querySelector('{LADDER}').querySelectorAll('.bar-value')].map((r) => +r.getAttribute('width'))"
    )
    speeds = [fps for _, _, fps, _ in fake_results.CLIMB]
    assert [w / widths[0] for w in widths] == pytest.approx([s / speeds[0] for s in speeds], rel=0.01)


def test_hovering_a_rung_shows_its_measurement(opened: Chromium) -> None:
    assert tip(opened) == ""
    opened.hover(f"{LADDER} .bar-value:nth-of-type(9)")
    assert "steps a second" in tip(opened) and "ratio to the baseline" in tip(opened)
    before = tip(opened)
    opened.hover(f"{LADDER} .row-value")
    assert tip(opened).startswith("baseline") and tip(opened) != before


def test_arrow_keys_go_from_rung_to_rung_and_enter_opens_one(opened: Chromium) -> None:
    opened.js(f"document.querySelector('{LADDER} .plot').focus()")
    opened.press("Home")
    assert tip(opened).startswith("baseline")
    opened.press("ArrowDown")
    opened.press("ArrowDown")
    said = opened.js(f"document.querySelector('{LADDER} [aria-live]').textContent")
    assert said.startswith("frame-replay: steps a second 33")
    opened.press("Enter")
    assert opened.js(VISIBLE_DETAILS) == 1
    assert opened.js("document.activeElement.innerText") == "frame-replay"
    opened.press("Enter")
    assert opened.js(VISIBLE_DETAILS) == 0


def test_linear_and_log(opened: Chromium) -> None:
    scale = f"document.querySelector('{LADDER}').dataset.scale"
    ticks = f"[...document.querySelector('{LADDER}').querySelectorAll('.x-tick')].map((t) => t.textContent)"
    assert opened.js(scale) == "log" and "0" not in opened.js(ticks)
    opened.js(f"document.querySelector('{LADDER} input[value=linear]').click()")
    assert opened.js(scale) == "linear" and opened.js(ticks)[0] == "0"


def test_a_rung_opens_and_tells_all(opened: Chromium) -> None:
    assert opened.js(VISIBLE_DETAILS) == 0
    opened.js("document.querySelectorAll('#ladder .more')[3].click()")
    text = opened.js("[...document.querySelectorAll('tr.detail')].find((r) => r.offsetParent).innerText")
    for words in (
        "exact: the same run, bit for bit",
        "What console does",
        "Where there is nothing to gain",
        "the notes report",
        "gain over frame-replay 1.24×",
        "dqnitro ladder pong --rungs frame-replay,console",
        "dqnitro train pong --recipe baseline --also frame-replay --also console",
    ):
        assert words in text
    assert opened.js("document.querySelectorAll('#ladder .more')[3].getAttribute('aria-expanded')") == "true"


def test_sorting_keeps_details_with_their_rungs(opened: Chromium) -> None:
    names = [n for n, *_ in fake_results.CLIMB]
    assert opened.js(FIRST_COLUMN) == names
    click = "document.querySelectorAll('#ladder .ladder th button')[1].click()"
    opened.js(click)
    opened.js(click)
    by_speed = [n for n, _, fps, _ in sorted(fake_results.CLIMB, key=lambda c: -c[2])]
    assert opened.js(FIRST_COLUMN) == by_speed
    opened.js("document.querySelector('#ladder .more').click()")
    text = opened.js("[...document.querySelectorAll('tr.detail')].find((r) => r.offsetParent).innerText")
    assert f"What {by_speed[0]} does" in text


def test_what_has_no_number_sorts_last_both_ways(opened: Chromium) -> None:
    head = (
        "[...document.querySelectorAll('#ladder .ladder:not(.skipped) th button')].find((b) => "
        "b.innerText.startsWith('time to'))"
    )
    for _ in range(2):
        opened.js(f"{head}.click()")
        cells = opened.js(
            "[...document.querySelectorAll('#ladder .ladder:not(.skipped) tbody tr:not(.detail)')].map((r) => "
            "r.cells[6].innerText)"
        )
        assert [c == "–" for c in cells] == sorted(c == "–" for c in cells)


def test_time_a_step_and_shares(opened: Chromium) -> None:
    figure = "[...document.querySelectorAll('#ladder figure.chart')].at(-1)"
    ends = (
        f"[...{figure}.querySelectorAll('.bar-value')].reduce((m, r) => Math.max(m, +r.getAttribute('x') + "
        "+r.getAttribute('width')), 0)"
    )
    assert "33.3 ms" in opened.js(f"{figure}.textContent")
    first = opened.js(ends)
    opened.js(f"{figure}.querySelector('input[value=share]').click()")
    assert opened.js(f"{figure}.dataset.as") == "share" and opened.js(ends) == pytest.approx(first, abs=3)
    assert opened.js(f"[...{figure}.querySelectorAll('.x-tick')].at(-1).textContent") == "100"


def test_all_switches_of_the_x_axis_move_together(opened: Chromium) -> None:
    opened.js("document.querySelector('#learning-1 input[value=steps]').click()")
    assert opened.js("document.querySelector('#sweep input[value=steps]').checked")
    assert opened.js(
        "[...new Set([...document.querySelectorAll('#learning-1 figure, #sweep figure.large')].map((f) => "
        "f.dataset.axis))]"
    ) == ["steps"]
    opened.hover("#sweep figure.large .plot", 0.6)
    shown = opened.js("document.querySelector('#sweep figure.large .tip').innerText")
    assert "steps" in shown and "n_envs 8 (3 seeds)" in shown and "[" in shown


def test_the_mean_over_seeds_shows_its_interval(opened: Chromium) -> None:
    opened.hover("#learning-1 .plot", 0.3)
    shown = opened.js("document.querySelector('#learning-1 .tip').innerText")
    assert "auto (3 seeds)" in shown and "baseline" in shown and shown.count("[") == 1
    opened.hover("#learning-1 .plot", 0.97)  # the baseline ended long before
    assert "baseline" not in opened.js("document.querySelector('#learning-1 .tip').innerText")


def test_commands_can_be_copied(opened: Chromium) -> None:
    opened.js("document.querySelector('#ablate .copy').click()")
    assert opened.js("getSelection().toString()") == "dqnitro ablate fast"


def test_tab_reaches_charts_switches_rungs_and_tables(opened: Chromium) -> None:
    seen = set()
    for _ in range(45):
        opened.press("Tab")
        seen.add(opened.js("document.activeElement.className || document.activeElement.tagName"))
    assert {"A", "plot", "more", "INPUT", "BUTTON"} <= seen


@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True), (768, False)])
def test_nothing_sticks_out_on_a_small_screen(browser: Chromium, page: pathlib.Path, width: int, dark: bool) -> None:
    browser.open(page, width=width, height=800, dark=dark)
    browser.js("document.querySelectorAll('.more').forEach((b) => b.click())")
    assert browser.js("document.documentElement.scrollWidth") <= width
    assert browser.errors == []
    if width == 390:
        table = "document.querySelector('#ladder .scroll')"
        assert browser.js(f"{table}.scrollWidth <= {table}.clientWidth"), "the ladder itself must not scroll on a phone"


def test_dark_and_light_have_readable_bars(browser: Chromium, page: pathlib.Path) -> None:
    seen = []
    for dark in (False, True):
        browser.open(page, dark=dark)
        seen.append(
            browser.js(
                "[getComputedStyle(document.body).backgroundColor, "
                "getComputedStyle(document.querySelector('.bar-value')).fill]"
            )
        )
    assert seen[0][0] != seen[1][0] and seen[0][1] != seen[1][1] and all(paper != bar for paper, bar in seen)


def test_it_prints_with_all_details_open(browser: Chromium, page: pathlib.Path) -> None:
    browser.open(page)
    browser.call("Emulation.setEmulatedMedia", media="print")
    details = len(fake_results.CLIMB) + len(fake_results.SKIPPED)
    assert (
        browser.js(
            "[...document.querySelectorAll('tr.detail')].filter((r) => getComputedStyle(r).display !== 'none').length"
        )
        == details
    )
    browser.call("Emulation.setEmulatedMedia", media="")

"""The page in a real browser: it opens from a file, draws, answers pointer and keyboard, switches, sorts, filters."""

import pathlib
import threading
import time
from collections.abc import Iterator

import pytest

from dqnitro.cli import watch
from dqnitro.report import write_run_page
from report import fake_run
from report.chromium import Chromium, find_chromium

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="no Chromium here (Debian: apt-get install chromium; or set CHROMIUM=/path/to/it)"
)

LARGE = "figure.chart.large"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    b = Chromium(tmp_path_factory.mktemp("profile"))
    yield b
    b.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return write_run_page(fake_run.make_run(tmp_path_factory.mktemp("runs") / "pong", n_games=300))


@pytest.fixture
def opened(browser: Chromium, page: pathlib.Path) -> Iterator[Chromium]:
    browser.open(page)
    yield browser
    assert browser.errors == []


def test_opens_from_a_file_without_an_error_or_a_request(opened: Chromium, page: pathlib.Path) -> None:
    assert [u for u in opened.requests if not u.startswith("data:")] == [page.resolve().as_uri()]
    assert opened.js("document.title") == "Pong · auto · DQNitro"


def test_charts_have_data_points(opened: Chromium) -> None:
    points = opened.js("[...document.querySelectorAll('figure.chart')].map((f) => +f.dataset.points)")
    assert points == [900, 600, 300, 600, 6, 30]
    assert opened.js(f"document.querySelector('{LARGE} path.dots').getTotalLength() >= 0")
    assert opened.js(f"document.querySelector('{LARGE} path.dots').getAttribute('d').split('M').length - 1") == 300
    assert opened.js("[...document.querySelectorAll('svg path')].every((p) => !p.getAttribute('d').includes('NaN'))")


def test_hovering_shows_the_values_under_the_pointer(opened: Chromium) -> None:
    assert opened.js(f"document.querySelector('{LARGE} .tip').hidden")
    opened.hover(f"{LARGE} .plot", 0.3)
    early = opened.js(f"document.querySelector('{LARGE} .tip').innerText")
    opened.hover(f"{LARGE} .plot", 0.9)
    late = opened.js(f"document.querySelector('{LARGE} .tip').innerText")
    assert early != late and all(w in late for w in ("min", "steps", "score of a game", "mean of the last 100"))
    opened.hover("figure.chart .bar > div:nth-child(4)")
    assert "49.0%" in opened.js("[...document.querySelectorAll('.holder .tip')].find((t) => !t.hidden).innerText")
    assert opened.js(f"document.querySelector('{LARGE} .tip').hidden")


def test_arrow_keys_show_values_and_say_them(opened: Chromium) -> None:
    opened.js(f"document.querySelector('{LARGE} .plot').focus()")
    said = []
    for key in ("Home", "ArrowRight", "End"):
        opened.press(key)
        said.append(opened.js(f"document.querySelector('{LARGE} [aria-live]').textContent"))
    assert len(set(said)) == 3 and "score of a game" in said[0] and "19 min 40 s" in said[2]
    opened.press("Escape")
    assert opened.js(f"document.querySelector('{LARGE} .tip').hidden")


def test_tab_reaches_every_control(opened: Chromium) -> None:
    seen = set()
    for _ in range(60):
        opened.press("Tab")
        seen.add(opened.js("document.activeElement.className || document.activeElement.id"))
    assert {"theme", "x-axis", "plot", "filter", "only-marked", "copy"} <= seen


def test_the_axis_switches_for_all_charts(opened: Chromium) -> None:
    ticks = f"[...document.querySelectorAll('{LARGE} .x-tick')].map((t) => t.textContent).join(' ')"
    assert "min" in opened.js(ticks)
    opened.js("document.querySelector('input[name=x-axis][value=steps]').click()")
    assert "k" in opened.js(ticks) and "min" not in opened.js(ticks)
    axes = opened.js("[...new Set([...document.querySelectorAll('figure[data-axis]')].map((f) => f.dataset.axis))]")
    assert axes == ["steps"]


def test_a_table_sorts_by_number_and_by_word_both_ways(opened: Chromium) -> None:
    column = (
        "[...document.querySelectorAll('.settings tbody tr')].map((r) => r.cells[{0}].dataset.sort ?? "
        "r.cells[{0}].textContent)"
    )
    click = "document.querySelectorAll('.settings th button')[{}].click()"
    opened.js(click.format(0))
    names = opened.js(column.format(0))
    assert names == sorted(names, key=lambda n: n.replace("_", " "))
    opened.js(click.format(1))
    opened.js(click.format(1))
    values = opened.js(column.format(1))
    numbers = [float(v) for v in values if v.replace(".", "").replace("-", "").replace("e", "").isdigit()]
    assert len(numbers) > 20 and numbers == sorted(numbers, reverse=True)
    assert opened.js("document.querySelectorAll('.settings th')[1].getAttribute('aria-sort')") == "descending"


def test_settings_filter(opened: Chromium) -> None:
    shown = "[...document.querySelectorAll('.settings tbody tr')].filter((r) => r.offsetParent).length"
    assert opened.js(shown) == 9
    opened.js("document.querySelector('.only-marked').click()")
    assert opened.js(shown) > 40
    opened.js(
        "(() => { const f = document.querySelector('.filter'); f.value = 'Epsilon decay'; "
        "f.dispatchEvent(new Event('input')); })()"
    )
    assert opened.js(shown) == 2 and "2 of" in opened.js("document.querySelector('.count').textContent")


def test_light_and_dark_by_system_and_by_hand(browser: Chromium, page: pathlib.Path) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    browser.open(page, dark=True)
    dark = browser.js(paper)
    browser.js("document.getElementById('theme').click()")
    light = browser.js(paper)
    browser.js("localStorage.clear()")
    browser.open(page)
    assert browser.js(paper) == light != dark
    browser.js("document.getElementById('theme').click()")
    assert browser.js(paper) == dark
    browser.js("localStorage.clear()")


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_sticks_out_on_a_small_screen(browser: Chromium, page: pathlib.Path, width: int) -> None:
    browser.open(page, width=width, height=800)
    assert browser.js("document.documentElement.scrollWidth") <= width
    assert browser.errors == []


@pytest.mark.parametrize("state", ["bare", "one game", "evil", "long"])
def test_unusual_runs_open_without_an_error(browser: Chromium, tmp_path: pathlib.Path, state: str) -> None:
    evil = "</script><script>document.title='broken'</script><img src=x onerror=\"document.title='broken'\">"
    if state == "bare":
        fake_run.write_head(tmp_path)
    else:
        fake_run.make_run(tmp_path, n_games={"one game": 1, "evil": 5, "long": 8_000}[state])
    if state == "evil":
        fake_run.write_head(
            tmp_path, recipe=evil, config={**fake_run.pong_config().to_dict(), "envs": evil}, command=evil
        )
    browser.open(write_run_page(tmp_path))
    assert browser.errors == [] and browser.js("document.title") != "broken"
    assert browser.js("[...document.querySelectorAll('svg path')].every((p) => !p.getAttribute('d').includes('NaN'))")
    if state == "long":
        assert "of 8,000 shown" in browser.js(f"document.querySelector('{LARGE} .legend').textContent")


def test_it_prints_on_white_with_its_charts(browser: Chromium, page: pathlib.Path) -> None:
    browser.open(page, dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.js("getComputedStyle(document.getElementById('theme')).display") == "none"
    assert len(browser.call("Page.printToPDF")["data"]) > 20_000
    browser.call("Emulation.setEmulatedMedia", media="")


def wait_until(browser: Chromium, condition: str) -> None:
    end = time.monotonic() + 30
    while not browser.js(condition):
        assert time.monotonic() < end, condition
        time.sleep(0.02)


def test_a_live_page_follows_the_run_and_stops_with_it(
    browser: Chromium, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "REFRESH_S", 0.05)
    run = tmp_path / "pong"
    lines = fake_run.metric_lines(300, 1_000.0)
    fake_run.write_head(run)
    fake_run.write_summary(run, "running")
    (run / "metrics.jsonl").write_text("\n".join(lines[:300]) + "\n")
    server = watch.serve(watch.Page(run, None), 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        browser.open_url(f"http://127.0.0.1:{server.server_address[1]}/")
        assert browser.js("document.querySelector('.state').textContent") == "running"
        before = browser.js(f"+document.querySelector('{LARGE}').dataset.points")
        browser.js("document.querySelector('input.x-axis[value=steps]').click()")
        browser.js("document.querySelector('#settings .filter').value = 'seed'")
        with (run / "metrics.jsonl").open("a") as file:
            file.write("\n".join(lines[300:]) + "\n")
        wait_until(browser, f"+document.querySelector('{LARGE}').dataset.points > {before}")
        assert browser.js(f"document.querySelector('{LARGE}').dataset.axis") == "steps"
        assert browser.js("document.querySelector('#settings .filter').value") == "seed", "what somebody typed stays"
        fake_run.write_summary(run, "solved", wall_s=1_000.0, steps=9)
        wait_until(browser, "document.querySelector('.state').textContent === 'solved'")
        seen = len(browser.requests)
        time.sleep(0.3)
        assert len(browser.requests) <= seen + 1, "a run that has ended is not asked for again"
        assert browser.errors == []
    finally:
        server.shutdown()
        server.server_close()

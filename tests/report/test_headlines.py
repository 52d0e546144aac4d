"""Every kind of page begins with its facts, and folds the table that repeats its chart."""

import json
import pathlib
import re

import pytest

from dqnitro.report.lab_page import render_lab
from dqnitro.report.read_result import read_sources
from dqnitro.report.sections import SECTIONS
from report import fake_results

RESULTS = sorted((pathlib.Path(__file__).resolve().parents[2] / "results").glob("*.json"))
# By hand from fake_results.py.
EXPECTED = {
    "ladder": [("textbook DQN", "30"), ("same learning", "3.37×"), ("all rungs", "20.4×")],
    "solve": [
        ("baseline: median time to solve", "40 min 00 s"),
        ("auto: median time to solve", "15.0 s"),
        ("ratio", "160×"),
    ],
    "sweep": [("best score", "450"), ("steps a second", "1,286"), ("values", "4")],
    "search": [("best human-normalised score", "0.8"), ("the recipe as it is", "0.3"), ("trials", "4")],
    "ablate": [("steps a second", "100"), ("missed most", "bfloat16"), ("within the noise", "1 of 4")],
    "cost": [("loss", "66%"), ("optimiser", "20%"), ("sampling", "9%")],
    "bench": [("fastest", "21,600"), ("ratio", "1.80×"), ("contenders", "4")],
    "profile": [("learning", "60%"), ("environment", "25%"), ("acting", "10%")],
    "tune": [("auto, tuned", "2.40×"), ("fast, tuned", "2.40×"), ("tried", "6")],
    "compare": [("mean score", "18.1"), ("mean score", "16.2"), ("p", "0.003")],
    "console": [("1 thread", "2.10×"), ("2 threads", "2.10×"), ("faster", "6 of 6")],
    "exact": [("equal", "2 of 3"), ("compared", "900")],
    "chaos": [("faults", "200"), ("cost something", "1")],
    "atari": [("median", "0.90"), ("interquartile mean", "0.90"), ("above human", "1 of 2")],
    "peers": [("dqnitro", "23.0 s"), ("stable-baselines3", "over 1 min 30 s")],
    "beside": [("Breakout, dqnitro", "+39.5"), ("Breakout, stable-baselines3", "+8.5")],
    "trial": [("settings", "8"), ("highest at the end", "-7")],
}


def headline(page: str) -> list[tuple[str, str]]:
    (facts,) = re.findall(r'<dl class="facts">(.*?)</dl>', page.split("<section")[0], re.S)
    return re.findall(r"<dt>(.*?)</dt><dd><b>(.*?)</b>", facts)


@pytest.mark.parametrize("kind", sorted(set(SECTIONS) - {"record"}))
def test_the_page_of_one_result_begins_with_its_facts(kind: str, tmp_path: pathlib.Path) -> None:
    (file,) = fake_results.write(tmp_path, kind)
    runs, results = read_sources([file])
    assert headline(render_lab(runs, results, tmp_path / "page.html")) == EXPECTED[kind]


def test_a_result_about_many_games_is_not_named_after_one(tmp_path: pathlib.Path) -> None:
    for kind in ("console", "exact"):
        (file,) = fake_results.write(tmp_path, kind)
        file.write_text(json.dumps({**json.loads(file.read_text()), "game": "pong"}))
        assert "<h1>Speed lab</h1>" in render_lab(*read_sources([file]), tmp_path / "page.html")


def test_several_results_without_a_ladder_have_the_first_fact_of_each(tmp_path: pathlib.Path) -> None:
    runs, results = read_sources(fake_results.write(tmp_path, "exact", "cost"))
    page = render_lab(runs, results, tmp_path / "page.html")
    assert set(headline(page)) == {EXPECTED["exact"][0], EXPECTED["cost"][0]}


@pytest.mark.parametrize("file", RESULTS, ids=lambda p: p.stem)
def test_every_stored_result_has_facts(file: pathlib.Path) -> None:
    runs, results = read_sources([file])
    page = render_lab(runs, results, file.with_suffix(".html"))
    told = re.findall(r'<dl class="facts">(.*?)</dl>', page, re.S)
    assert any("<b>" in facts for facts in told)


@pytest.mark.parametrize("kind", ["ablate", "cost", "console", "compare", "tune", "bench", "sweep"])
def test_a_table_that_repeats_the_chart_is_folded(kind: str, tmp_path: pathlib.Path) -> None:
    runs, results = read_sources(fake_results.write(tmp_path, kind))
    page = render_lab(runs, results, tmp_path / "page.html")
    section = page.split(f'id="{kind}"')[1].split("</section>")[0]
    without = re.sub(r'<details class="figures">.*?</details>', "", section, flags=re.S)
    assert "<table" in section and "<table" not in without


@pytest.mark.parametrize("kind", sorted(SECTIONS))
def test_facts_survive_a_result_without_numbers(kind: str, tmp_path: pathlib.Path) -> None:
    """Whatever is in it may be of another type, or missing."""
    (file,) = fake_results.write(tmp_path, kind)
    whole = json.loads(file.read_text())
    for key in list(whole):
        if key in ("format", "what"):
            continue
        for damage in (None, [], {}, "text", [None], {"a": None}):
            _, results = _read(tmp_path / file.name, {**whole, key: damage})
            for result in results:
                assert all(len(fact) == 3 for fact in SECTIONS[result.kind].facts(result))


def _read(file: pathlib.Path, data: dict):
    from dqnitro.errors import ConfigError

    file.write_text(json.dumps(data))
    try:
        return read_sources([file])
    except ConfigError:  # no result at all any more
        return [], []

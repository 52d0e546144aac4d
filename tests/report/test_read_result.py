"""Results of the lab on a page: every kind, old ones, damaged ones, and runs among them."""

import json
import math
import pathlib
import random
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dqnitro.cli import main
from dqnitro.common.host import command
from dqnitro.common.parsing import Interval, interval
from dqnitro.errors import ConfigError
from dqnitro.report import seed_groups
from dqnitro.report.bar_charts import Bar, Scale, bars, time_stacks
from dqnitro.report.formatting import spread, times
from dqnitro.report.lab_page import render_lab
from dqnitro.report.read_result import FORMAT, KINDS, read_sources
from dqnitro.store.read_run import read_run
from report import fake_results, fake_run
from report.test_page import EVIL, JUNK, Tags

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORED = sorted((ROOT / "results").glob("*.json"))


def page_of(*paths: pathlib.Path) -> str:
    runs, results = read_sources(list(paths))
    return render_lab(runs, results, pathlib.Path("page.html"))


def charts_of(text: str) -> list[dict]:
    return [json.loads(s) for s in Tags(text).scripts[:-1]]


def test_every_kind_has_a_section_with_its_command(tmp_path: pathlib.Path) -> None:
    assert set(fake_results.ALL) == {*KINDS, "bench"}
    for path in fake_results.write(tmp_path):
        text = page_of(path)
        command = json.loads(path.read_text()).get("command")
        assert f'<section id="{path.stem}"' in text and (charts_of(text) or path.stem in ("profile", "exact", "chaos"))
        assert command is None or command in Tags(text).text


@pytest.mark.parametrize("path", STORED, ids=lambda p: p.name)
def test_stored_results_stay_readable(path: pathlib.Path) -> None:
    text = Tags(page_of(path)).text
    command = json.loads(path.read_text()).get("command")
    assert command is None or command.replace("`", "") in text, "names in backticks are shown as code"


def test_stored_results_are_there() -> None:
    assert {"learn-2-cores.json", "console-2-cores.json", "cartpole-90s.json"} <= {p.name for p in STORED}
    assert any(p.name.startswith("exact-") for p in STORED)


def test_the_format_read_is_the_one_written() -> None:
    store = pytest.importorskip("dqnitro.lab.store", reason="this version has no lab/store.py to write results")
    assert store.FORMAT == FORMAT


def test_the_ladder_tells_what_was_measured_and_what_could_not_be(tmp_path: pathlib.Path) -> None:
    text = page_of(*fake_results.write(tmp_path, "ladder"))
    words = Tags(text).text
    for name, _, fps, _ in fake_results.CLIMB:
        assert f"What {name} does" in words and f"{fps:.0f}[" in words
    for name, _, why in fake_results.SKIPPED:
        assert name in words and why in words
    chart, shares = charts_of(text)
    assert [r["label"] for r in chart["rows"]] == [n for n, *_ in fake_results.CLIMB]
    assert chart["base"] == {"value": 30, "label": "baseline"} and chart["scale"] == "log" and chart["scales"]
    assert [r["label"] for r in chart["rows"] if r["faint"]] == ["gradients-everywhere"] and "Pale bars" in words
    assert {r["color"] for r in chart["rows"]} == {"c1", "c2", "c3", "c6"}
    ids = set(re.findall(r'<tr id="([^"]+)"', text))
    assert {r["target"] for r in chart["rows"]} <= ids
    assert sum(p["value"] for p in shares["rows"][0]["parts"]) == pytest.approx(1000 / 30, rel=1e-3)
    assert "9 h 15 min<small>projected</small>" in text and "1.4 times the frames a second" in words


def test_the_headline_takes_the_best_of_each_promise(tmp_path: pathlib.Path) -> None:
    words = Tags(page_of(*fake_results.write(tmp_path, "ladder"))).text
    assert re.search(r"same learning3\.37×\[3\.27, 3\.47\] up to bfloat16", words)
    assert re.search(r"all rungs20\.4×\[19\.8, 21\.0\] up to small-network", words)


def test_a_fast_learning_rung_below_spoils_the_same_learning(tmp_path: pathlib.Path) -> None:
    data = fake_results.ladder()
    # An exact rung that stands on a learning one is no evidence for "same learning".
    data["rows"][-3]["promise"] = "exact"
    (tmp_path / "l.json").write_text(json.dumps(data))
    assert re.search(r"same learning3\.37×", Tags(page_of(tmp_path / "l.json")).text)


def test_what_stands_aside_is_not_the_top_of_the_climb(tmp_path: pathlib.Path) -> None:
    data = fake_results.ladder()
    data["rows"][6]["aside"] = True
    (tmp_path / "l.json").write_text(json.dumps(data))
    assert re.search(
        r"same learning1\.83×\[1\.78, 1\.89\] up to channels-last", Tags(page_of(tmp_path / "l.json")).text
    )


def test_a_benchmark_shows_its_own_columns_and_its_verdict(tmp_path: pathlib.Path) -> None:
    text = Tags(page_of(*fake_results.write(tmp_path, "bench"))).text
    for words in (
        "largest difference",
        "21,600",
        "1.80×[1.75, 1.87]",
        "up to 31 grey levels off",
        "CUDA no CUDA device here",
    ):
        assert words in text


def test_trainers_are_told_by_their_median_and_what_they_solved(tmp_path: pathlib.Path) -> None:
    (file,) = fake_results.write(tmp_path, "peers")
    page = page_of(file)
    words = Tags(page).text
    assert "dqnitro23.0 smedian CPU time, 5 of 5 seeds solved" in words
    assert "over 1 min 30 s" in words and "0 of 1 seed solved" in words
    (chart,) = charts_of(page)
    assert [(r["label"], r["value"], r["low"], r["high"]) for r in chart["rows"]] == [
        ("dqnitro", 23, 21, 25), ("stable-baselines3", 90, 90, 90),
    ]  # fmt: skip
    assert "the last 100 training games reaches 475" in words
    assert "ends unsolved after 80,000 steps or 1 min 30 s of CPU time" in words
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "limit_s": 300.0, "limit_cpu_s": None, "max_steps": None}))
    words = Tags(page_of(file)).text
    assert "dqnitro40.0 smedian, 5 of 5" in words and "unsolved after 5 min 00 s" in words, "wall clock, as it was"


def test_tuning_tells_what_was_chosen_for_each_recipe(tmp_path: pathlib.Path) -> None:
    page = page_of(*fake_results.write(tmp_path, "tune"))
    text = Tags(page).text
    for recipe in ("Auto", "Fast"):
        assert (
            f"{recipe}: torch threads 2; rungs bfloat16; 2.40× [2.33, 2.47] the speed of the recipe as it is." in text
        )
    assert "rung with console no compiler here" in text and page.count('<tr class="marked">') == 4


def test_two_results_of_a_kind_have_names_of_their_own(tmp_path: pathlib.Path) -> None:
    a, b = tmp_path / "first.json", tmp_path / "second.json"
    for path in (a, b):
        path.write_text(json.dumps(fake_results.ladder()))
    text = page_of(a, b)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids)) and "The ladder: first" in text and "The ladder: second" in text


def test_machines_that_differ_are_called_so(tmp_path: pathlib.Path) -> None:
    one, other = fake_results.write(tmp_path, "bench", "tune")
    warning = "different machines"
    assert warning not in page_of(one, other)
    data = json.loads(other.read_text())
    data["machine"]["cpu"] = "Another"
    other.write_text(json.dumps(data))
    assert warning in page_of(one, other)


def test_nothing_a_result_says_becomes_markup(tmp_path: pathlib.Path) -> None:
    def evil(x: object) -> object:
        if isinstance(x, dict):
            return {k: evil(v) if k not in ("what", "state", "promise") else v for k, v in x.items()}
        if isinstance(x, list):
            return [evil(v) for v in x]
        return EVIL if isinstance(x, str) else x

    for kind, make in fake_results.ALL.items():
        clean, bad = tmp_path / "clean.json", tmp_path / "bad.json"
        clean.write_text(json.dumps(make()))
        bad.write_text(json.dumps({**evil(make()), "faster_peer": EVIL}))  # type: ignore[dict-item]
        tags = Tags(page_of(bad))
        assert not any(t == "img" or any(n.startswith("on") for n in a) for t, a in tags.tags), kind
        count = len([t for t, _ in tags.tags if t == "script"])
        assert count <= len([t for t, _ in Tags(page_of(clean)).tags if t == "script"]), kind


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_content_of_a_result_stops_the_page(tmp_path: pathlib.Path, data: st.DataObject) -> None:
    """Some values of a good result replaced by anything, at any depth."""
    kind = data.draw(st.sampled_from(list(fake_results.ALL)))
    result = json.loads(json.dumps(fake_results.ALL[kind]()))
    for _ in range(data.draw(st.integers(1, 4))):
        place = result
        while True:
            keys = [k for k in (place if isinstance(place, dict) else range(len(place))) if k not in ("what", "format")]
            if not keys:
                break
            key = data.draw(st.sampled_from(keys))
            if isinstance(place[key], dict | list) and place[key] and data.draw(st.integers(0, 3)):
                place = place[key]
                continue
            place[key] = data.draw(JUNK)
            break
    path = tmp_path / "x.json"
    path.write_text(json.dumps(result))
    try:
        text = page_of(path)
    except ConfigError:
        assert result.get("what") is None or result["what"] == "resize"  # kinds that are known by their shape alone
        return
    for script in Tags(text).scripts[:-1]:
        json.loads(script, parse_constant=lambda name: pytest.fail(f"{name} in the page's data"))


# ---------- runs by recipe


def several_runs(folder: pathlib.Path) -> list[pathlib.Path]:
    out = []
    for seed in (1, 2, 3):
        run = fake_run.make_run(folder / f"auto-{seed}", n_games=60, seconds=100 + 20 * seed)
        fake_run.write_head(run, config=fake_run.pong_config(seed=seed, max_minutes=seed * 1.0).to_dict())
        out.append(run)
    slow = fake_run.make_run(folder / "slow", n_games=30, seconds=50, state="minutes")
    fake_run.write_head(slow, recipe="baseline", config=fake_run.pong_config(n_envs=1).to_dict())
    return [*out, slow]


def test_runs_that_differ_only_in_the_seed_are_one_curve_with_a_band(tmp_path: pathlib.Path) -> None:
    runs = [read_run(p) for p in several_runs(tmp_path)]
    found = seed_groups.group_runs(runs)
    assert [(g.label, len(g.runs)) for g in found] == [("auto", 3), ("baseline", 1)]
    chart = seed_groups.learning_curves(found)
    assert chart is not None and [s["name"] for s in chart["series"]] == ["auto (3 seeds)", "baseline"]
    for axis in ("wall_s", "steps"):
        auto, slow = (s["curves"][axis] for s in chart["series"])
        assert all(low <= y <= high for low, y, high in zip(auto["low"], auto["y"], auto["high"], strict=True))
        assert "low" not in slow and len(slow["x"]) == seed_groups.GRID
    # Solved runs keep their last value, so the mean goes on to the slowest of them.
    assert (
        chart["series"][0]["curves"]["wall_s"]["x"][-1] == 160 and chart["series"][1]["curves"]["wall_s"]["x"][-1] == 50
    )


def test_groups_of_one_recipe_say_in_what_they_differ(tmp_path: pathlib.Path) -> None:
    for name, n_envs in (("a", 4), ("b", 8)):
        run = fake_run.make_run(tmp_path / name, n_games=5, seconds=5)
        fake_run.write_head(run, config=fake_run.pong_config(n_envs=n_envs).to_dict())
    found = seed_groups.group_runs([read_run(tmp_path / n) for n in ("a", "b")])
    assert [g.label for g in found] == ["auto, n_envs 4", "auto, n_envs 8"]


def test_a_median_ends_where_the_first_line_ends_unless_it_is_held() -> None:
    lines = [([0.0, 10.0], [0.0, 10.0]), ([0.0, 20.0], [0.0, 40.0])]
    cut = seed_groups.band(lines)
    assert cut is not None and cut["x"][-1] == 10 and cut["y"][-1] == pytest.approx(15)
    held = seed_groups.band(lines, [True, False])
    assert held is not None and held["x"][-1] == 20 and held["y"][-1] == pytest.approx(25)
    assert seed_groups.band([([1.0], [1.0])]) is None and seed_groups.band([]) is None
    assert seed_groups.band([([0.0, 1.0], [0, 1]), ([5.0, 6.0], [0, 1])]) is None


def test_the_band_of_few_seeds_goes_from_the_lowest_to_the_highest() -> None:
    shown = seed_groups.band([([0.0, 1.0], [v, v]) for v in (1.0, 2.0, 6.0)])
    assert shown is not None and (shown["low"][0], shown["y"][0], shown["high"][0]) == (1, 2, 6), (
        "the lucky one does not lift it"
    )


def test_the_ranks_of_the_interval_are_those_of_the_sign_test() -> None:
    """By hand: 2 / 2**6 is 3.1% outside; of nine values 20 / 512 = 3.9% with one left out on each side."""
    known = {2: 0, 3: 0, 5: 0, 6: 0, 8: 0, 9: 1, 11: 1, 12: 2, 15: 3, 20: 5, 100: 39}
    for n, left_out in known.items():
        values = [float(v) for v in range(n)]
        shown = seed_groups.band([([0.0, 1.0], [v, v]) for v in values])
        assert shown is not None and (shown["low"][0], shown["high"][0]) == (left_out, n - 1 - left_out), n


@pytest.mark.parametrize("seeds", [6, 9, 15])
def test_the_band_holds_the_true_median_as_often_as_it_says(seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_groups, "GRID", 2)
    rng, inside, trials = random.Random(5), 0, 200
    for _ in range(trials):
        lines = [([0.0, 1.0], [v := rng.gauss(0, 1), v]) for _ in range(seeds)]
        shown = seed_groups.band(lines)
        assert shown is not None
        inside += shown["low"][0] <= 0 <= shown["high"][0]
    assert 0.91 <= inside / trials <= 1.0


# ---------- charts


def test_bars_on_a_log_scale_need_values_above_zero() -> None:
    many = [Bar("a", Interval(1, 0.9, 1.1, 3)), Bar("b", Interval(100, 90, 110, 3))]
    wide = bars("t", many, Scale(switch=True))
    assert wide is not None and (wide["scale"], wide["scales"]) == ("log", True)
    below = bars("t", [*many, Bar("c", Interval(-1, -2, 0, 3))], Scale(switch=True))
    assert below is not None and (below["scale"], below["scales"]) == ("linear", False)
    assert bars("t", []) is None


def test_time_is_shown_as_shares_where_a_speed_is_unknown() -> None:
    chart = time_stacks("t", {"a": ({"env": 0.5, "learn": 0.5}, 100.0), "b": ({"env": 1.0}, None)})
    assert chart is not None and chart["unit"] == "" and chart["rows"][0]["parts"][0]["value"] == 0.5
    known = time_stacks("t", {"a": ({"env": 0.5, "learn": 0.5}, 100.0)})
    assert known is not None and known["unit"] == "ms" and known["rows"][0]["parts"][0]["value"] == 5


def test_intervals_out_of_files() -> None:
    assert interval({"mean": 2, "low": 1, "high": 3, "n": 5}) == Interval(2, 1, 3, 5)
    assert interval({"mean": 2}) == Interval(2, 2, 2, 1)
    assert interval(None) is interval({"mean": math.nan}) is interval({"low": 1}) is None
    assert spread(Interval(1.234, 1.1, 1.3, 4), times) == "1.23× [1.10, 1.30]"


# ---------- the command


def test_one_result_goes_beside_its_file_and_several_into_one_page(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, other = fake_results.write(tmp_path, "ladder", "bench")
    run = fake_run.make_run(tmp_path / "r", n_games=5, seconds=5)
    (run / "page.html").write_text("the run's own page")
    assert main(["report", str(one)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'ladder.html'}\n"
    assert main(["report", str(one), str(other), str(run), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["page"] == "report.html" and [r["what"] for r in facts["results"]] == ["ladder", "resize"]
    assert facts["runs"][0]["games"] == 5 and facts["bytes"] < 3_000_000
    assert '<a href="r/page.html">r</a>' in (tmp_path / "report.html").read_text()


def test_a_video_of_a_run_is_shown_on_the_page_of_several(tmp_path: pathlib.Path) -> None:
    runs = several_runs(tmp_path)
    assert "<video" not in page_of(*runs)
    (runs[1] / "game.mp4").write_bytes(b"\0" * 1000)
    assert 'src="data:video/mp4;base64,AAAA' in page_of(*runs)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "not JSON"),
        (b"\xff{", "not JSON"),
        (b"[1]", "not a result"),
        (b'{"what": "ladder", "format": 2, "rows": []}', "format 2"),
        (b'{"what": "ladder", "format": "x"}', "format 'x'"),
        (b'{"what": "a kind of the future", "format": 1}', "a kind of the future"),
        (b"{}", "no kind is given"),
    ],
)
def test_a_file_that_is_no_result_is_one_line_with_a_hint(
    tmp_path: pathlib.Path, content: bytes, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert main(["report", str(path)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "hint:" in err and word in err


def test_a_command_that_was_run_as_a_module_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/somewhere/dqnitro/__main__.py", "bench", "a b"])
    assert command() == "dqnitro bench 'a b'"
    monkeypatch.setattr("sys.argv", ["/somewhere/tests/chaos/__main__.py", "--jobs", "4"])
    assert command() == "python -m chaos --jobs 4", "another program is not called by our name"
    monkeypatch.setattr("sys.argv", ["/somewhere/bin/dqnitro", "env"])
    assert command() == "dqnitro env"

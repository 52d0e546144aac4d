"""The section of many games: curves beside published ones, videos, marks of other protocols."""

import json

from dqnitro.report.lab_page import render_lab
from dqnitro.report.read_result import read_sources
from report import fake_results
from report.test_read_result import charts_of


def page_of(tmp_path, **changes):
    path = tmp_path / "atari.json"
    path.write_text(json.dumps({**fake_results.atari(), **changes}))
    return render_lab([], read_sources([path])[1], tmp_path / "page.html")


def test_every_game_has_a_chart_with_the_published_curve_as_far_as_it_helps(tmp_path):
    breakout, qbert = charts_of(page_of(tmp_path))
    assert (breakout["title"], qbert["title"]) == ("Breakout", "Q*bert")
    assert [s["name"] for s in breakout["series"]] == ["here (2 seeds)", "DQN, published"]
    assert max(breakout["series"][1]["curves"]["frames"]["x"]) == 4e6, "not as far as 200 million, where ours end early"
    assert [s["name"] for s in qbert["series"]] == ["here (2 seeds)"]


def test_the_page_tells_the_numbers_the_protocol_and_the_sources(tmp_path):
    text = page_of(tmp_path)
    assert "<h1>Atari</h1>" in text and "above human" in text and "interquartile mean" in text
    assert "DQN *" in text and "* Another protocol (Somebody). no-op starts: no there, yes here." in text
    assert "somebody/agents data/GAME.json at aaaaaaaaaaaa" in text and "Atari in 10 minutes a game" in text
    assert "<video" not in text, "no run has one"


def test_the_first_video_of_each_game_is_shown(tmp_path):
    rows = fake_results.atari()["rows"]
    for run in rows[0]["runs"]:
        run["run_dir"] = str(tmp_path / f"s{run['seed']}")
    (tmp_path / "s2").mkdir()
    (tmp_path / "s2" / "game.mp4").write_bytes(b"film")
    rows[1]["runs"][0]["run_dir"] = "a\0b"
    text = page_of(tmp_path, rows=rows)
    assert text.count("<video") == 1 and "Breakout, seed 2" in text and "data:video/mp4;base64,ZmlsbQ==" in text
    (tmp_path / "s2" / "game.mp4").write_bytes(bytes(1_000_001))
    assert 'src="s2/game.mp4"' in page_of(tmp_path, rows=rows), "a long one is linked"


def test_a_result_without_a_finished_game_says_so(tmp_path):
    text = page_of(tmp_path, curves=[], in_all={"fresh": None, "training": None})
    assert charts_of(text) == [] and "No game ended, so there is no curve." in text

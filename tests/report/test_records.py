"""Records on a page: headline facts, medians, tables, published scores, and commands that run."""

import json
import pathlib
import re
import shlex

import pytest

from dqnitro.cli import main
from dqnitro.report.charts import speed_curve, time_shares
from dqnitro.report.html import paragraph, poster
from dqnitro.report.lab_page import render_lab
from dqnitro.report.read_result import Result, read_sources
from dqnitro.report.run_page import render_run
from dqnitro.report.sections import SECTIONS, common, record, trial
from report import fake_run

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "results"


def stored(name: str) -> Result:
    _, (result,) = read_sources([RESULTS / name])
    return result


def test_several_seeds_are_told_by_their_medians():
    result = stored("pong-h200.json")
    assert result.kind == "record" and record.title(result) == "Pong on NVIDIA H200: 5 seeds"
    assert record.facts(result)[:4] == [
        ("solved", "5 of 5", "seeds"),
        ("median time to solve", "14.2 s", "13.2 s to 20.3 s over 5 seeds"),
        ("median steps to solve", "562,786", "541,480 to 751,779 over 5 seeds"),
        ("median score in ale-py", "19.4", "18.2 to 20.0 over 5 seeds, 100 games each"),
    ]
    text = record.section(result, "record", "x")
    assert text.split("Published scores")[0].count("<tr>") == 6 and "wall_s" in text and "[19.8, 20.2]" in text


def test_a_seed_that_was_not_solved_counts_as_slower_than_all_others(tmp_path):
    data = json.loads((RESULTS / "pong-h200.json").read_text())
    for r in data["runs"][:3]:
        r["ended"] = "minutes"
    result = Result(tmp_path, "record", data)
    assert [f[0] for f in record.facts(result)][:2] == ["solved", "median score in ale-py"]
    assert "(not solved)" in record.section(result, "record", "x")


def test_several_games_have_a_chart_each_and_published_scores_beside():
    result = stored("classic-h200.json")
    told = {label: value for label, value, _ in record.facts(result)}
    assert told["above published DQN"] == "5 of 5" and told["above published DQN (Adam + MSE in JAX)"] == "2 of 5"
    text = record.section(result, "record", "x")
    assert text.count('<figure class="chart small">') == 5 and "DQN, published: 2,111" in text
    assert "Space Invaders" in text and "[6,891, 8,051]" in text


@pytest.mark.parametrize("name", ["pong-h200.json", "classic-h200.json", "pong-auto-2-cores.json"])
def test_the_commands_of_a_record_run(name):
    result = stored(name)
    from dqnitro.cli.train import make_parser

    text = record.section(result, "record", "x")
    commands = [part.split("</code>")[0] for part in text.split('<code tabindex="0">')[1:]]
    assert len(commands) == len(result.data["runs"])
    for command in commands:
        program, what, *args = shlex.split(command)
        parsed = make_parser().parse(args)
        assert (program, what) == ("dqnitro", "train") and parsed.game and parsed.game.islower()


@pytest.mark.parametrize(
    ("command", "base", "remark"),
    [
        ("dqnitro ladder pong --minutes 7", "dqnitro ladder pong --minutes 7", ""),
        ("dqnitro train pong --seed N (recipe auto)", "dqnitro train pong --seed N", "recipe auto"),
        ("dqnitro train GAME --minutes 8, five at once", "dqnitro train GAME --minutes 8", "five at once"),
        ("dqnitro bench gpu --only 'own kernels,1,024'", "dqnitro bench gpu --only 'own kernels,1,024'", ""),
        ("python examples/own_pieces.py --seeds 5", "python examples/own_pieces.py --seeds 5", ""),
        ("a throw-away script", "", "a throw-away script"),
    ],
)
def test_a_remark_is_told_from_the_command_before_it(command, base, remark):
    assert common.split_command(command) == (base, remark)


def test_seeds_timed_from_prompt_to_prompt_are_a_record(tmp_path):
    result = stored("pong-prompt-h200.json")
    assert result.kind == "record"
    facts = {label: (value, about) for label, value, about in record.facts(result)}
    assert facts["median time to solve"][0] == "11.0 s" and facts["from prompt to prompt"][0] == "26.3 s"
    assert facts["from prompt to prompt"][1].endswith("over 4 seeds; 1 min 03 s the first time on a machine")
    page = render_lab([], [result], tmp_path / "p.html")
    assert "dqnitro train pong --seed 12 --json</code>" in page and "bands the range" not in page
    head = page.split("</thead>")[0]
    assert "prompt to prompt" in head and "fresh games" in head and "start-up" not in head and "in ale-py" not in head


def test_published_scores_stand_beside_seeds_of_a_game():
    shown = record.section(stored("pong-h200.json"), "record", "Pong")
    beside = shown.split("Published scores, each by its own rules")[1]
    assert "here, median in ale-py" in beside and "Rainbow" in beside and "Cleanba" in beside
    assert beside.index("19.4") < beside.index("Rainbow") and "2.3" in beside, "its score and million frames first"


def test_a_mean_without_bounds_is_shown_without_an_interval():
    result = stored("console-steps-h200.json")  # two rounds, of which only the means were kept
    assert "11.7×" in (shown := SECTIONS["bench"].section(result, "bench", "x")) and "[11.7, 11.7]" not in shown
    assert "[1.00, 1.00]" not in SECTIONS["bench"].section(stored("ray-cost-2-cores.json"), "bench", "x")


def test_what_cannot_be_run_has_no_copy_button():
    script = Result(pathlib.Path("x.json"), "trial", {"command": "a throw-away script"})
    assert "copy" not in common.repeat(script) and "Made with: a throw-away script" in common.repeat(script)
    one = Result(pathlib.Path("x.json"), "trial", {"command": "dqnitro play RUN --games 3"})
    assert "copy" not in common.repeat(one)


def test_contents_are_in_groups_with_human_titles(tmp_path):
    _, results = read_sources(sorted(RESULTS.glob("*.json"))[:3])
    runs, results = read_sources(sorted(RESULTS.glob("*.json")))
    page = render_lab(runs, results, tmp_path / "p.html")
    contents = page.split('<nav class="contents"')[1].split("</nav>")[0]
    groups = [part.split("</p>")[0] for part in contents.split('<p class="group">')[1:]]
    assert groups == ["Speed-ups", "Records and runs", "Benchmarks", "Exactness and faults", "Settings", "Sources"]
    assert contents.index("Pong on NVIDIA H200: 5 seeds") < contents.index("Recipe classic on one H200")
    assert ".json" not in contents and "trial-1" not in contents
    titles = re.findall(r'<a href="#[^"]*">(.*?)</a>', contents)
    assert len(set(titles)) == len(titles) and all(t[0] == t[0].upper() and "h200" not in t for t in titles)
    assert "The ladder on 2 cores" in titles and "The ladder on NVIDIA H200" in titles
    assert "The console compared with ale-py over 10,000 frames a game" in titles
    assert "Faults made on purpose: drift" in titles and "<h1>Speed lab</h1>" in page
    facts = page.split('<dl class="facts">')[1].split("</dl>")[0]
    assert "14.2 s" in facts and "15 min 17 s" in facts


def test_seeds_of_a_setting_that_was_tried_are_one_curve():
    result = stored("pong-settings-trial-3.json")
    names = list(result.data["curve"])
    settings = {re.sub(r", seed \d+$", "", n) for n in names}
    assert len(settings) < len(names) / 2
    page = trial.section(result, "trial", "x")
    chart = json.loads(page.split('<script type="application/json">')[1].split("</script>")[0])
    assert len(chart["series"]) == len(settings) and trial.facts(result)[0][1] == str(len(settings))
    banded = [s for s in chart["series"] if s["name"].endswith("seeds)")]
    assert banded and all("low" in s["curves"]["steps"] for s in banded)


def test_notes_show_names_in_backticks_as_code():
    assert paragraph("`a<b` and `startup_s`; ` <i>") == (
        "<p><code>a&lt;b</code> and <code>startup_s</code>; ` &lt;i&gt;</p>"
    )


def gpu_run(tmp_path: pathlib.Path, runner: str):
    path = fake_run.make_run(tmp_path / runner, n_games=20)
    head = json.loads((path / "config.json").read_text())
    head["config"]["runner"] = runner
    (path / "config.json").write_text(json.dumps(head))
    runs, _ = read_sources([path])
    return runs[0]


def test_a_gpu_that_works_on_its_own_gets_no_share_that_misleads(tmp_path):
    on_cpu, on_gpu = gpu_run(tmp_path, "inline"), gpu_run(tmp_path, "hybrid")
    assert time_shares(on_cpu)["title"] == "Where the time goes"
    assert time_shares(on_gpu)["title"] == "Where the host's time goes"
    assert "of the time learning" in render_run(on_cpu, tmp_path / "p.html")
    page = render_run(on_gpu, tmp_path / "p.html")
    assert "of the time learning" not in page and "do not say how busy the GPU is" in page
    assert "No run on a CPU reported" in render_lab([on_gpu, on_gpu], [], tmp_path / "p.html")


def test_the_first_fill_does_not_set_the_scale_of_the_speed(tmp_path):
    path = fake_run.make_run(tmp_path / "r", n_games=20)
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    progress = [r for r in rows if r["event"] == "progress"]
    for r in progress[:3]:
        r |= {"updates": 0, "steps_per_s": 1e6}
    (path / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    runs, _ = read_sources([path])
    chart = speed_curve(runs[0])
    now = next(s for s in chart["series"] if s["name"] == "at the moment")
    assert len(now["y"]) == 16 and max(now["y"]) < 1e5 and chart["y"] == "steps/s"
    # Nor does it by way of the mean: that counts from where the filling had ended.
    mean = next(s for s in chart["series"] if s["name"] == "since the first update")
    a, b = progress[3], progress[-1]
    expected = (b["steps"] - a["steps"]) / (b["wall_s"] - a["wall_s"])
    assert mean["y"][-1] == pytest.approx(expected, rel=1e-3)


def test_a_video_shows_a_frame_of_its_middle(tmp_path):
    import base64

    import cv2
    import numpy as np

    from dqnitro.play import VideoWriter

    film = VideoWriter(tmp_path / "game.mp4", 60.0)
    for k in range(600):
        film(np.full((210, 160, 3), 0 if k < 200 else 200, np.uint8))
    film.close()
    kind, data = poster(tmp_path / "game.mp4").split(",")
    picture = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_COLOR)
    assert kind == "data:image/jpeg;base64" and picture.mean() > 150
    (tmp_path / "broken.mp4").write_text("no film")
    assert poster(tmp_path / "broken.mp4") == ""


def test_the_page_of_a_record_is_written(tmp_path, capsys):
    assert main(["report", str(RESULTS / "pong-h200.json"), "--out", str(tmp_path / "p.html")]) == 0
    assert "median time to solve" in (tmp_path / "p.html").read_text()

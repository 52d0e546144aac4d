"""The file: complete in every state, escaped, small, self-contained, written at once or not at all."""

import importlib.resources
import json
import pathlib
import re
import subprocess
import sys
import time
from collections.abc import Iterable
from html.parser import HTMLParser

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dqnitro.cli import main
from dqnitro.config import FIELDS
from dqnitro.errors import CheckpointError
from dqnitro.report import write_run_page
from dqnitro.report.html import SCRIPTS, STYLES, esc, json_block, program, style
from dqnitro.report.run_page import EMBED_BYTES, STATES, duration, game_name, rate
from dqnitro.store.read_run import EVENTS
from dqnitro.store.run_folder import RunFolder
from report import fake_run

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'&\u2028<!--"


class Tags(HTMLParser):
    """What a browser would see: elements, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data
        elif self.tags and self.tags[-1][0] != "style":
            self.text += data


def page_of(run: pathlib.Path) -> str:
    return write_run_page(run).read_text(encoding="utf-8")


@pytest.mark.parametrize("state", [*STATES, "a state of the future"])
def test_every_state_has_a_page_that_says_so(tmp_path: pathlib.Path, state: str) -> None:
    run = fake_run.make_run(tmp_path / "r", n_games=20, seconds=10)
    fake_run.write_summary(run, "running" if state == "crashed" else state)
    trainer = RunFolder(run)
    if state == "running":
        trainer.lock()
    assert STATES.get(state, ("", state))[1] in Tags(page_of(run)).text


def test_a_run_without_anything_has_a_page_that_says_what_is_missing(tmp_path: pathlib.Path) -> None:
    fake_run.write_head(tmp_path, config={})
    text = Tags(page_of(tmp_path)).text
    assert "No game has ended yet." in text and "crashed" in text and "Unknown Game" in text
    assert "<video" not in page_of(tmp_path) and "Score over fresh games" not in text


def test_a_run_of_one_game_and_one_of_damaged_lines(tmp_path: pathlib.Path) -> None:
    run = fake_run.make_run(tmp_path / "r", n_games=1, seconds=1)
    with (run / "metrics.jsonl").open("a") as f:
        f.write("}{\n}{\n")
    text = Tags(page_of(run)).text
    assert "1 game ·" in text and "2 damaged lines" in text


def test_headline_numbers_and_commands(tmp_path: pathlib.Path) -> None:
    run = fake_run.make_run(tmp_path / "a run", n_games=300, seconds=1_180)
    text = Tags(page_of(run)).text
    for words in (
        "Pong",
        "solved",
        "19 min 40 s",
        "time to solve",
        "plus 21.4 s start-up",
        "30 fresh games",
        "0123456789ab",
    ):
        assert words in text
    assert "dqnitro train pong --recipe auto" in text
    assert f"dqnitro train --resume '{run}'" in text


def test_a_diverged_run_with_nan_losses_still_draws(tmp_path: pathlib.Path) -> None:
    run = fake_run.make_run(tmp_path / "r", n_games=20, seconds=10, state="diverged")
    with (run / "metrics.jsonl").open("a") as f:
        f.write('{"event": "loss", "wall_s": 10, "steps": 9, "updates": 9, "loss": NaN, "avg_loss": Infinity}\n')
    for script in Tags(page_of(run)).scripts[:-1]:
        json.loads(script, parse_constant=lambda name: pytest.fail(f"{name} in the page's data"))


def test_nothing_a_file_says_becomes_markup(tmp_path: pathlib.Path) -> None:
    clean = Tags(page_of(fake_run.make_run(tmp_path / "clean", n_games=5, seconds=5)))
    run = fake_run.make_run(tmp_path / "evil", n_games=5, seconds=5)
    config = {**fake_run.pong_config().to_dict(), "env_id": EVIL, "envs": EVIL, EVIL: [EVIL, {EVIL: EVIL}]}
    fake_run.write_head(
        run, config=config, recipe=EVIL, rungs=[EVIL], command=EVIL, commit=EVIL, started=EVIL,
        machine={EVIL: EVIL, "memory_gib": EVIL}, versions={EVIL: EVIL},
    )  # fmt: skip
    summary = json.loads((run / "summary.json").read_text())
    summary |= {"state": EVIL, "updated": EVIL, "share": {EVIL: 1.0}, "video": {"score": EVIL}}
    (run / "summary.json").write_text(json.dumps(summary))
    evil = Tags(page_of(run))
    count = {tag: sum(t == tag for t, _ in evil.tags) for tag in ("script", "img", "figure", "section")}
    assert count == {tag: sum(t == tag for t, _ in clean.tags) for tag in count}
    assert not any(name.startswith("on") for _, attrs in evil.tags for name in attrs)
    assert "alert(1)" in evil.text and EVIL in json.dumps(
        [json.loads(s) for s in evil.scripts[:-1]], ensure_ascii=False
    ).replace('\\"', '"')


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
HEAD = ("recipe", "rungs", "started", "machine", "versions", "commit", "command")
SUMMARY = (
    "state", "pid", "updated", "wall_s", "startup_s", "steps", "updates", "games", "mean_score", "steps_per_s",
    "frames_per_s", "share", "evaluation", "video",
)  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_content_of_the_files_stops_the_page(tmp_path: pathlib.Path, data: st.DataObject) -> None:
    def some(names: Iterable[str]) -> dict[str, object]:
        return {n: data.draw(JUNK) for n in data.draw(st.sets(st.sampled_from(list(names)), max_size=4))}

    fake_run.write_head(tmp_path, config={**fake_run.pong_config().to_dict(), **some(FIELDS)}, **some(HEAD))
    fake_run.write_summary(tmp_path, "minutes", **{k: v for k, v in some(SUMMARY).items() if k != "state"})
    event = data.draw(st.sampled_from(list(EVENTS)))
    rows = [{"event": event, "wall_s": 1, "steps": k, **some((*EVENTS[event], "share"))} for k in range(3)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    for script in Tags(page_of(tmp_path)).scripts[:-1]:
        json.loads(script, parse_constant=lambda name: pytest.fail(f"{name} in the page's data"))


def test_escapes() -> None:
    assert esc(EVIL).count("<") == 0 and '"' not in esc(EVIL)
    block = json_block({"a": EVIL})
    assert block.count("<") == 2 and json.loads(block[block.index(">") + 1 : -len("</script>")]) == {"a": EVIL}


def test_assets_cannot_close_their_own_element() -> None:
    assert "</" not in program() and "</" not in style()


def test_every_asset_is_in_the_page() -> None:
    folder = importlib.resources.files("dqnitro.report").joinpath("assets")
    assert sorted(f.name for f in folder.iterdir()) == sorted((*SCRIPTS, *STYLES))


def test_the_page_asks_for_nothing_from_outside(tmp_path: pathlib.Path) -> None:
    text = page_of(fake_run.make_run(tmp_path / "r", n_games=5, seconds=5))
    for _, attrs in Tags(text).tags:
        for name in ("src", "href"):
            assert not re.match(r"(https?:)?//", attrs.get(name) or "")
    assert "@import" not in text and not re.search(r"url\(\s*['\"]?(https?:)?//", text)
    assert "default-src 'none'" in text.replace("&#x27;", "'")


def test_a_long_run_stays_small_and_quick(tmp_path: pathlib.Path) -> None:
    run = tmp_path / "r"
    fake_run.make_run(run, n_games=10, seconds=10)
    lines = fake_run.metric_lines(40_000, 200_000.0)
    assert len(lines) == 120_000
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    begin = time.process_time()
    page = write_run_page(run)
    assert time.process_time() - begin < 20  # a second and a half on an idle core
    assert page.stat().st_size < 3_000_000 / 4


def test_a_short_video_is_inside_and_a_long_one_beside(tmp_path: pathlib.Path) -> None:
    run = fake_run.make_run(tmp_path / "run 1", n_games=5, seconds=5)
    (run / "game.mp4").write_bytes(b"\0" * 1000)
    assert 'src="data:video/mp4;base64,AAAA' in page_of(run)
    with (run / "game.mp4").open("r+b") as f:
        f.truncate(EMBED_BYTES + 1)
    assert 'src="game.mp4"' in page_of(run)
    elsewhere = write_run_page(run, tmp_path / "page.html")
    assert 'src="run%201/game.mp4"' in elsewhere.read_text()


def test_settings_that_differ_are_marked(tmp_path: pathlib.Path) -> None:
    text = page_of(fake_run.make_run(tmp_path / "r", n_games=5, seconds=5))
    marked = re.findall(r'<tr class="marked"><td class="name">(\w+)', text)
    assert marked == [
        "envs", "n_envs", "learning_rate", "n_step", "double", "loss", "steps_per_update", "wrappers", "stop_at_score",
    ]  # fmt: skip


def test_an_old_page_survives_a_failure_and_no_scraps_stay(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fake_run.make_run(tmp_path / "r", n_games=5, seconds=5)
    before = page_of(run)

    def fail(self: pathlib.Path, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "replace", fail)
    with pytest.raises(OSError, match="No space"):
        write_run_page(run)
    assert (run / "page.html").read_text() == before and not list(run.glob(".page*"))


def test_the_command_writes_and_prints_where(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = fake_run.make_run(tmp_path / "r", n_games=5, seconds=5)
    assert main(["report", str(run)]) == 0
    assert capsys.readouterr().out == f"{run / 'page.html'}\n"
    assert main(["report", str(run), "--out", str(tmp_path / "x.html"), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["page"] == str(tmp_path / "x.html") and facts["bytes"] == (tmp_path / "x.html").stat().st_size
    assert facts["state"] == "solved" and facts["games"] == 5


@pytest.mark.parametrize(
    "args", [[], ["nowhere"], ["RUN", "--out", "."], ["RUN", "--out", "no/such/x.html"], ["RUN", "--jsn"]]
)
def test_bad_input_is_one_line_with_a_hint(
    tmp_path: pathlib.Path, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    fake_run.write_head(tmp_path)
    assert main(["report", *(str(tmp_path) if a == "RUN" else a for a in args)]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "hint:" in err


def test_the_command_needs_no_torch(tmp_path: pathlib.Path) -> None:
    run = fake_run.make_run(tmp_path / "r", n_games=5, seconds=5)
    code = (
        "import sys; from dqnitro.cli import main; main(['report', sys.argv[1]]); "
        "print({'torch', 'numpy', 'gymnasium'} & set(sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True).stdout
    assert out.splitlines()[-1] == "set()"


def test_words() -> None:
    assert [rate(v) for v in (12_345.6, 10.4, 3.52, 0.0234)] == ["12,346", "10", "3.5", "0.023"]
    assert [duration(s) for s in (4.21, 200, 7_500)] == ["4.2 s", "3 min 20 s", "2 h 05 min"]
    assert [game_name(s) for s in ("space_invaders", "CartPole-v1", "pkg:thing-v0")] == [
        "Space Invaders",
        "CartPole-v1",
        "pkg:thing-v0",
    ]


def test_no_run_is_an_error(tmp_path: pathlib.Path) -> None:
    with pytest.raises(CheckpointError):
        write_run_page(tmp_path)

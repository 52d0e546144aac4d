"""The live page: what it serves, to whom, and which game it plays."""

import http.client
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest

from dqnitro.cli import main, watch
from dqnitro.report.run_page import Film
from report import fake_run


def get(port: int, path: str = "/", host: str = "localhost") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    return answer.status, answer.read().decode("utf-8", "replace")


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "pong"
    fake_run.write_head(path)
    fake_run.write_summary(path, "running")
    (path / "metrics.jsonl").write_text("\n".join(fake_run.metric_lines(20, 10.0)) + "\n")
    return path


def test_only_the_page_and_the_game_are_served_and_only_to_this_machine(run, tmp_path):
    game = watch.Game(run, tmp_path)
    page = watch.Page(run, game)
    server = watch.serve(page, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    try:
        assert server.server_address[0] == "127.0.0.1"
        status, text = get(port)
        assert status == 200 and 'data-refresh="3"' in text and "connect-src &#x27;self&#x27;" in text
        assert "once the run has saved its weights" in text
        assert get(port, "/game-1.mp4")[0] == 404 and get(port, "/../config.json")[0] == 404
        assert get(port, host="evil.example")[0] == 403 and get(port, host=f"127.0.0.1:{port}")[0] == 200
        game.path = tmp_path / "game-1.mp4"
        game.path.write_text("film")
        game.film = Film("/game-1.mp4", "A game, score 3")
        page._not_before = 0.0
        assert get(port, "/game-1.mp4") == (200, "film") and 'src="/game-1.mp4"' in get(port)[1]
    finally:
        server.shutdown()
        server.server_close()


def test_a_run_on_another_machines_disk_is_running_while_its_files_change(run):
    page = watch.Page(run, None)
    assert ">running<" in page.text()  # nobody here holds its lock
    for name in ("metrics.jsonl", "summary.json"):
        os.utime(run / name, (1_000.0, 1_000.0))
    page._not_before = 0.0
    text = page.text()
    assert ">crashed<" in text and "data-refresh" not in text


def test_the_page_is_made_again_only_if_something_changed(run, monkeypatch):
    page, made = watch.Page(run, None), []
    monkeypatch.setattr(page, "_render", lambda film: made.append(film) or str(len(made)))
    assert (page.text(), page.text()) == ("1", "1")
    with (run / "metrics.jsonl").open("a") as file:
        file.write("{}\n")
    page._not_before = 0.0
    assert page.text() == "2"
    fake_run.write_summary(run, "solved", steps=1)
    page._not_before = float("inf")  # making it took long: most of the time it is left alone
    assert page.text() == "2"


def test_a_game_is_played_when_there_are_new_weights(run, tmp_path, monkeypatch):
    played = []

    def record(run, path, **options):
        played.append(path)
        path.write_text("film")
        return SimpleNamespace(score=3.0), False

    monkeypatch.setattr("dqnitro.play.record", record)
    game = watch.Game(run, tmp_path)
    game.look()
    assert not played and game.film is None
    weights = run / "model.safetensors"
    weights.write_text("w")
    os.utime(weights, (1_000.0, 1_000.0))
    game.look()
    game.look()
    assert len(played) == 1 and game.film is not None and game.film.caption.endswith("score 3")
    os.utime(weights, (2_000.0, 2_000.0))
    game.look()
    assert len(played) == 2 and not played[0].exists() and game.film.address == "/game-2000.mp4"


def test_a_game_that_cannot_be_shown_says_why(run, tmp_path, monkeypatch):
    def record(run, path, **options):
        raise ValueError("it cannot be rendered")

    monkeypatch.setattr("dqnitro.play.record", record)
    (run / "model.safetensors").write_text("w")
    game = watch.Game(run, tmp_path)
    game.look()
    assert game.film == Film("", "No game can be shown: it cannot be rendered")


def test_bad_input_is_one_line(capsys, run):
    assert main(["watch", "nowhere"]) == 2
    assert "nowhere does not exist" in capsys.readouterr().err
    assert main(["watch", str(run), "--no-game", "--port", "99999"]) == 2
    assert "--port must be at most 65,535" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert main(["watch", str(run), "--no-game", "--port", str(taken.getsockname()[1])]) == 2
    assert "hint: choose another with --port, or 0 for any" in capsys.readouterr().err


@pytest.fixture
def served(run):
    page = watch.Page(run, None)
    server = watch.serve(page, 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield SimpleNamespace(port=server.server_address[1], page=page)
    server.shutdown()
    server.server_close()


def test_a_run_that_goes_away_is_said_and_the_page_comes_back(run, served, capfd):
    assert get(served.port)[0] == 200
    run.rename(run.with_name("elsewhere"))
    served.page._not_before = 0.0
    status, text = get(served.port)
    assert status == 503 and "pong does not exist" in text
    run.with_name("elsewhere").rename(run)
    assert get(served.port)[0] == 200 and "Traceback" not in capfd.readouterr().err


def test_a_browser_that_leaves_is_no_error(served, capfd):
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", served.port)) as browser:
            browser.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leaves with a reset
            browser.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert get(served.port)[0] == 200 and "Traceback" not in capfd.readouterr().err


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="a process cannot be told to end here: run it on Linux")
@pytest.mark.parametrize("number", ["SIGTERM", "SIGHUP"])
def test_told_to_end_it_leaves_nothing_behind(number, run, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "dqnitro", "watch", str(run), "--no-game", "--port", "0"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(temporary)},
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # also where these tests run under nohup
    )  # fmt: skip
    assert process.stdout.readline().startswith("http://127.0.0.1:")
    (left,) = temporary.iterdir()
    assert left.name.startswith(f"dqnitro-watch-{process.pid}-")
    process.send_signal(getattr(signal, number))
    _, said = process.communicate(timeout=120)
    assert process.returncode == 128 + getattr(signal, number) and "Traceback" not in said
    assert not list(temporary.iterdir())

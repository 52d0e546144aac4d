"""The line of progress, as a terminal and as a log see it; on a real pseudo-terminal and through a real pipe, too."""

import io
import os
import pty

import pytest

from dqnitro.cli.terminal import progress
from dqnitro.cli.terminal.progress import Progress
from support.terminals import Reader


class Screen(io.StringIO):
    def isatty(self):
        return True


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_a_terminal_sees_one_line_that_is_rewritten_and_removed(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    screen, clock = Screen(), Clock()
    with Progress("fresh games", 30, stream=screen, clock=clock) as progress:
        progress(0)
        clock.now += 10
        progress(10, "score 18")
    assert screen.getvalue().split("\r\x1b[K") == [
        "", "fresh games: 0 of 30, 0 s", "fresh games: 10 of 30, 10 s, 20 s left, score 18", "",
    ]  # fmt: skip


def test_a_terminal_is_not_redrawn_more_often_than_it_can_be_read_except_for_the_end(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    screen, clock = Screen(), Clock()
    progress = Progress("parts", 100, stream=screen, clock=clock)
    for n in range(101):
        progress(n)
    assert screen.getvalue().count("\r") == 2 and "100 of 100" in screen.getvalue()


def test_a_pipe_gets_the_first_line_and_then_one_a_minute():
    log, clock = io.StringIO(), Clock()
    with Progress("parts", 1000, stream=log, clock=clock) as progress:
        for n in range(0, 180):
            progress(n)
            clock.now += 1
    lines = log.getvalue().splitlines()
    assert [line.split(",")[0] for line in lines] == ["parts: 0 of 1", "parts: 60 of 1", "parts: 120 of 1"]
    assert "\x1b" not in log.getvalue()


def test_quiet_says_nothing():
    screen = Screen()
    with Progress("parts", 2, quiet=True, stream=screen) as progress:
        progress(1)
        progress(2)
    assert screen.getvalue() == ""


@pytest.fixture(params=["terminal", "pipe"])
def stderr(request, monkeypatch):
    """A real terminal or pipe: its kind, the end to write to, and what a person would read at the other."""
    here, there = pty.openpty() if request.param == "terminal" else os.pipe()
    monkeypatch.setenv("TERM", "xterm")
    for name in ("TICK_S", "FIRST_LINE_S"):
        monkeypatch.setattr(progress, name, 0.01)
    with os.fdopen(there, "w") as stream:
        yield request.param, stream, Reader(here)


def test_a_single_long_call_is_shown_without_a_report(stderr):
    kind, stream, seen = stderr
    with Progress("compiling", stream=stream):
        seen.wait_for("compiling: 0 s" if kind == "terminal" else "compiling: 0 s\n")
        if kind == "terminal":
            seen.wait_for("compiling: 0 s\r\x1b[Kcompiling: 0 s")
    if kind == "terminal":
        seen.wait_for("s\r\x1b[K")
        assert "\n" not in seen.text
    else:
        assert seen.text == "compiling: 0 s\n"  # the next line would come in a minute


def test_lines_of_a_log_can_come_more_often(stderr):
    kind, stream, seen = stderr
    with Progress("recording", every_s=0.01, stream=stream) as shown:
        shown.say("frame 1")
        if kind == "pipe":
            seen.wait_for("recording: 0 s, frame 1\nrecording: 0 s, frame 1\n")
            assert "\x1b" not in seen.text


def test_a_line_is_never_wider_than_the_terminal(stderr, monkeypatch):
    kind, stream, seen = stderr
    monkeypatch.setenv("COLUMNS", "30")
    with Progress("x" * 50, stream=stream):
        seen.wait_for("x" * 29)
    assert ("x" * 30 in seen.text) == (kind == "pipe")


def test_the_next_piece_of_work_is_counted_from_its_start():
    clock = Clock()
    shown = Progress("building", 3, stream=io.StringIO(), clock=clock)
    clock.now += 4
    shown.advance()
    assert shown.text(1) == "building: 1 of 3, 4 s, 8 s left"
    shown.begin("rounds", 10)
    assert shown.text(0) == "rounds: 0 of 10, 0 s"

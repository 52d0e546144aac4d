"""The line of progress, as a terminal and as a log see it."""

import io

from dqnitro.cli.progress import Progress


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

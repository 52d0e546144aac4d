"""Where the wall clock went."""

import numba
import pytest

from dqnitro.cli.terminal.training import Filming
from dqnitro.cli.terminal.wall_clock import Compiling, Voices, WallClock, clock_text, covered


def test_all_time_since_the_start_belongs_to_a_part():
    now = [10.0]
    clock = WallClock(start=7.0, clock=lambda: now[0])
    clock.mark("imports")
    now[0] = 40.0
    clock.mark("saving")
    clock.split("saving", {"start-up": 5.0, "first fill": 0.0, "training": 24.0})
    assert clock.seconds == {"imports": 3.0, "start-up": 5.0, "training": 24.0, "saving": 1.0}
    assert clock.total == 33.0
    text = clock_text(clock.seconds, 4.2)
    assert text == "33 s from start to end: imports 3 s, start-up 5 s, training 24 s, saving 1 s; 4 s of it compiling"


def test_the_process_began_before_its_clock():
    clock = WallClock()
    clock.mark("imports")
    assert clock.seconds["imports"] > 0


def test_what_numba_compiles_is_counted_and_named():
    @numba.njit
    def inner(x):
        return x + 1

    @numba.njit
    def outer(x):
        return inner(x) * 2

    said: list[str] = []
    compiling = Compiling()
    before = compiling.seconds
    with compiling.watched(said.append):
        assert outer(20) == 42
    assert said == ["compiling outer", ""], "what it calls is compiled within it"
    counted = compiling.seconds
    assert counted > before
    assert numba.njit(lambda x: x)(1) == 1 and compiling.seconds == counted, "outside the block nothing is counted"


def test_compilers_that_work_at_the_same_time_share_a_line_and_are_counted_once():
    said: list[str] = []
    voices = Voices(said.append)
    one, other = voices.voice(), voices.voice()
    one("compiling the console: 2 s")
    other("compiling kernels: 1 s")
    one("")
    assert said == [
        "compiling the console: 2 s",
        "compiling the console: 2 s; compiling kernels: 1 s",
        "compiling kernels: 1 s",
    ]
    assert covered([(5.0, 8.0), (1.0, 4.0), (2.0, 3.0), (3.5, 6.0)]) == 7.0 and covered([]) == 0.0


def test_leaving_early_gives_a_film_up(monkeypatch, tmp_path):
    import threading

    from dqnitro import play, video

    ended = threading.Event()

    def endless(run_dir, path, trust, stopped, actions):
        while not stopped():
            ended.wait(0.01)
        ended.set()
        raise video.Stopped

    monkeypatch.setattr(play, "record", endless)
    with pytest.raises(KeyboardInterrupt), Filming(tmp_path):
        raise KeyboardInterrupt
    assert ended.is_set()

"""The first Ctrl-C works, whatever the process is doing; nothing that was learned is lost."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from dqnitro.common import signals
from dqnitro.common.signals import WAIT, Interrupted, Signals
from dqnitro.run.processes.watchdog import process_state


def later(number: int, seconds: float = 0.1) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


def send_and_wait(*numbers: int) -> None:
    for number in numbers:
        os.kill(os.getpid(), number)
    time.sleep(60)


@pytest.fixture(autouse=True)
def little_patience(monkeypatch):
    monkeypatch.setattr(signals, "PATIENCE_S", 0.2)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it would be ignored
    yield
    signal.signal(signal.SIGINT, before)
    signal.signal(signal.SIGHUP, hangup)


@pytest.mark.parametrize("number", signals.NUMBERS)
def test_a_wait_that_does_not_end_is_broken_off_by_the_first_signal(number):
    handlers = {n: signal.getsignal(n) for n in signals.NUMBERS}
    with Signals().installed() as caught:
        later(number)
        with pytest.raises(Interrupted), WAIT:
            time.sleep(60)
        assert caught.caught == signal.Signals(number).name
    assert {n: signal.getsignal(n) for n in signals.NUMBERS} == handlers


def test_outside_of_a_wait_a_signal_is_only_remembered():
    with Signals().installed() as caught:
        later(signal.SIGINT, 0.0)
        end = time.monotonic() + 0.7  # several times the patience
        while time.monotonic() < end:
            time.sleep(0.01)
        assert caught.caught == "SIGINT"
        with pytest.raises(Interrupted), WAIT:
            time.sleep(60)


def test_a_second_ctrl_c_ends_the_process():
    with Signals().installed(), pytest.raises(KeyboardInterrupt):
        send_and_wait(signal.SIGINT, signal.SIGINT)


def test_a_wait_in_another_thread_is_none_of_the_main_threads():
    began, done = threading.Event(), threading.Event()

    def wait():
        with WAIT:
            began.set()
            done.wait(30)

    thread = threading.Thread(target=wait)
    thread.start()
    began.wait(30)
    assert not WAIT.on
    done.set()
    thread.join()


def test_a_hangup_that_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals().installed() as caught, caught.starting():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.05)
            assert caught.caught is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_while_a_run_starts_the_first_signal_ends_it():
    with pytest.raises(KeyboardInterrupt), Signals().installed() as s, s.starting():
        send_and_wait(signal.SIGINT)
    with pytest.raises(SystemExit) as e, Signals().installed() as s, s.starting():
        send_and_wait(signal.SIGTERM)
    assert e.value.code == 143


def test_a_signal_between_two_stages_is_not_lost():
    with Signals().installed() as outer:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        with Signals().installed() as inner:
            assert inner is outer and inner.caught == "SIGTERM", "what a run installs is one"
        with pytest.raises(SystemExit), outer.starting():
            time.sleep(60)


def test_a_start_that_swallows_the_exception_ends_all_the_same(tmp_path):
    """As compiled code does, and callbacks: what Python raises there is dropped."""
    code = f"""
import os, pathlib, signal, sys, time
from dqnitro.common import signals
signals.PATIENCE_S = 0.3
signal.signal(signal.SIGINT, signal.default_int_handler)
with signals.Signals().installed() as s, s.starting(lambda: pathlib.Path({str(tmp_path / "left")!r}).touch()):
    while True:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(60)
        except KeyboardInterrupt:
            pass
"""
    out = subprocess.run([sys.executable, "-c", code], timeout=300)
    assert out.returncode == 130 and (tmp_path / "left").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux's kernel ends a process with its parent: run it there")
def test_a_process_that_is_stopped_ends_with_its_parent():
    child = "import os, signal; from dqnitro.common.signals import end_with_parent; assert end_with_parent(); "
    child += "os.kill(os.getpid(), signal.SIGSTOP)"
    parent = f"import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', {child!r}]); "
    parent += "print(p.pid, flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        wait_until(lambda: process_state(pid) == "stopped")
        process.kill()
    wait_until(lambda: process_state(pid) in ("gone", "zombie"))


def wait_until(condition) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)

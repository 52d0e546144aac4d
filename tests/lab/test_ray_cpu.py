"""What is counted as Ray's own CPU time, without Ray."""

import os
import time

import pytest

from dqnitro.lab.cluster import ray_cpu
from dqnitro.lab.cluster.ray_cpu import OfThreads, TimedHost, TimedHosts, of_threads
from dqnitro.run.cluster.actors import PlayerHost


def burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_threads_with_names_of_their_own_are_told_apart(tmp_path):
    for task, name, ns in ((7, "python", 3_000_000_000), (8, "python", 500_000_000), (9, "worker.io", 250_000_000)):
        folder = tmp_path / "7" / "task" / str(task)
        folder.mkdir(parents=True)
        (folder / "comm").write_text(f"{name}\n")
        (folder / "schedstat").write_text(f"{ns} 12 3\n")
    (tmp_path / "7" / "task" / "10").mkdir()  # a thread that has ended meanwhile
    assert of_threads(7, tmp_path) == OfThreads(3.5, 0.25)


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="needs Linux's /proc/PID/task/TID/schedstat")
def test_a_process_counts_its_own_thread():
    before = of_threads(os.getpid()).its_own
    burn(0.05)
    assert of_threads(os.getpid()).its_own - before > 0.045


def test_playing_is_not_ray(monkeypatch):
    monkeypatch.setattr(ray_cpu, "of_threads", lambda pid: OfThreads(99.0, 2.0))
    monkeypatch.setattr(PlayerHost, "__init__", lambda self: None)
    monkeypatch.setattr(PlayerHost, "play", lambda self, player, permit, weights: burn(0.1))
    host = TimedHost()
    before = host.ray_s()
    host.play(0, None, None)
    burn(0.02)
    assert 0.02 <= host.ray_s() - before < 0.05
    assert host.ray_s() > 2.0, "its other threads are Ray's"


def test_a_call_within_a_call_is_counted_once(monkeypatch):
    class Hosts(TimedHosts):
        def put(self, weights):
            burn(0.02)
            return self.get(weights, 1.0)

        def get(self, answer, seconds):
            burn(0.02)
            time.sleep(0.1)  # waiting costs nothing
            return answer

        def hello(self, player):
            burn(0.05)  # not while the run goes on

    monkeypatch.setattr(TimedHosts, "__init__", lambda self: setattr(self, "calls_s", 0.0))
    hosts = Hosts()
    assert hosts.put("weights") == "weights"
    hosts.hello(0)
    assert 0.04 <= hosts.calls_s < 0.06

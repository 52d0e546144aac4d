"""Worker processes: where they run, how they fail, and that none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.envs.gym_vector import EnvCrashed


def test_every_environment_has_a_process_of_its_own() -> None:
    envs = make_envs(Config(env_id="TinyPid-v0", envs="gym-async", n_envs=3))
    pids = set(envs.reset()[:, 0].astype(int).tolist())
    assert len(pids) == 3 and os.getpid() not in pids
    envs.close()
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_workers_play_from_send_on() -> None:
    envs = make_envs(Config(env_id="breakout", envs="gym-async", n_envs=1, frame_skip=400))
    envs.reset()
    start = time.perf_counter()
    envs.send(np.zeros(1, np.int64))
    envs.recv()
    whole = time.perf_counter() - start
    envs.send(np.zeros(1, np.int64))
    time.sleep(1.0 + 2 * whole)  # a busy machine has busy workers
    start = time.perf_counter()
    envs.recv()
    assert time.perf_counter() - start < whole / 2
    envs.close()


@pytest.mark.filterwarnings("ignore")
def test_an_exception_in_a_worker_arrives_with_its_traceback() -> None:
    envs = make_envs(Config(env_id="TinyRaises-v0", envs="gym-async", n_envs=2))
    envs.reset()
    envs.send(np.zeros(2, np.int64))
    envs.recv()
    envs.send(np.zeros(2, np.int64))
    with pytest.raises(EnvCrashed, match=r"environment . failed in step") as caught:
        envs.recv()
    assert "open_the_wrong_door" in str(caught.value) and "conftest.py" in str(caught.value)
    envs.close()
    envs.close()


def test_an_exception_in_the_same_process_is_the_users_own() -> None:
    for backend in ("wrappers", "gym-sync"):
        envs = make_envs(Config(env_id="TinyRaises-v0", envs=backend))
        envs.reset()
        envs.send(np.zeros(1, np.int64))
        envs.recv()
        envs.send(np.zeros(1, np.int64))
        with pytest.raises(KeyError, match="the wrong door"):
            envs.recv()
        envs.close()


def children() -> set[int]:
    """All processes below this one; some may be of other tests, such as the tracker of multiprocessing."""
    return {p.pid for p in psutil.Process().children(recursive=True)}


def test_a_killed_worker_is_named() -> None:
    others = children()
    envs = make_envs(Config(env_id="TinyDies-v0", envs="gym-async", n_envs=3))
    envs.reset()
    envs.send(np.array([0, 1, 0]))
    with pytest.raises(EnvCrashed, match=r"environment 1 \(exit code -9\)"):
        envs.recv()
    envs.close()
    assert not children() - others


SCRIPT = """
import numpy as np, psutil, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
from dqnitro.config import Config
from dqnitro.envs import make_envs
envs = make_envs(Config(env_id="CartPole-v1", envs="gym-async", n_envs=3))
try:
    envs.reset()
    print(*[p.pid for p in psutil.Process().children()], flush=True)
    while True:
        envs.send(np.zeros(3, np.int64)); envs.recv()
except KeyboardInterrupt:
    sys.exit(130)
finally:
    envs.close()
"""


PATIENCE_S = 300.0  # on a machine with much else to do


def start() -> tuple[subprocess.Popen[str], list[int]]:
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    return child, [int(pid) for pid in child.stdout.readline().split()]


def gone(pids: list[int]) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in pids):
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_run(how: signal.Signals) -> None:
    child, workers = start()
    try:
        assert len(workers) == 3
        time.sleep(0.2)
        if how == signal.SIGINT:
            os.killpg(child.pid, how)  # as a terminal does: to everybody
        else:
            child.kill()
        code = child.wait(timeout=PATIENCE_S)
        assert code == (130 if how == signal.SIGINT else -9)
        assert gone(workers)
    finally:
        for pid in workers:
            if psutil.pid_exists(pid):
                os.kill(pid, signal.SIGKILL)


def test_ctrl_c_does_not_reach_the_workers_so_the_run_can_finish_its_step() -> None:
    others = children()
    envs = make_envs(Config(env_id="CartPole-v1", envs="gym-async", n_envs=2))
    envs.reset()
    for pid in children() - others:
        os.kill(pid, signal.SIGINT)
    time.sleep(0.1)
    for _ in range(3):
        envs.send(np.zeros(2, np.int64))
        envs.recv()
    envs.close()

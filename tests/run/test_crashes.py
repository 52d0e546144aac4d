"""Real processes that are killed, stuck, interrupted or out of memory:
nothing hangs, nothing is left, the run goes on.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections import deque

import psutil
import pytest
import torch

from dqnitro.common import signals
from dqnitro.config import Config
from dqnitro.errors import PlayerDied
from dqnitro.run import make_run
from dqnitro.run.processes import remote, watchdog
from dqnitro.run.processes.spawn import exit_text
from dqnitro.session import resume, train
from dqnitro.store import checkpoint
from support import fakes_envs
from support.fakes_player import in_threads

fakes_envs.register()
TESTS = pathlib.Path(__file__).resolve().parents[1]
PATIENCE_S = 300.0  # what takes a second on an idle machine takes a minute on one with twenty other programs
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", envs="gym-async", n_envs=2, frame_stack=2, screen_size=36, hidden_units=16,
    batch_size=8,
    first_fill_steps=20, replay_capacity=120, target_sync_steps=10, epsilon_start=0.3, epsilon_decay_steps=200,
    torch_threads=2, checkpoint_every_s=0.0,
)  # fmt: skip


def named_memory(pids) -> set[str]:
    """Files in /dev/shm that these processes have mapped, which would be left by one that is killed."""
    found: set[str] = set()
    for pid in pids if os.path.isdir("/dev/shm") else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {m.path for m in psutil.Process(pid).memory_maps() if m.path.startswith("/dev/shm/")}
    return {path for path in found if os.path.exists(path)}


def gone(pids, within_s: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(p) and psutil.Process(p).status() != "zombie" for p in pids):
            return True
        time.sleep(0.02)
    return False


def family(pid: int) -> list[int]:
    return [p.pid for p in psutil.Process(pid).children(recursive=True)]


def players(pids) -> list[int]:
    """Those of the processes that are alive and were spawned by Python."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(psutil.Process(pid).cmdline()):
                found.append(pid)
    return found


def test_a_player_that_is_killed_is_missed_at_once_and_the_run_stays_the_inline_run(monkeypatch, capfd):
    """With environments that have processes of their own, which must not keep a dead player's pipe open."""
    before, missed, threads = named_memory([os.getpid()]), [], torch.get_num_threads()
    revive = remote.RemotePlayer._revive
    monkeypatch.setattr(
        remote.RemotePlayer, "_revive", lambda self, e: (missed.append(time.monotonic()), revive(self, e))
    )
    agent, ticks = make_run(CATCH.replace(runner="processes"))
    try:
        for _ in range(20):
            next(ticks)
        victim = agent.envs.pid
        assert victim != os.getpid() and psutil.Process(victim).ppid() == os.getpid()
        assert psutil.Process(victim).environ()["OMP_NUM_THREADS"] == "2", "before torch was imported there"
        workers = family(victim)
        assert len(workers) >= 2, "every environment has a process of its own"
        assert named_memory([os.getpid(), victim, *workers]) == before, "the memory has a name"
        os.kill(victim, signal.SIGKILL)
        killed = time.monotonic()
        for _ in range(20):
            next(ticks)
        assert len(missed) == 1 and missed[0] - killed < watchdog.STOPPED_S, "it was not missed when it died"
        assert agent.envs.restarts == 1 and agent.envs.pid != victim and gone(workers)
        last = [agent.envs.pid, *family(agent.envs.pid)]
    finally:
        agent.close()
    assert gone(last) and torch.get_num_threads() == threads
    assert (
        "the player process died (it ended with signal SIGKILL); starting it again (1 of 3)" in capfd.readouterr().err
    )
    twin, inline = make_run(CATCH.replace(envs="gym-sync"))
    for _ in range(40):
        next(inline)
    twin.close()
    torch.set_num_threads(threads)
    assert agent.clock.updates == twin.clock.updates > 10
    pairs = zip(agent.learner.online.parameters(), twin.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_an_exception_in_a_users_environment_arrives_with_its_traceback(monkeypatch, tmp_path, capfd):
    monkeypatch.setattr(remote, "RESTARTS", 0)
    config = CATCH.replace(
        env_id="dqnitro_test/Hungry-v0", envs="gym-sync", runner="processes", max_steps=100, torch_threads=1
    )
    with pytest.raises(PlayerDied, match=r"because /.*fakes_envs.py:\d+: MemoryError: no memory for") as e:
        train(config, tmp_path / "run")
    assert "in eat_everything" in e.value.trace and "in eat_everything" in capfd.readouterr().err
    assert checkpoint.load(tmp_path / "run")[1]["clock"]["steps"] == 4, "two steps of two environments are saved"
    assert not players(family(os.getpid()))


def test_a_player_that_was_stopped_is_revived_or_saved_at_the_first_ctrl_c(monkeypatch, capfd):
    """And whichever it is, the run is the run without the accident."""
    config = CATCH.replace(envs="gym-sync", runner="processes", slack_steps=4, torch_threads=1)
    agent, ticks = make_run(config)
    begun = [agent.envs.pid]
    try:
        for _ in range(20):
            next(ticks)
        monkeypatch.setattr(watchdog, "STOPPED_S", 1.0)
        os.kill(agent.envs.pid, signal.SIGSTOP)
        for _ in range(20):
            next(ticks)
        begun.append(agent.envs.pid)
        before = agent.clock.steps
        assert agent.envs.restarts == 1 and gone(begun[:1])
        assert (
            f"the player process hung (process {begun[0]} was stopped for 1 s); starting it" in capfd.readouterr().err
        )
        monkeypatch.setattr(watchdog, "STOPPED_S", 1e9)
        monkeypatch.setattr(signals, "PATIENCE_S", 0.2)
        os.kill(agent.envs.pid, signal.SIGSTOP)
        with signals.Signals().installed() as caught:
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(signals.Interrupted):
                deque(ticks, maxlen=0)
        assert caught.caught == "SIGTERM"
        arrays, record = agent.get_state()
        assert "permits" in arrays["envs"], "steps that were permitted are still to be played"
        steps = agent.clock.steps
    finally:
        agent.close()
    assert gone(begun)
    in_threads(monkeypatch)
    twins = []
    for state in (None, (arrays, record)):
        agent, ticks = make_run(config)
        if state:
            agent.set_state(*state)
            assert agent.clock.steps == steps >= before > 60
        while agent.clock.steps < 160:
            next(ticks)
        twins.append(agent)
        agent.close()
    assert twins[0].clock.updates == twins[1].clock.updates > 50
    pairs = zip(twins[0].learner.online.parameters(), twins[1].learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_a_step_that_does_not_end_is_mentioned_and_given_up_at_its_limit(monkeypatch, capfd):
    state = "sleeping"
    monkeypatch.setattr(watchdog, "process_state", lambda pid: state)
    playing = watchdog.Watchdog(77, 60.0, playing=True)
    told = [playing.waited(0.25) for _ in range(4 * 60)]
    assert set(told[:-1]) == {None} and "took longer than --player-timeout-s 60" in told[-1]
    (line,) = capfd.readouterr().err.splitlines()
    assert "process 77 has been in one vector step for 10 s (sleeping); it is started again after 60 s" in line
    patient = watchdog.Watchdog(77, 0.0, playing=True)
    assert {patient.waited(1.0) for _ in range(10_000)} == {None}, "0 is no limit"
    starting = watchdog.Watchdog(77, 60.0, playing=False)
    assert {starting.waited(1.0) for _ in range(10_000)} == {None}, "a console may be compiled"
    state = "stopped"
    stopped = watchdog.Watchdog(77, 0.0, playing=False)
    assert [stopped.waited(1.0) for _ in range(8)][-1] == "process 77 was stopped for 8 s"


def test_the_end_of_a_player_has_a_name_whatever_the_signal():
    assert exit_text(-9) == "signal SIGKILL" and exit_text(3) == "exit code 3"
    assert exit_text(-37) == "signal 37", "a real-time signal has none"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="the learner's weights must cross from a GPU: there is none")
def test_a_learner_on_a_gpu_hands_its_weights_to_a_player_on_the_cpu():
    config = CATCH.replace(envs="gym-sync", runner="processes", slack_steps=4, device="cuda")
    agent, ticks = make_run(config)
    for _ in range(40):
        next(ticks)
    before = [p.detach().cpu().clone() for p in agent.learner.online.parameters()]
    next(ticks)  # hands over what the learner has now, then learns on
    slot = agent.envs._weights.views(agent.envs._slot)
    assert agent.clock.updates > 10 and next(agent.learner.online.parameters()).is_cuda
    assert all(torch.equal(x, y) for x, y in zip(before, slot, strict=True))
    agent.close()


# -- the whole run, from outside

SETTINGS = {
    "env_id": "support.fakes_envs:dqnitro_test/Stuck-v0", "envs": "gym-sync", "n_envs": 2, "frame_stack": 1,
    "clip_rewards": False, "hidden_units": 16, "batch_size": 8,
    "first_fill_steps": 30, "replay_capacity": 200, "target_sync_steps": 10, "epsilon_start": 0.3,
    "epsilon_decay_steps": 200, "torch_threads": 1, "runner": "processes", "slack_steps": 5,
}  # fmt: skip
SCRIPT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what it starts in the background
from dqnitro.config import Config
from dqnitro.session import train
result = train(Config(**{settings!r}, max_steps={max_steps}, checkpoint_every_s={every}), {folder!r})
sys.exit(result.exit_code)
"""


@contextlib.contextmanager
def running(tmp_path, *, max_steps: int, every: float, stuck: bool):
    """A run in a process group of its own; its player, once there is one; and its end, whatever the test does."""
    code = SCRIPT.format(settings=SETTINGS, max_steps=max_steps, every=every, folder=str(tmp_path / "run"))
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    if stuck:
        environ["DQNITRO_TEST_STUCK"] = str(tmp_path / "stuck")
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environ, text=True, stderr=subprocess.PIPE, start_new_session=True
    )
    everybody: set[int] = set()
    try:
        yield process, everybody
    finally:
        for pid in {process.pid, *everybody}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()


def until(condition, process, everybody) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()[1]
        everybody.update(family(process.pid))
        time.sleep(0.05)
    everybody.update(family(process.pid))


def test_a_trainer_that_is_killed_takes_its_player_along_even_one_that_is_stuck(tmp_path, monkeypatch):
    run = tmp_path / "run"
    # A checkpoint after every tick, so that there is one of a moment shortly before.
    with running(tmp_path, max_steps=100_000, every=1e-6, stuck=True) as (process, everybody):
        until((tmp_path / "stuck").exists, process, everybody)
        assert int(checkpoint.complete(run / "checkpoints")[-1].name) > 50
        assert players(everybody) and not named_memory([process.pid, *everybody])
        process.kill()
        process.wait()
        assert gone(everybody)
    # And the run goes on as if nothing had happened.
    in_threads(monkeypatch)
    whole = train(Config(**SETTINGS, max_steps=300))
    rest = resume(run, max_steps=300, checkpoint_every_s=0.0)
    assert (whole.steps, whole.updates, whole.mean_score) == (rest.steps, rest.updates, rest.mean_score)
    pairs = zip(whole.agent.learner.online.parameters(), rest.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_ctrl_c_reaches_everybody_and_only_the_trainer_answers(tmp_path):
    metrics = tmp_path / "run" / "metrics.jsonl"
    with running(tmp_path, max_steps=0, every=0.0, stuck=False) as (process, everybody):
        until(lambda: metrics.is_file() and metrics.stat().st_size > 0, process, everybody)
        assert players(everybody) and not named_memory([process.pid, *everybody])
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, err = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 130 and "Traceback" not in err and "player" not in err, err
        assert gone(everybody)
    assert checkpoint.load(tmp_path / "run")[1]["clock"]["steps"] > 0


def test_a_script_that_trains_at_its_top_level_is_told_about_the_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(settings=SETTINGS, max_steps=50, every=0.0, folder=str(tmp_path / "run")))
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    out = subprocess.run([sys.executable, str(script)], env=environ, text=True, capture_output=True, timeout=PATIENCE_S)
    assert out.returncode == 1
    last = out.stderr.strip().splitlines()[-1]
    assert "could not start" in last and "if __name__ == '__main__':" in last

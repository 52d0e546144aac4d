"""Faults in processes that are at work: signals to trainers and players, at random moments and at chosen ones."""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import psutil

from chaos.harness import CONFIG, Kind, Outcome, World, count_orphans, digest, forked, judge
from chaos.saves import END_LATE, named, whole_late
from dqnitro.cli import main
from dqnitro.common import signals
from dqnitro.run.processes import remote, watchdog
from dqnitro.session import resume, train
from dqnitro.store import checkpoint

TESTS = pathlib.Path(__file__).resolve().parents[1]
PLAYED = {"runner": "processes", "slack_steps": 4}
STOP_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def signal_at_random(world: World, rng: random.Random, i: int) -> Outcome:
    """Ctrl-C, SIGTERM or SIGHUP at a random moment, start-up included: saved, or nothing left; then resumed."""
    out, run = Outcome(), world.new()
    number = rng.choice(list(STOP_CODES))
    delay = rng.expovariate(1 / 0.12)

    def strike(pid: int) -> None:
        time.sleep(delay)
        os.kill(pid, number)

    def work() -> None:
        raise SystemExit(train(CONFIG.replace(max_steps=END_LATE), run).exit_code)

    child = forked(work, strike)
    what = f"{signal.Signals(number).name} after {delay:.3f} s"
    # Before the run begins and after it has ended the signal is the process's own affair.
    judge(child, out, codes=(0, STOP_CODES[number], -number), what=what)
    if child.code == STOP_CODES[number] and (run / "config.json").exists():
        _compare(world, run, out)
    world.forget(run)
    return named(out, what)


def _compare(world: World, run: pathlib.Path, out: Outcome, name: str = "late", **changes: Any) -> None:
    child = forked(lambda: digest(resume(run, max_steps=END_LATE, checkpoint_every_s=0.0)))
    judge(child, out, codes=(0,), what="resume")
    if child.code == 2:
        out.count("lost", child.told)
    elif child.code == 0 and child.value != _whole(world, name, changes):
        out.count("different", f"after resume: {child.value}")


_wholes: dict[str, str] = {}


def _whole(world: World, name: str, changes: dict[str, Any]) -> str:
    if name == "late":
        return whole_late(world)
    if name not in _wholes:
        child = forked(lambda: digest(train(CONFIG.replace(max_steps=END_LATE, **changes))))
        assert child.code == 0, child.text
        _wholes[name] = child.value
    return _wholes[name]


# -- the player


def _players(pid: int) -> list[int]:
    with contextlib.suppress(psutil.Error):
        return [p.pid for p in psutil.Process(pid).children() if "spawn_main" in " ".join(p.cmdline())]
    return []


def _signal_player(rng: random.Random, pid: int, number: int, wait: Callable[[], bool]) -> None:
    """At a random moment after the run has begun (or while the player starts)."""
    end = time.monotonic() + 60
    while not (wait() and _players(pid)) and time.monotonic() < end and psutil.pid_exists(pid):
        time.sleep(0.01)
    time.sleep(rng.uniform(0, 0.3))
    for player in _players(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(player, number)


def player_fault(world: World, rng: random.Random, i: int) -> Outcome:
    """The player or the trainer is killed or stopped: at random, when weights are handed over, at a checkpoint, ..."""
    out, run = Outcome(), world.new()
    number, moment = [
        (signal.SIGKILL, "at random"), (signal.SIGSTOP, "at random"), (signal.SIGKILL, "at a weight publication"),
        (signal.SIGKILL, "at a checkpoint"), (signal.SIGKILL, "of the trainer"), (signal.SIGKILL, "while it starts"),
        (signal.SIGINT, "of the trainer"), (signal.SIGSTOP, "and Ctrl-C"),
    ][i % 8]  # fmt: skip
    metrics = run / "metrics.jsonl"
    at = rng.randrange(1, 60)

    def begun() -> bool:
        return moment == "while it starts" or (metrics.exists() and metrics.stat().st_size > 0)

    def strike(pid: int) -> None:
        if moment == "of the trainer":
            end = time.monotonic() + 60
            while not begun() and time.monotonic() < end and psutil.pid_exists(pid):
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.5))
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        elif moment in ("at random", "while it starts", "and Ctrl-C"):
            _signal_player(rng, pid, number, begun)
            if moment == "and Ctrl-C":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGINT)

    def work() -> str:
        watchdog.STOPPED_S = 1.0 if moment != "and Ctrl-C" else 1e9  # 8 s in earnest
        signals.PATIENCE_S = 0.5
        _strike_inside(moment, at)
        config = CONFIG.replace(max_steps=END_LATE, checkpoint_every_s=0.05, **PLAYED)
        result = train(config, run)
        if result.exit_code:
            raise SystemExit(result.exit_code)
        return digest(result)

    child = forked(work, strike)
    what = f"{signal.Signals(number).name} {moment}"
    fatal = {"of the trainer": (0, -signal.SIGKILL, 130), "while it starts": (0, 4), "and Ctrl-C": (0, 130)}
    judge(child, out, codes=fatal.get(moment, (0,)), what=what)
    if child.code == 0 and child.value is not None and child.value != _whole(world, "played", PLAYED):
        out.count("different", "after the player was revived")
    if child.code != 0 and (run / "checkpoints").exists() and checkpoint.complete(run / "checkpoints"):
        _compare(world, run, out, "played", **PLAYED)
    world.forget(run)
    return named(out, what)


def _strike_inside(moment: str, at: int) -> None:
    """Kill the player in the middle of one of the trainer's own calls."""
    owner, name = {
        "at a weight publication": (remote.WeightRing, "write"), "at a checkpoint": (remote.RemotePlayer, "get_state"),
    }.get(moment, (None, ""))  # fmt: skip
    if owner is None:
        return
    real, calls = getattr(owner, name), [0]
    at = at if name == "write" else 1 + at % 2

    def call(self: Any, *args: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            for player in _players(os.getpid()):
                os.kill(player, signal.SIGKILL)
        return real(self, *args)

    setattr(owner, name, call)


# -- several seeds


def seeds_fault(world: World, rng: random.Random, i: int) -> Outcome:
    """`train --seeds 2`: a child or the parent is killed, stopped or interrupted; then resumed to the same weights."""
    out, run = Outcome(), world.new()
    who, number = [
        ("child", signal.SIGKILL), ("parent", signal.SIGKILL), ("parent", signal.SIGINT), ("parent", signal.SIGTERM),
    ][i % 4]  # fmt: skip
    steps = 3000
    words = ["train", f"fakes_envs:{CONFIG.env_id}", "--seeds", "2", "--recipe", "baseline", "--steps", str(steps),
             "--first-fill-steps", "20", "--batch-size", "4", "--hidden-units", "8", "--replay-capacity", "200",
             "--checkpoint-every-s", "0.05", "--no-video", "--quiet", "--run-dir", str(run)]  # fmt: skip
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen(
        [sys.executable, "-m", "dqnitro", *words],
        env=environ,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    end = time.monotonic() + 120
    saved = [run / f"s{seed}" / "checkpoints" for seed in (1, 2)]
    while time.monotonic() < end and process.poll() is None and not all(p.exists() for p in saved):
        time.sleep(0.02)
    time.sleep(rng.uniform(0, 0.5))
    children = (
        [p for p in psutil.Process(process.pid).children() if process.poll() is None] if process.poll() is None else []
    )
    target = rng.choice(children).pid if who == "child" and children else process.pid
    with contextlib.suppress(ProcessLookupError):
        os.kill(target, number)
    try:
        text, _ = process.communicate(timeout=150)
    except subprocess.TimeoutExpired:
        process.kill()
        text, _ = process.communicate()
        out.count("hangs", f"{who}, {signal.Signals(number).name}")
    if "Traceback" in text:
        out.count("tracebacks", text[-300:])
    count_orphans(out, 30.0)  # after the parent's death its children save first
    child = forked(lambda: _seeds_weights(run, steps), limit_s=200)
    judge(child, out, codes=(0,), what="resume")
    if child.code == 2:
        out.count("lost", child.told)
    elif child.code == 0 and child.value != _seeds_alone(world, steps):
        out.count("different", f"seeds after resume: {child.value}")
    world.forget(run)
    return named(out, f"{who}, {signal.Signals(number).name}")


def _seeds_weights(run: pathlib.Path, steps: int) -> list[str]:
    import hashlib

    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    if main(["train", "--resume", str(run), "--trust", "--steps", str(steps), "--no-video", "--quiet"]) != 0:
        raise RuntimeError("the seeds could not be resumed")
    from dqnitro.store.checkpoint import load_weights

    return [
        hashlib.blake2b(b"".join(t.numpy().tobytes() for _, t in sorted(load_weights(p).items()))).hexdigest()[:16]
        for p in (run / "s1" / "model.safetensors", run / "s2" / "model.safetensors")
    ]


_alone: list[list[str]] = []


def _seeds_alone(world: World, steps: int) -> list[str]:
    """The weights of the two seeds if nothing happens."""
    if not _alone:
        run = world.new()
        words = ["train", f"fakes_envs:{CONFIG.env_id}", "--seeds", "2", "--recipe", "baseline", "--steps", str(steps),
                 "--first-fill-steps", "20", "--batch-size", "4", "--hidden-units", "8", "--replay-capacity", "200",
                 "--no-video", "--quiet", "--run-dir", str(run)]  # fmt: skip

        def alone() -> list[str]:
            os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
            main(words)
            return _seeds_weights(run, steps)

        child = forked(alone, limit_s=200)
        assert child.code == 0, child.text
        _alone.append(child.value)
    return _alone[0]


KINDS = [
    Kind("signal", "Ctrl-C, SIGTERM, SIGHUP at random moments", signal_at_random, short=25, long=150),
    Kind("player", "players and trainers killed or stopped (runner processes)", player_fault, short=0, long=24),
    Kind("seeds", "children and parent of --seeds killed or interrupted", seeds_fault, short=0, long=4),
]

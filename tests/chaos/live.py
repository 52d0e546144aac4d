"""Faults in processes that are at work: signals to trainers and players, at random moments and at chosen ones."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import random
import signal
import time
from collections.abc import Callable
from typing import Any

import psutil

from chaos.harness import (
    CONFIG,
    END_LATE,
    Kind,
    Outcome,
    World,
    command,
    config_of,
    count_orphans,
    digest,
    environ,
    forked,
    has_ended,
    judge,
    must_end_as,
    named,
    text_of,
    wait_until,
)
from dqnitro.cli import main
from dqnitro.common import signals
from dqnitro.run.processes import remote, watchdog
from dqnitro.session import train
from dqnitro.store import checkpoint

PLAYED_STEPS = 120
STOP_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


def signal_at_random(world: World, rng: random.Random, i: int) -> Outcome:
    """Ctrl-C, SIGTERM or SIGHUP at a random moment, start-up included: saved, or nothing left; then resumed."""
    out, run = Outcome(), world.new()
    number = rng.choice(list(STOP_CODES))
    delay = rng.expovariate(1 / 0.12)

    def strike(pid: int) -> None:
        time.sleep(delay)
        out.faults = int(not has_ended(pid))
        os.kill(pid, number)

    def work() -> None:
        raise SystemExit(train(CONFIG.replace(max_steps=END_LATE), run).exit_code)

    child = forked(work, strike)
    what = f"{signal.Signals(number).name} after {delay:.3f} s"
    # Before the run begins and after it has ended the signal is the process's own affair.
    judge(child, out, codes=(0, STOP_CODES[number], -number), what=what)
    if child.code == STOP_CODES[number] and (run / "config.json").exists():
        world.check_resumes(run, out, steps=END_LATE)
    world.forget(run)
    return named(out, what)


# -- the player and its trainer


def _players(pid: int) -> list[int]:
    with contextlib.suppress(psutil.Error):
        return [p.pid for p in psutil.Process(pid).children() if "spawn_main" in " ".join(p.cmdline())]
    return []


def _kill(pid: int, number: int) -> bool:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


# Who gets which signal, and when. A trainer that was stopped goes on half a second later; a player is given up.
PLAYER_FAULTS = [
    *((who, number, moment) for moment in ("at random", "at a weight publication", "at a checkpoint", "at the start")
      for who in ("player", "trainer") for number in (signal.SIGKILL, signal.SIGSTOP)),
    ("trainer", signal.SIGINT, "at random"), ("player", signal.SIGSTOP, "and Ctrl-C"),
]  # fmt: skip


def player_fault(world: World, rng: random.Random, i: int) -> Outcome:
    """The player or the trainer is killed or stopped: at random, when weights are handed over, at a checkpoint, ..."""
    who, number, moment = PLAYER_FAULTS[i % len(PLAYER_FAULTS)]
    out, run = Outcome(faults=0), world.new()
    metrics = run / "metrics.jsonl"
    inside = moment in ("at a weight publication", "at a checkpoint")
    at, delay = rng.randrange(1, 20), rng.uniform(0, 0.4)

    def begun(pid: int) -> Callable[[], bool]:
        if moment == "at the start":
            return lambda: bool(_players(pid))
        return lambda: metrics.exists() and metrics.stat().st_size > 0 and bool(_players(pid))

    def strike(pid: int) -> None:
        if not inside:
            if not wait_until(pid, begun(pid)):
                return
            time.sleep(delay)
            targets = [p for p in (_players(pid) if who == "player" else [pid]) if not has_ended(p)]
            out.faults = min(1, sum(_kill(p, number) for p in targets))
            if moment == "and Ctrl-C":
                _kill(pid, signal.SIGINT)
        if who == "trainer" and number == signal.SIGSTOP and wait_until(pid, lambda: _is_stopped(pid)):
            time.sleep(0.5)
            _kill(pid, signal.SIGCONT)
            out.faults = 1

    def work() -> str:
        watchdog.STOPPED_S = 1.0 if moment != "and Ctrl-C" else 1e9  # 8 s in earnest
        signals.PATIENCE_S = 0.5
        if inside:
            _strike_inside(who, number, moment, at)
        config = config_of("played", max_steps=PLAYED_STEPS, checkpoint_every_s=0.05)
        result = train(config, run)
        if result.exit_code:
            raise SystemExit(result.exit_code)
        return digest(result)

    child = forked(work, strike)
    if inside and (who == "player" or number == signal.SIGKILL):
        out.faults = int(STRUCK in child.text)
    what = f"{signal.Signals(number).name} of the {who} {moment}"
    codes = {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGINT: (130,)}.get(number, ()) if who == "trainer" else ()
    codes += {"at the start": (4,), "and Ctrl-C": (130,)}.get(moment, ())
    judge(child, out, codes=(0, *codes), what=what)
    if child.code == 0 and child.value is not None and child.value != world.whole("played", PLAYED_STEPS):
        out.count("different", "after the player was revived")
    if child.code != 0 and (run / "checkpoints").exists() and checkpoint.complete(run / "checkpoints"):
        world.check_resumes(run, out, "played", steps=PLAYED_STEPS)
    world.forget(run)
    return named(out, what)


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).status() == psutil.STATUS_STOPPED
    return False


STRUCK = "chaos: struck"


def _strike_inside(who: str, number: int, moment: str, at: int) -> None:
    """Send a signal to the player or to this process in the middle of one of the trainer's own calls."""
    owner, name = {
        "at a weight publication": (remote.WeightRing, "write"), "at a checkpoint": (remote.RemotePlayer, "get_state"),
    }[moment]  # fmt: skip
    real, calls = getattr(owner, name), [0]
    at = at if name == "write" else 1 + at % 2

    def call(self: Any, *args: Any) -> Any:
        calls[0] += 1
        if calls[0] == at:
            print(STRUCK, flush=True)
            for pid in _players(os.getpid()) if who == "player" else [os.getpid()]:
                os.kill(pid, number)
        return real(self, *args)

    setattr(owner, name, call)


# -- several seeds

STEPS = 1500  # of each seed
WORDS = ["train", f"support.fakes_envs:{CONFIG.env_id}", "--seeds", "2", "--recipe", "baseline", "--steps", str(STEPS),
         "--first-fill-steps", "20", "--batch-size", "4", "--hidden-units", "8", "--replay-capacity", "200",
         "--checkpoint-every-s", "0.05", "--no-video", "--quiet"]  # fmt: skip
SEEDS_FAULTS = [
    *((who, number, "at random") for who in ("child", "parent") for number in (signal.SIGKILL, signal.SIGSTOP)),
    ("parent", signal.SIGINT, "at random"), ("parent", signal.SIGTERM, "at random"),
    ("child", signal.SIGKILL, "at the start"), ("parent", signal.SIGKILL, "at the start"),
    ("parent", signal.SIGINT, "at the start"),
]  # fmt: skip


def seeds_fault(world: World, rng: random.Random, i: int) -> Outcome:
    """`train --seeds 2`: a child or the parent is killed, stopped or interrupted; then resumed to the same weights."""
    out, run = Outcome(), world.new()
    who, number, moment = SEEDS_FAULTS[i % len(SEEDS_FAULTS)]
    what = f"{who}, {signal.Signals(number).name} {moment}"
    process = command(*WORDS, "--run-dir", str(run))
    saved = [run / f"s{seed}" / "checkpoints" for seed in (1, 2)]

    def children() -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return psutil.Process(process.pid).children()
        return []

    def ready() -> bool:
        return bool(children()) if moment == "at the start" else all(p.exists() for p in saved)

    wait_until(process.pid, ready)
    time.sleep(rng.uniform(0, 0.5))
    target = rng.choice(children()).pid if who == "child" and children() else process.pid
    out.faults = int(not has_ended(target) and _kill(target, number))
    if number == signal.SIGSTOP:
        time.sleep(1.0)
        _kill(target, signal.SIGCONT)
    text_of(process, out, what)
    count_orphans(out, 30.0)  # after the parent's death its children save first
    if (run / "seeds.json").exists():
        must_end_as(forked(lambda: _seeds_weights(run), times=4), out, lambda: _seeds_alone(world))
    elif moment != "at the start":
        out.count("lost", "there is no seeds.json")
    world.forget(run)
    return named(out, what)


def _seeds_weights(run: pathlib.Path) -> list[str]:
    os.environ.update(environ())
    if main(["train", "--resume", str(run), "--trust", "--steps", str(STEPS), "--no-video", "--quiet"]) != 0:
        raise RuntimeError("the seeds could not be resumed")
    return [
        hashlib.blake2b(
            b"".join(t.numpy().tobytes() for _, t in sorted(checkpoint.load_weights(p).items()))
        ).hexdigest()[:16]
        for p in (run / "s1" / "model.safetensors", run / "s2" / "model.safetensors")
    ]


_alone: list[list[str]] = []


def _seeds_alone(world: World) -> list[str]:
    """The weights of the two seeds if nothing happens."""
    if not _alone:
        run = world.new()

        def alone() -> list[str]:
            os.environ.update(environ())
            main([*WORDS, "--run-dir", str(run)])
            return _seeds_weights(run)

        child = forked(alone, times=4)
        assert child.code == 0, child.text
        _alone.append(child.value)
    return _alone[0]


KINDS = [
    Kind("signal", "Ctrl-C, SIGTERM, SIGHUP at random moments", signal_at_random, short=25, long=100, seconds=0.5),
    Kind(
        "player",
        "players and trainers killed or stopped (runner processes)",
        player_fault,
        short=0,
        long=18,
        seconds=10,
    ),
    Kind("seeds", "children and parent of --seeds killed, stopped or interrupted", seeds_fault, 0, 9, seconds=25),
]

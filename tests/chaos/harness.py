"""What all kinds of faults share: a small run, a child that is forked for every fault, and the columns.

A fault is a number of its kind. Its random generator is seeded with kind, seed and number, so that it can be repeated
alone (`python -m chaos --repeat KIND/SEED/NUMBER`). The campaign's process only forks and looks: it never trains, so
that no fault can harm the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import hashlib
import io
import json
import os
import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import psutil

from dqnitro.config import Config
from dqnitro.session import resume, train
from support import fakes_envs

COLUMNS = ("lost", "different", "tracebacks", "crashes", "hangs", "orphans")
# A fault takes a tenth of a second. It hangs when it has idled, or worked, for so much longer; time in which it waits
# for a core counts as neither, so that a busy machine makes no hangs.
IDLE_S, CPU_S = 60.0, 120.0
LOOK_S = 0.25
KILLED = 137  # what a child's exit code is after a kill -9 of its own
# Updates, target copies, ends of games and all kinds of files, in some 50 ms.
CONFIG = Config(
    env_id="dqnitro_test/Corridor-v0", n_envs=2, frame_stack=1, clip_rewards=False, hidden_units=8, batch_size=4,
    first_fill_steps=10, replay_capacity=60, target_sync_steps=10, epsilon_decay_steps=50, max_steps=44,
    torch_threads=1, checkpoint_every_s=0.0, log_every_s=1e-6, steps_per_update=4.0,
)  # fmt: skip
END = 56  # steps to which every run is resumed and then compared
END_LATE = 300  # of runs that are struck at a random moment
fakes_envs.register()
# The runs that faults are made in: their changes of CONFIG. GPU runners have both halves on the CPU here
# (`gpu_models`): the same loops, checkpoints and checks, and no CUDA.
_IMAGES = {
    "env_id": "dqnitro_test/Catch-v0", "envs": "gym-sync", "frame_stack": 2, "screen_size": 36, "network": "small",
    "replay_capacity": 2 * 40,
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "inline": {},
    "hybrid": {**_IMAGES, "runner": "hybrid"},
    "parts": {
        **_IMAGES, "env_id": "breakout", "envs": "console", "runner": "hybrid", "n_envs": 4, "replay_capacity": 4 * 40,
        "max_episode_frames": 60, "noop_max": 4, "env_threads": 1, "prioritized": True,
    },
    "device": {**_IMAGES, "env_id": "pong", "envs": "wrappers", "runner": "device"},
    "played": {"runner": "processes", "slack_steps": 4},
}  # fmt: skip


@dataclass
class Outcome:
    """What a fault did, by column; `notes` say it in words."""

    bad: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COLUMNS, 0))
    notes: list[str] = field(default_factory=list)
    faults: int = 1  # how many were made; 0: the run had ended before
    seconds: dict[str, list[float]] = field(default_factory=dict)  # what was measured, by name

    def count(self, column: str, note: str) -> None:
        self.bad[column] += 1
        self.notes.append(f"{column}: {note}")


def spread(values: list[float]) -> dict[str, float]:
    return {"n": len(values), "median": round(statistics.median(values), 2), "max": round(max(values), 2)}


@dataclass(frozen=True)
class Child:
    """How a forked child ended: its exit code (negative: the signal), what it printed, and what it returned."""

    code: int
    text: str
    value: Any
    hung: bool = False

    @property
    def told(self) -> str:
        return " | ".join(self.text.strip().splitlines()[-3:])[-300:]


@dataclass(frozen=True)
class Kind:
    """A kind of fault. `short` and `long` are shares of a campaign of that length."""

    name: str
    what: str
    fault: Callable[[World, random.Random, int], Outcome]
    short: int
    long: int
    seconds: float = 1.0  # that one takes, about: to share the work out
    apart: bool = False  # only made when it is named
    once: bool = False  # has a time limit of its own: not made again, however few faults came of it


class World:
    """A place for runs, and the run with which all others are compared."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        warm_up(root / "warm")
        self._whole: dict[str, str] = {}
        self._stored: dict[str, pathlib.Path] = {}

    def stored(self, name: str = "inline", **changes: Any) -> pathlib.Path:
        """A run of CONFIG with these changes, ended after 40 steps. It is never touched: copy it."""
        if name not in self._stored:
            path = self.root / f"stored-{name}"
            child = forked(lambda: train(config_of(name, **changes), path) and None)
            assert child.code == 0, child.text
            self._stored[name] = path
        return self._stored[name]

    def copy(self, name: str = "inline", **changes: Any) -> pathlib.Path:
        run = pathlib.Path(tempfile.mkdtemp(dir=self.root)) / "run"
        shutil.copytree(self.stored(name, **changes), run)
        return run

    def new(self) -> pathlib.Path:
        return pathlib.Path(tempfile.mkdtemp(dir=self.root)) / "run"

    def whole(self, name: str = "inline", steps: int = END, **changes: Any) -> str:
        """The digest of the run that nothing happened to, after this many steps."""
        if (key := f"{name} {steps}") not in self._whole:
            run = self.new()  # with a folder: saving takes in what groups at play have finished
            child = forked(lambda: digest(train(config_of(name, max_steps=steps, **changes), run)))
            assert child.code == 0, child.text
            self.forget(run)
            self._whole[key] = child.value
        return self._whole[key]

    def check_resumes(
        self, run: pathlib.Path, out: Outcome, name: str = "inline", may_be_new: bool = False, steps: int = END,
        **changes: Any,
    ) -> None:  # fmt: skip
        """The run goes on and ends as the one that nothing happened to. `may_be_new`: it may hold no checkpoint yet."""
        child = forked(lambda: digest(resume(run, max_steps=steps, checkpoint_every_s=0.0)))
        if may_be_new and child.code == 2 and ("no checkpoint" in child.text or "does not exist" in child.text):
            return
        must_end_as(child, out, lambda: self.whole(name, steps, **changes))
        if child.code == 0 and (left := temporaries(run)):
            out.count("lost", f"left behind: {left}")

    def forget(self, run: pathlib.Path) -> None:
        shutil.rmtree(run.parent, ignore_errors=True)


def config_of(name: str, **changes: Any) -> Config:
    """The config of a run of this name; one that is not in the table is CONFIG with the changes."""
    if RUNS.get(name, {}).get("envs") == "console":
        warm_console()
    return CONFIG.replace(**(RUNS.get(name, {}) | changes))


def judge(child: Child, out: Outcome, codes: tuple[int, ...], what: str) -> None:
    """Count a hang, a crash, a traceback, or an exit code that was not promised."""
    if child.hung:
        out.count("hangs", f"{what}: {child.told}")
    elif "Traceback (most recent call last)" in child.text:
        out.count("tracebacks", f"{what}: {child.told}")
    elif child.code not in codes and (child.code < 0 or child.code not in (0, 2)):
        out.count("crashes", f"{what}: exit code {child.code}: {child.told}")


def must_end_as(child: Child, out: Outcome, whole: Callable[[], Any]) -> None:
    """A run that was resumed: it ended, and as the one that nothing happened to."""
    judge(child, out, codes=(0,), what="resume")
    if child.code == 2:
        out.count("lost", child.told)
    elif child.code == 0 and child.value != whole():
        out.count("different", f"after resume: {child.value}")


def named(out: Outcome, what: str) -> Outcome:
    """The same, with the fault in front of every note."""
    out.notes = [f"{what}: {note}" for note in out.notes]
    return out


def digest(result: Any) -> str:
    """Of everything that a run has learned and will do next."""
    a = result.agent
    h = hashlib.blake2b(digest_size=8)
    arrays = {**a.learner.get_state(), **{f"replay.{k}": v for k, v in a.replay.get_state().items()}}
    arrays |= {f"agent.{k}": v for k, v in _own_arrays(a).items()}
    for name, array in sorted(arrays.items()):
        h.update(name.encode() + np.asarray(array).tobytes())
    words = [a.clock.get_state()]
    words += [getattr(a, name).bit_generator.state for name in ("rng_act", "rng_replay") if hasattr(a, name)]
    h.update(str(words).encode())
    return h.hexdigest()


def _own_arrays(agent: Any) -> dict[str, Any]:
    if not hasattr(agent, "ring"):
        return {"obs": agent.obs, "pending": agent.pending}
    shown = {f"obs.{k}": player.obs for k, player in enumerate(agent.players)}
    chances = {f"chance.{k}": chance.get_state() for k, chance in agent.chances.items()}
    return {**agent.state_tensors(), **shown, **chances, **agent.acting.get_state()}


def temporaries(run: pathlib.Path) -> list[str]:
    """Half-written files and folders in a run."""
    found = [p for p in run.rglob(".*") if p.name not in (".lock",)]
    return [str(p.relative_to(run)) for p in found]


def snapshot(run: pathlib.Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name != ".lock"}


# -- processes

TESTS = pathlib.Path(__file__).resolve().parents[1]


def environ() -> dict[str, str]:
    """For a process that finds the tests' environments."""
    return os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])}


def command(*words: str) -> subprocess.Popen[str]:
    """`dqnitro` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "dqnitro", *words], env=environ(), text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip


def text_of(process: subprocess.Popen[str], out: Outcome, what: str) -> str:
    """Wait for the end of a command; what it printed. Counts a hang and a traceback."""
    patience = Patience(lambda: family(process.pid), idle_s=120.0, cpu_s=600.0)
    while process.poll() is None:
        if patience.over():
            out.count("hangs", what)
            process.kill()
            break
        time.sleep(0.02)
    text = process.communicate()[0]
    if "Traceback" in text:
        out.count("tracebacks", f"{what}: {text[-300:]}")
    return text


def be_the_reaper() -> None:
    """Orphans of any descendant become children of this process, so that they can be counted."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER


def warm_up(folder: pathlib.Path) -> None:
    """Do everything once in this process: what it imports lazily would cost every child two seconds."""
    import torch

    from dqnitro.cli import main

    torch.set_num_threads(1)
    with contextlib.redirect_stdout(io.StringIO()):
        train(CONFIG, folder / "run")
        resume(folder / "run", max_steps=CONFIG.max_steps + 4)
        for words in (["runs", "--root", str(folder)], ["report", str(folder / "run")], ["play", str(folder / "run")]):
            main([*words, "--games", "1"] if words[0] == "play" else words)
        main(["compare", str(folder / "run"), str(folder / "run")])
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page that it visits


@functools.cache
def warm_console() -> None:
    """Load what is compiled once, in the process that forks: it takes two seconds."""
    from dqnitro.atari import AtariVec
    from dqnitro.atari.console import Console

    Console(rom=bytes(4096), cartridge="4K").act(0)
    env = AtariVec("breakout", 2, num_threads=1)
    env.reset(seed=1)
    env.step(np.zeros(2, np.int64))
    env.close()


class Patience:
    """Notices processes that hang: by what they do, not by the clock."""

    def __init__(
        self, processes: Callable[[], list[psutil.Process]], idle_s: float = IDLE_S, cpu_s: float = CPU_S,
        idle_share: float = 0.05,
    ) -> None:  # fmt: skip
        """`idle_share`: of a core, which they use together while nothing happens."""
        self._processes, self._idle_s, self._cpu_s, self._idle_share = processes, idle_s, cpu_s, idle_share
        self._last = time.monotonic()
        self._idled = self._before = 0.0
        self._used: dict[int, float] = {}  # seconds of the CPU, by process

    def begin_again(self) -> None:
        """They have got somewhere: what they did until now does not count any more."""
        self._idled, self._before = 0.0, sum(self._used.values())

    def over(self) -> bool:
        """Have they idled, or worked, for too long? Cheap if asked often."""
        now = time.monotonic()
        elapsed = now - self._last
        if elapsed < LOOK_S:
            return False
        self._last = now
        before, waiting = sum(self._used.values()), False
        for p in self._processes():
            with contextlib.suppress(psutil.Error):
                times = p.cpu_times()
                self._used[p.pid] = times.user + times.system
                waiting = waiting or p.status() in (psutil.STATUS_RUNNING, psutil.STATUS_DISK_SLEEP)
        used = sum(self._used.values())
        if not waiting and used - before < self._idle_share * elapsed:
            self._idled += min(elapsed, 2 * LOOK_S)  # a look that comes late has itself waited for a core
        return self._idled > self._idle_s or used - self._before > self._cpu_s


def family(pid: int) -> list[psutil.Process]:
    """A process and all that descend from it."""
    with contextlib.suppress(psutil.Error):
        one = psutil.Process(pid)
        return [one, *one.children(recursive=True)]
    return []


def has_ended(pid: int) -> bool:
    """Is it gone, or only waiting to be collected?"""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.Error:
        return True


def wait_until(pid: int, condition: Callable[[], Any]) -> bool:
    """Wait for something that a process is about to do: True, or False if it ended or hangs instead."""
    patience = Patience(lambda: family(pid))
    while not condition():
        if has_ended(pid) or patience.over():
            return False
        time.sleep(0.005)
    return True


def forked(work: Callable[[], Any], meddle: Callable[[int], None] | None = None, times: float = 1.0) -> Child:
    """Do something in a forked child; `meddle` gets its process number while it works. Errors end it as a command's.

    `times`: how many times as long as a usual fault it may take.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    place = pathlib.Path(tempfile.mkdtemp(prefix="chaos-"))
    pid = os.fork()
    if pid == 0:
        _child(work, place)
    hung = False
    patience = Patience(lambda: family(pid), IDLE_S * times, CPU_S * times)
    try:
        if meddle is not None:
            wait_until(pid, (place / "text").exists)  # the fork itself is not what is tested
            meddle(pid)
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                break
            if patience.over():
                hung = True
                os.kill(pid, signal.SIGKILL)
                _, status = os.waitpid(pid, 0)
                break
            time.sleep(0.002)
        text = (place / "text").read_text(errors="replace") if (place / "text").exists() else ""
        value = json.loads((place / "value").read_text()) if (place / "value").exists() else None
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Child(os.waitstatus_to_exitcode(status), text, value, hung)


def _child(work: Callable[[], Any], place: pathlib.Path) -> None:
    from dqnitro.errors import DQNitroError

    code = 1
    try:
        text = os.open(place / "text", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for fd in (1, 2):
            os.dup2(text, fd)
        sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            value = work()
            (place / "value").write_text(json.dumps(value))
            code = 0
        except DQNitroError as e:
            print(e, file=sys.stderr)
            code = e.exit_code
        except KeyboardInterrupt:
            code = 130
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 1
        except BaseException:
            traceback.print_exc()
    except KeyboardInterrupt:  # before or after the work
        code = 130
    finally:
        with contextlib.suppress(BaseException):
            sys.stderr.flush()
        os._exit(code)


def count_orphans(out: Outcome, patience_s: float = 10.0) -> None:
    """Processes that outlived the fault. The patience is for those that were told to end and are about to."""
    me = psutil.Process()

    def left() -> list[psutil.Process]:
        return [p for p in me.children(recursive=True) if not _is_over(p)]

    patience = Patience(left, patience_s, 2 * patience_s)
    while left():
        if patience.over():
            break
        time.sleep(0.02)
    for p in left():
        with contextlib.suppress(psutil.Error):
            out.count("orphans", f"{p.name()} ({p.status()}): {' '.join(p.cmdline())[:120]}")
            p.kill()


def _is_over(p: psutil.Process) -> bool:
    try:
        if p.status() == psutil.STATUS_ZOMBIE:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(p.pid, os.WNOHANG)
            return True
        words = " ".join(p.cmdline())
        # Without memory: only the kernel still works at its end.
        return "resource_tracker" in words or (not words and p.memory_info().rss == 0)
    except psutil.Error:
        return True

"""Faults in what stands beside the loop: storage that is elsewhere, evaluations in a process of their own, ranks of one
learner, pieces of the user's own, and code that is kept between starts.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pathlib
import random
import signal
import subprocess
import time
from typing import Any

import psutil
import torch

from chaos.damage import DAMAGES
from chaos.harness import (
    CONFIG,
    END,
    KILLED,
    Kind,
    Outcome,
    World,
    command,
    count_orphans,
    digest,
    family,
    forked,
    judge,
    must_end_as,
    named,
    text_of,
    wait_until,
    warm_console,
)
from dqnitro import own
from dqnitro.callback import Callback
from dqnitro.errors import RankLost, StorageError
from dqnitro.run.processes import watchdog
from dqnitro.session import resume, train
from dqnitro.storage.base import LocalStorage
from dqnitro.storage.by_url import storage_at
from dqnitro.storage.mirror import Mirror
from dqnitro.store import checkpoint
from dqnitro.store import evaluations as stored

# -- storage


class Unsafe:
    """A storage whose operation number `at` fails, or ends the process as with kill -9."""

    def __init__(self, storage: Any, at: int = 0, kill: bool = False) -> None:
        self._storage, self._at, self._kill, self.calls = storage, at, kill, 0

    def _next(self) -> None:
        self.calls += 1
        if self.calls != self._at:
            return
        if self._kill:
            os._exit(KILLED)
        raise StorageError("no connection")

    def files(self, tops: Any) -> Any:
        self._next()
        return self._storage.files(tops)

    def read(self, *place: Any) -> Any:
        self._next()
        return self._storage.read(*place)

    def write(self, name: str, pieces: Any) -> None:
        self._next()
        self._storage.write(name, self._torn(pieces))

    def _torn(self, pieces: Any) -> Any:
        for piece in pieces:
            yield piece[: len(piece) // 2]
            self._next()
            yield piece[len(piece) // 2 :]

    def delete(self, names: Any) -> None:
        for name in names:
            self._next()
            self._storage.delete([name])


class Publish(Callback):
    """Brings the files of a run away after every few ticks, as the process beside a run does."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror, self._ticks = mirror, 0

    def on_tick(self, run: Any, tick: Any) -> None:
        self._ticks += 1
        if self._ticks % 4 == 0:
            with contextlib.suppress(StorageError):
                self._mirror.publish()


def _trained_away(scratch: pathlib.Path, storage: Any) -> int:
    unsafe = storage
    mirror = Mirror(scratch, unsafe, ("s1",), owner="one")
    with contextlib.suppress(StorageError):
        mirror.fetch()
    train(CONFIG.replace(checkpoint_every_s=1e-9), scratch / "s1", callbacks=[Publish(mirror)])
    with contextlib.suppress(StorageError):
        mirror.publish(everything=True)
    return unsafe.calls


def _storage(place: pathlib.Path, i: int) -> Any:
    place.mkdir(exist_ok=True)
    return storage_at(f"file://{place}") if i % 2 else LocalStorage(place)


_calls: dict[int, int] = {}


def storage_fault(world: World, rng: random.Random, i: int) -> Outcome:
    """A storage fails, or the process dies, at an operation: what is there goes on elsewhere to the same weights."""
    out, root = Outcome(), world.new().parent
    if i % 2 not in _calls:
        counted = forked(lambda: _trained_away(root / "counted", Unsafe(_storage(root / "count", i))))
        assert counted.code == 0, counted.text
        _calls[i % 2] = counted.value
    at, kill = rng.randrange(1, _calls[i % 2] + 1), bool(rng.randrange(2))
    scratch, place = root / "scratch", root / "place"
    scratch.mkdir(parents=True)
    child = forked(lambda: _trained_away(scratch, Unsafe(_storage(place, i), at, kill)))
    what = f"{'kill' if kill else 'failure'} at operation {at} of {_calls[i % 2]}, {'URL' if i % 2 else 'folder'}"
    judge(child, out, codes=(0, KILLED), what=what)
    there = bool(list(place.rglob("manifest.json")))

    def fetched() -> None:
        (root / "new").mkdir()
        Mirror(root / "new", _storage(place, i), ("s1",), owner="two").fetch()

    judge(forked(fetched), out, codes=(0,), what="fetch")
    run = root / "new" / "s1"
    if run.exists():
        world.check_resumes(run, out, may_be_new=not there)
    elif there:
        out.count("lost", "there was a checkpoint in the storage")
    world.forget(root / "x")
    return named(out, what)


# -- the user's own pieces


class Once:
    """Does one wrong thing at call number `at`."""

    def __init__(self, at: int = 0, what: Any = None) -> None:
        self.at, self.what, self.calls = at, what, 0

    def __call__(self, right: Any) -> Any:
        self.calls += 1
        if self.calls != self.at:
            return right
        if isinstance(self.what, BaseException):
            raise self.what
        return self.what


WRONG: list[Any] = [
    ValueError("x\ny"), KeyError("door"), RuntimeError(""), MemoryError(), StopIteration(), None, 1.0, "x",
    torch.zeros(3), torch.full((4,), float("nan"), requires_grad=True),
]  # fmt: skip
PIECES = ("loss", "network", "optimizer")


def _register(kind: str, spoil: Once) -> None:
    class Network(torch.nn.Module):
        def __init__(self, shape: Any, n: int) -> None:
            super().__init__()
            self.last = torch.nn.Linear(shape[0] * 6 if len(shape) > 1 else shape[0], n)

        def forward(self, obs: Any) -> Any:
            return spoil(self.last(obs.float().flatten(1)))

    class Descent(torch.optim.SGD):
        def step(self, closure: Any = None) -> Any:
            spoil(None)
            return super().step(closure)

    pieces = {"loss": lambda value, target: spoil((value - target) ** 2), "network": Network, "optimizer": Descent}
    own.put(kind, "chaos", pieces[kind])


def own_piece(world: World, rng: random.Random, i: int) -> Outcome:
    """A loss, network or optimiser does one wrong thing: told in a line, and the same weights once it is repaired."""
    out, run = Outcome(), world.new()
    kind, wrong, at = PIECES[i % len(PIECES)], rng.choice(WRONG), rng.randrange(1, 40)
    _register(kind, Once())
    config = CONFIG.replace(**{kind: "chaos"}, max_steps=END, checkpoint_every_s=1e-9)

    def work(spoil: Once) -> str:
        _register(kind, spoil)
        return digest(train(config, run))

    def repaired() -> str:
        _register(kind, Once())
        return digest(resume(run, max_steps=END))

    def alone() -> str:
        _register(kind, Once())
        return digest(train(config, run.with_name("whole")))

    what = f"{kind}: {wrong!r:.40} at call {at}"
    child = forked(lambda: work(Once(at, wrong)))
    judge(child, out, codes=(0, 2, 3, 5), what=what)
    if child.code == 5 and (run / "checkpoints").exists():
        must_end_as(forked(repaired), out, lambda: forked(alone).value)
    world.forget(run)
    return named(out, what)


# -- evaluations

EVALUATED = {"eval_every_steps": 20, "games_per_eval": 2}
EVALUATION_FAULTS = [
    *((who, number) for who in ("evaluator", "trainer") for number in (signal.SIGKILL, signal.SIGSTOP)),
    ("trainer", signal.SIGINT), ("weights", 0),
]  # fmt: skip


def _words(p: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):  # it has just ended
        return " ".join(p.cmdline())
    return ""


def _evaluators(pid: int) -> list[int]:
    return [p.pid for p in family(pid) if "dqnitro.evaluation" in _words(p)]


def evaluation_fault(world: World, rng: random.Random, i: int) -> Outcome:
    """The process that plays fresh games, or the run, is killed or stopped: the same weights, all evaluations."""
    out, run = Outcome(faults=0), world.new()
    who, number = EVALUATION_FAULTS[i % len(EVALUATION_FAULTS)]
    delay = rng.uniform(0, 3)

    def strike(pid: int) -> None:
        if not wait_until(pid, lambda: _evaluators(pid)):
            return
        time.sleep(delay)
        if who == "weights":
            for path in (run / stored.FOLDER).glob("*.safetensors"):
                with contextlib.suppress(OSError):
                    DAMAGES[rng.randrange(len(DAMAGES))](path, rng)
                    out.faults = 1
            return
        for target in _evaluators(pid) if who == "evaluator" else [pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(target, number)
                out.faults = 1
        if who == "trainer" and number == signal.SIGSTOP:
            time.sleep(0.5)
            os.kill(pid, signal.SIGCONT)

    def work() -> str:
        watchdog.STOPPED_S = 1.0
        result = train(CONFIG.replace(max_steps=END, **EVALUATED), run)
        if result.exit_code:
            raise SystemExit(result.exit_code)
        return digest(result)

    what = f"{who}, {signal.Signals(number).name if number else 'damaged'} after {delay:.1f} s"
    child = forked(work, strike, times=2)
    codes = (
        {signal.SIGKILL: (-signal.SIGKILL,), signal.SIGINT: (130,)}.get(signal.Signals(number), ()) if number else ()
    )
    judge(child, out, codes=(0, *(codes if who == "trainer" else ())), what=what)
    if child.code == 0 and child.value != world.whole("inline"):
        out.count("different", "with evaluations")
    # A run that was interrupted after its training leaves evaluations for the next resume.
    if (child.code or number == signal.SIGINT) and (run / "checkpoints").exists():
        must_end_as(forked(lambda: digest(resume(run, max_steps=END)), times=2), out, world.whole)
    points = [e.steps for e in stored.read_all(run)]
    if who != "weights" and checkpoint.complete(run / "checkpoints") and points != [20, 40, END]:
        out.count("lost", f"evaluations at {points}")
    world.forget(run)
    return named(out, what)


# -- ranks of one learner

RANKS_END = 4000  # steps of every run; it is struck in the first half
RANKS = ["train", "support.fakes_envs:dqnitro_test/Catch-v0", "--recipe", "baseline", "--envs", "gym-sync", "--images",
         "grey", "--frame-stack", "2", "--screen-size", "36", "--gpus", "2", "--device", "cpu", "--n-envs", "4",
         "--batch-size", "8", "--first-fill-steps", "100", "--replay-capacity", "400", "--network", "small",
         "--hidden-units", "8", "--steps-per-update", "16", "--torch-threads", "1", "--target-sync-steps", "200",
         "--checkpoint-every-s", "0.1", "--steps", str(RANKS_END), "--no-video", "--quiet"]  # fmt: skip
RANK_FAULTS = [
    ("rank 1", signal.SIGKILL), ("rank 1", signal.SIGSTOP), ("command", signal.SIGKILL), ("command", signal.SIGINT),
    ("rank 0", signal.SIGKILL), ("rank 0", signal.SIGSTOP), ("command", signal.SIGTERM),
]  # fmt: skip


def rank_fault(world: World, rng: random.Random, i: int) -> Outcome:
    """`train --gpus 2` on the CPU: a rank or the command is killed, stopped or interrupted. `--resume`, or every second
    time `--restarts`, brings the run to the same weights.
    """
    out, run = Outcome(), world.new()
    who, number = RANK_FAULTS[i % len(RANK_FAULTS)]
    restarts = who != "command" and i // len(RANK_FAULTS) % 2 == 1
    what = f"{who}, {number.name}{', --restarts' * restarts}"
    steps, delay = rng.randrange(RANKS_END // 2), rng.uniform(0, 0.1)
    process = command(*RANKS, "--run-dir", str(run), *["--restarts", "1"] * restarts)
    if not wait_until(process.pid, lambda: _saved_steps(run) > steps):
        out.count("crashes", f"{what}: it never began: {text_of(process, out, what)[-300:]}")
        return out
    time.sleep(delay)
    with contextlib.suppress(psutil.Error):  # it has ended
        for target in _members(process.pid, who):
            target.send_signal(number)
    text = text_of(process, out, what)
    ended = process.returncode == 0
    out.faults = int(not ended or "was lost" in text)
    if process.returncode not in ((0,) if restarts else (0, _promised(who, number))):
        out.count("crashes", f"{what}: exit code {process.returncode}: {text[-300:]}")
    count_orphans(out, 30.0)
    if (ended or _ranks_resumed(run, out)) and _learned(run) != _learned_undisturbed(world):
        out.count("different", "after --restarts" if ended else "after resume")
    world.forget(run)
    return named(out, what)


def _saved_steps(run: pathlib.Path) -> int:
    found = checkpoint.complete(run / "checkpoints")
    return int(found[-1].name.partition(".")[0]) if found else -1


def _members(pid: int, who: str) -> list[psutil.Process]:
    """The process of the command, or of one of its ranks if that is there."""
    process = psutil.Process(pid)
    if who == "command":
        return [process]
    return [p for p in process.children() if f"rank {p.environ().get('RANK')}" == who]


def _promised(who: str, number: signal.Signals) -> int:
    """The exit code of the command."""
    return RankLost.exit_code if who != "command" else -number if number == signal.SIGKILL else 128 + number


def _ranks_resumed(run: pathlib.Path, out: Outcome) -> bool:
    again = command("train", "--resume", str(run), "--trust", "--steps", str(RANKS_END), "--no-video", "--quiet")
    text = text_of(again, out, "resume")
    if again.returncode:
        out.count("lost", f"resume: exit code {again.returncode}: {text[-300:]}")
    return again.returncode == 0


def _learned(run: pathlib.Path) -> dict[str, str]:
    """Checksums of weights and optimiser, and of what each rank remembers and will do next."""
    files = checkpoint.read_manifest(checkpoint.complete(run / "checkpoints")[-1])["files"]
    return {name: facts["blake2b"] for name, facts in files.items()}


@functools.cache
def _learned_undisturbed(world: World) -> dict[str, str]:
    """The same of the run that nothing happened to."""
    run, out = world.new(), Outcome()
    process = command(*RANKS, "--run-dir", str(run))
    text = text_of(process, out, "undisturbed")
    assert process.returncode == 0 and not out.notes, text
    learned = _learned(run)
    world.forget(run)
    return learned


# -- code that is kept between starts

KERNEL = """
from dqnitro.atari.jit.code_cache import kept

@kept()
def add(a, b):
    return a + 2 * b
"""


@functools.cache
def _caches(root: pathlib.Path) -> pathlib.Path:
    """A folder with a compiled function and a translated game."""
    warm_console()
    place = root / "caches"
    place.mkdir()
    (place / "kernel.py").write_text(KERNEL)
    child = forked(lambda: _use_caches(place))
    assert child.code == 0, child.text
    return place


def _use_caches(place: pathlib.Path) -> list[Any]:
    """What the function returns, and whether the game's program is the one that was kept."""
    import numba

    from dqnitro.atari.games import roms
    from dqnitro.atari.translate import program

    numba.config.CACHE_DIR = str(place / "numba")  # type: ignore[attr-defined]
    spec = importlib.util.spec_from_file_location("kernel", place / "kernel.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    image = bytes([0xA9, 1, 0x85, 2, 0x4C, 0, 0xF0]) + bytes(4085) + bytes([0, 0xF0, 0, 0xF0])
    made = program._made(roms.build("", image[:4096], "4K"), place / "program.bin", child=False)
    return [module.add(1, 2), made._keep[1].tolist()[:16]]


def damaged_cache(world: World, rng: random.Random, i: int) -> Outcome:
    """Kept code is damaged: made again, with a line, and the same results."""
    out, place = Outcome(), _caches(world.root)
    mine = world.new().parent
    child = forked(lambda: subprocess.run(["cp", "-a", f"{place}/.", str(mine)], check=True) and None)
    every = sorted(p for p in mine.rglob("*") if p.is_file() and p.suffix in (".nbi", ".nbc", ".bin"))
    path = every[i % len(every)]
    what = f"{path.suffix}: {rng.choice(DAMAGES)(path, rng)}"
    before, child = forked(lambda: _use_caches(place)), forked(lambda: _use_caches(mine))
    judge(child, out, codes=(0,), what=what)
    if child.code == 0 and child.value != before.value:
        out.count("different", what)
    world.forget(mine / "x")
    return named(out, what)


KINDS = [
    Kind("storage", "a storage fails, or the process dies, at an operation", storage_fault, short=10, long=60),
    Kind("own piece", "one wrong thing of a loss, network or optimiser", own_piece, short=9, long=45),
    Kind("evaluation", "the process that plays fresh games, and the run", evaluation_fault, 0, 12, seconds=15),
    Kind("ranks", "ranks and the command of `--gpus 2` on the CPU", rank_fault, 0, 4 * len(RANK_FAULTS), seconds=30),
    Kind("cache", "damaged compiled code and translated games", damaged_cache, short=6, long=30, seconds=2),
]

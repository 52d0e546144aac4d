"""Translated games on a GPU beside interpreted ones: `python -m dqnitro.atari.cuda.measure check|time [--games ...]`

`check`: consoles of each game are stepped translated and interpreted, on the GPU and on the CPU; every number of the
consoles' state, RAM and screens, and everything that a step returns, must be equal. `time`: milliseconds of a vector
step, for several numbers of consoles, ways of sharing a warp and registers of a thread, in turns; all of them play the
same games from the same states, so they must also end with the same.

A way that fails is reported, and the others go on.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..chips.layout import S_LATCH
from ..games import roms
from ..vec import AtariVec
from . import build
from .placement import TOGETHER_FROM, registers_of
from .program import key
from .vec import KEPT, CudaVec

GAMES = "pong beam_rider montezuma_revenge space_invaders"
SIZES = "256 1024 8192 32768"
# Consoles of a warp, registers of a thread; 0 chooses.
WAYS = "interpreted:0:0 1:128 1:64 2:128 2:64 4:64 8:64 32:64"


class Way(NamedTuple):
    """How consoles are run."""

    translated: bool
    per_warp: int
    registers: int

    def __str__(self) -> str:
        name = "translated" if self.translated else "interpreted"
        return f"{name} {self.per_warp or 'auto'}/warp {self.registers or 'auto'} reg"

    @property
    def together(self) -> bool:
        return self.per_warp >= TOGETHER_FROM

    @property
    def chosen_registers(self) -> int:
        return self.registers or registers_of(self.per_warp)


def way(text: str) -> Way:
    parts = text.removeprefix("interpreted:").split(":")
    return Way(not text.startswith("interpreted"), int(parts[0]), int(parts[1]))


@contextlib.contextmanager
def reported(what: str, failed: list[str]) -> Iterator[None]:
    """A failure is a line and an entry of the list."""
    try:
        yield
    except Exception as error:
        failed.append(what)
        print(f"FAILED {what}: {error!r}"[:600], flush=True)
        print("".join(traceback.format_exc().splitlines(keepends=True)[-4:]), file=sys.stderr, flush=True)


def prepare(games: list[str], ways: list[Way]) -> None:
    """Translate all games for all ways at the same time; what fails here is reported where it is used."""
    import torch

    capability = torch.cuda.get_device_capability()
    began = time.perf_counter()
    for registers in sorted({w.chosen_registers for w in ways}):
        build.build(capability, registers)
    print(f"the console: {time.perf_counter() - began:.1f} s", flush=True)
    store = build.Store(capability)
    wanted = {(game, w.chosen_registers, w.together) for game in games for w in ways if w.translated}

    def make(one: tuple[str, int, bool]) -> str:
        game, registers, together = one
        rom, start = roms.load(game), time.perf_counter()
        name = f"{registers}-{key(rom, capability, together)}.cubin"
        if store.load(name) is None:
            with contextlib.suppress(Exception):
                store.save(name, build._made(store, capability, registers, rom, together))
        return f"{game}/{registers}/{int(together)}: {time.perf_counter() - start:.1f} s"

    began = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        print("; ".join(pool.map(make, sorted(wanted))))
    print(f"the games: {time.perf_counter() - began:.1f} s", flush=True)


def made(game: str, n: int, one: Way, **options: Any) -> CudaVec:
    vec = CudaVec(
        game, n, translated=one.translated, machines_per_warp=one.per_warp, registers=one.registers, **options
    )
    assert vec.translated == one.translated, "it stayed interpreted"
    return vec


def differences(a: CudaVec, b: CudaVec) -> list[str]:
    """What two vectors of consoles do not share. The bus latch is only kept where somebody could see it."""
    torch, found = a._torch, []
    for name in KEPT:
        x, y = a._tensors[name], b._tensors[name]
        if name == "state":
            x, y = x.clone(), y.clone()
            x[:, S_LATCH] = y[:, S_LATCH] = 0
            lanes = torch.arange(x.shape[0] * 32, device=x.device).view(-1, 1, 32) < a.num_envs
            x, y = torch.where(lanes, x, 0), torch.where(lanes, y, 0)
            numbers = (x != y).any(0).any(1).nonzero().flatten().tolist()
            if numbers:
                found.append(f"state {numbers}")
        elif name == "screen":  # the third is scratch memory
            if not torch.equal(x[:, :2], y[:, :2]):
                found.append(name)
        elif not torch.equal(x, y):
            found.append(name)
    return found


def check_game(game: str, one: Way, n: int, steps: int) -> int:
    """Step a game in three ways; returns how many episodes ended."""
    options = {"max_num_frames_per_episode": 300, "repeat_action_probability": 0.25}
    ours, theirs = made(game, n, one, **options), made(game, n, Way(False, one.per_warp, 0), **options)
    cpu: Any = AtariVec(game, n, num_threads=4, **options)
    first: list[Any] = [v.reset(seed=5)[0] for v in (ours, theirs, cpu)]
    assert np.array_equal(first[0].cpu().numpy(), first[2]), "the first observation differs from the CPU's"
    assert not (found := differences(ours, theirs)), f"after reset: {found}"
    rng, ends = np.random.default_rng(1), 0
    for t in range(steps):
        actions = rng.integers(0, cpu.single_action_space.n, n)
        a: Any = ours.step(actions)
        theirs.step(actions)
        c = cpu.step(actions)
        for name, x, y in zip(("observation", "reward", "terminated", "truncated"), a, c, strict=False):
            assert np.array_equal(x.cpu().numpy(), y), f"step {t}: {name} differs from the CPU's"
        assert not (found := differences(ours, theirs)), f"step {t}: {found}"
        ends += int((c[2] | c[3]).sum())
    cpu.close()
    return ends


def check(games: list[str], ways: list[Way], steps: int) -> list[str]:
    failed: list[str] = []
    for game in games:
        for one in (w for w in ways if w.translated):
            with reported(f"{game}, {one}", failed):
                began = time.perf_counter()
                ends = check_game(game, one, 40 if one.together else 6, steps)
                print(f"equal: {game}, {one}: {ends} ends, {time.perf_counter() - began:.1f} s", flush=True)
    return failed


def _steps(vec: CudaVec, actions: Any) -> float:
    """Milliseconds of a step."""
    torch = vec._torch
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for chosen in actions:
        vec.actions.copy_(chosen)
        vec.launch_step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / len(actions)


def time_size(game: str, n: int, ways: list[Way], rounds: int, steps: int, failed: list[str]) -> list[dict[str, Any]]:
    import torch

    vecs: dict[Way, CudaVec] = {}
    for one in ways:
        with reported(f"{game}, {n}, {one}", failed):
            vecs[one] = made(game, n, one, resets_aside=True)
    if not vecs:
        return []
    first = next(iter(vecs.values()))
    first.reset(seed=1)
    torch.manual_seed(1)
    count = int(first.single_action_space.n)  # type: ignore[attr-defined]
    scatter = torch.randint(0, count, (120, n), device="cuda")
    _steps(first, scatter)
    for vec in vecs.values():
        for name in KEPT:
            vec._tensors[name].copy_(first._tensors[name])
        vec._tensors["commands"].copy_(first._tensors["commands"])
        vec._began = True
    times: dict[Way, list[float]] = {one: [] for one in vecs}
    for _ in range(rounds):
        actions = torch.randint(0, count, (steps, n), device="cuda")
        for one, vec in list(vecs.items()):
            with reported(f"{game}, {n}, {one}", failed):
                times[one].append(_steps(vec, actions))
    out = []
    for one, vec in vecs.items():
        found = differences(vec, first) if times[one] else ["all"]
        if found:
            failed.append(f"{game}, {n}, {one}")
        ms = statistics.median(times[one]) if times[one] else float("nan")
        out.append({"game": game, "consoles": n, "way": str(one), "ms": round(ms, 3), "differs": found})
        rate = 4 * n / ms / 1000
        print(f"{game:18} {n:6} {one!s:32} {ms:8.2f} ms {rate:7.2f} M frames/s  {found or ''}", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["check", "time"])
    parser.add_argument("--games", default="")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--ways", default=WAYS)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", default="")
    asked = parser.parse_args()
    games = [*(asked.games or (GAMES if asked.what == "check" else "pong")).split()]
    ways = [way(text) for text in asked.ways.split()]
    failed: list[str] = []
    with reported("preparing", failed):
        prepare(games, ways)
    if asked.what == "check":
        failed += check(games, ways, asked.steps or 60)
    else:
        rows = []
        for game in games:
            for n in map(int, asked.sizes.split()):
                with reported(f"{game}, {n}", failed):
                    rows += time_size(game, n, ways, asked.rounds, asked.steps or 10, failed)
        if asked.out:
            Path(asked.out).write_text(json.dumps(rows, indent=1))
    print("all equal" if not failed else f"FAILED: {failed}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()

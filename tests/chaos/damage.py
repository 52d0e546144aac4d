"""Bit flips and structural damage in every file of a run, each followed by runs, report, compare, play and resume."""

from __future__ import annotations

import json
import pathlib
import random
from typing import Any

from chaos.harness import CONFIG, END, Kind, Outcome, World, digest, forked, judge, named, snapshot
from dqnitro.cli import main
from dqnitro.common.files import sealed
from dqnitro.session import resume

VALUES: list[Any] = [
    None, True, -1, 0, 1.5, 10**30, -(10**30), float("nan"), float("inf"), "", "x", "1", [], [1], {}, {"x": 1}, [None],
    "pong", "../x", "\0", ["no-grad", 5], 1e-300, 2**31, "CartPole-v1", "a" * 5000,
]  # fmt: skip


def flip_bits(path: pathlib.Path, rng: random.Random) -> str:
    raw = bytearray(path.read_bytes())
    for _ in range(n := rng.choice([1, 1, 1, 8])):
        raw[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
    path.write_bytes(raw)
    return f"{n} flipped bits"


def cut(path: pathlib.Path, rng: random.Random) -> str:
    raw = path.read_bytes()
    path.write_bytes(raw[: (n := rng.randrange(len(raw)))])
    return f"cut to {n} of {len(raw)} bytes"


def empty(path: pathlib.Path, rng: random.Random) -> str:
    path.write_bytes(b"")
    return "empty"


def missing(path: pathlib.Path, rng: random.Random) -> str:
    path.unlink()
    return "missing"


def folder(path: pathlib.Path, rng: random.Random) -> str:
    path.unlink()
    path.mkdir()
    return "a folder"


def rubbish(path: pathlib.Path, rng: random.Random) -> str:
    path.write_bytes(rng.randbytes(rng.choice([1, 30, 5000])))
    return "rubbish"


def zeroed(path: pathlib.Path, rng: random.Random) -> str:
    raw = bytearray(path.read_bytes())
    at = rng.randrange(len(raw))
    raw[at : at + 512] = bytes(len(raw[at : at + 512]))
    path.write_bytes(raw)
    return f"zeros from byte {at}"


def another(path: pathlib.Path, rng: random.Random) -> str:
    other = rng.choice([p for p in path.parent.iterdir() if p.is_file() and p.suffix == path.suffix])
    path.write_bytes(other.read_bytes())
    return f"a copy of {other.name}"


DAMAGES = [flip_bits, flip_bits, flip_bits, cut, empty, missing, folder, rubbish, zeroed, another]


def files(run: pathlib.Path) -> list[pathlib.Path]:
    return sorted(p for p in run.rglob("*") if p.is_file() and p.name != ".lock" and p.stat().st_size)


def damaged_file(world: World, rng: random.Random, i: int, name: str = "inline") -> Outcome:
    out, run = Outcome(), world.copy(name)
    every = files(run)
    path = every[i % len(every)]
    what = f"{path.relative_to(run)}: {rng.choice(DAMAGES)(path, rng)}"
    _use(world, run, out, name, is_harmless=False)
    world.forget(run)
    return named(out, what)


def damaged_structure(world: World, rng: random.Random, i: int, name: str = "inline") -> Outcome:
    """Another value, a missing key or a moved piece in a JSON file, mostly with a checksum that agrees."""
    out, run = Outcome(), world.copy(name)
    every = [p for p in files(run) if p.suffix in (".json", ".jsonl")]
    path = every[i % len(every)]
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    k = rng.randrange(len(lines))
    data = json.loads(lines[k])
    where = _change(data, rng)
    signed = path.suffix == ".json" and rng.random() < 0.8
    lines[k] = json.dumps(sealed(data) if signed else data)
    path.write_text("\n".join(lines) + "\n")
    _use(world, run, out, name, is_harmless=signed)
    world.forget(run)
    return named(out, f"{path.relative_to(run)}: {where}{', signed' if signed else ''}")


def _change(data: Any, rng: random.Random) -> str:
    """Change one place of a JSON value."""
    place, way = data, []
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        way.append(str(key))
        inner = place[key]
        if not isinstance(inner, dict | list) or not inner or rng.random() < 0.25:
            break
        place = inner
    if rng.random() < 0.25:
        del place[key]
        return f"{'.'.join(way)} is gone"
    place[key] = rng.choice(VALUES)
    return f"{'.'.join(way)} is {str(place[key])[:40]!r}"


def damaged_arrays(world: World, rng: random.Random, i: int, name: str = "inline") -> Outcome:
    """Arrays of other shapes and types, missing and additional ones, with checksums that agree."""
    out, run = Outcome(), world.copy(name)

    def tamper() -> str:
        import numpy as np

        from dqnitro.store import checkpoint

        arrays, manifest = checkpoint.load(run)
        group = rng.choice(sorted(arrays))
        key = rng.choice(sorted(arrays[group]))
        a = arrays[group][key]
        changes = {
            "gone": lambda: None, "longer": lambda: np.concatenate([a.reshape(-1), a.reshape(-1)]),
            "empty": lambda: a.reshape(-1)[:0], "float64": lambda: a.astype(np.float64),
            "int8": lambda: a.astype(np.int8), "huge": lambda: np.full(a.shape, 2**62),
            "minus one": lambda: np.full_like(a, -1) if a.dtype.kind not in "bu" else ~a,
            "one more axis": lambda: a[None], "flat": lambda: a.reshape(-1),
            "nan": lambda: np.full(a.shape, np.nan, np.float32),
        }  # fmt: skip
        word = rng.choice(sorted(changes))
        with np.errstate(all="ignore"):
            new = changes[word]()
        arrays[group].pop(key)
        if new is not None:
            arrays[group][key] = new
        record = {k: v for k, v in manifest.items() if k not in ("magic", "format", "steps", "files", "checksum")}
        checkpoint.save(run / "checkpoints", manifest["steps"], arrays, record)
        return f"{group}.{key} {word}"

    child = forked(tamper)
    assert child.code == 0, child.text
    _use(world, run, out, name, is_harmless=True)
    world.forget(run)
    return named(out, str(child.value))


def _use(world: World, run: pathlib.Path, out: Outcome, name: str, is_harmless: bool) -> None:
    """Every command takes the run or refuses it in a line. `is_harmless`: somebody signed it, so that it may differ."""
    todo = [
        ["runs", "--root", str(run.parent)], ["report", str(run)], ["compare", str(run), str(world.stored(name))],
        ["play", str(run), "--games", "1"],
    ]  # fmt: skip

    def read() -> None:
        for words in todo:
            print(words[0])
            if (code := main(words)) not in (0, 2):
                raise SystemExit(code)

    judge(forked(read), out, codes=(0, 2), what="runs, report, compare, play")
    before = snapshot(run)
    child = forked(lambda: digest(resume(run, max_steps=END, checkpoint_every_s=0.0)))
    judge(child, out, codes=(0, 2, 3, 5), what="resume")
    if child.code == 2 and snapshot(run) != before:
        changed = [k for k, v in snapshot(run).items() if before.get(k) != v]
        out.count("lost", f"resume refused the run and changed {changed}")
    if child.code == 0 and not is_harmless and child.value != world.whole(name):
        out.count("different", "resumed from damaged files")


assert CONFIG.max_steps < END
KINDS = [
    Kind("damaged file", "flipped, cut, missing, swapped: every file of a run", damaged_file, short=52, long=140),
    Kind("damaged structure", "other values in JSON, with checksums that agree", damaged_structure, short=30, long=100),
    Kind("damaged arrays", "other shapes and types, with checksums that agree", damaged_arrays, short=30, long=60),
]

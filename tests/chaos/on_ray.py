"""Faults in a run whose players are on the nodes of a Ray cluster; `ray_session` makes them, many in each session."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys

from chaos.harness import Kind, Outcome, World
from chaos.ray_session import NO_RAY, NoRay

TESTS = pathlib.Path(__file__).resolve().parents[1]
FAULTS, MOST = 25, 100  # of a session: one cluster, and runs until so many were made
PROTOCOL = (
    "Kind cluster: three Ray nodes of one CPU each on this machine, runs with three players, each compared with the "
    "inline loop with the same ages. Nodes that were killed are replaced by new ones, drivers that ended are started "
    "again and resume. The head node is spared. A hang is a session whose processes idle for 60 s, or work for 300 s, "
    "without a step; time in which they wait for a core counts as neither. Segments left in /dev/shm count as lost. "
    "measured_s: the longest time without progress between a fault and the next one."
)
THERE = (
    "Kind cluster with --address: a cluster that was there, one run with three players and three whole runs in turn. "
    "Struck were these and their driver, and with --strike-nodes nodes other than the head; faults were made for so "
    "many --minutes. Each run with players is compared with the inline loop with the same ages, each whole run with "
    "the one that is trained alone on the machine of the driver. Orphans are looked for on the nodes that are left."
)
SESSION_S = 4 * 3600.0  # a session judges itself by its progress; this is for one that cannot


def cluster_faults(world: World, rng: random.Random, i: int) -> Outcome:
    """A cluster of three nodes on this machine; players, nodes and the driver are killed, stopped, cut off."""
    folder = world.new().parent
    out = session(folder, rng.getrandbits(32), ["--faults", str(FAULTS)])
    world.forget(folder / "run")
    return out


def aimed(words: list[str]) -> Kind:
    """The same kind on a cluster that is there: one session, with a time limit of its own."""

    def faults(world: World, rng: random.Random, i: int) -> Outcome:
        folder = world.new().parent
        out = session(folder, rng.getrandbits(32), ["--faults", str(10**6), *words], shown=True)
        world.forget(folder / "run")
        return out

    return Kind("cluster", "runs on a cluster that is there", faults, 0, 1, apart=True, once=True)


def session(folder: pathlib.Path, seed: int, words: list[str], shown: bool = False) -> Outcome:
    """One session in a process of its own, which has used Ray afterwards. `shown`: what it tells is for the user."""
    command = [sys.executable, "-m", "chaos.ray_session", str(folder), "--seed", str(seed), *words]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    errors = None if shown else subprocess.PIPE
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
        try:
            text, errors = process.communicate(timeout=SESSION_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out = Outcome()
            out.count("hangs", f"a session of more than {SESSION_S / 3600:.0f} hours")
            return out
    if process.returncode == NO_RAY:
        raise NoRay(errors.strip().splitlines()[-1])
    if shown and process.returncode in (2, 130):  # it has said why
        sys.exit(process.returncode)
    if process.returncode:
        raise RuntimeError(f"the session itself failed: {(errors or '')[-2000:]}")
    return Outcome(**json.loads(text.strip().splitlines()[-1]))


KINDS = [
    Kind("cluster", "players, nodes and driver of runner cluster", cluster_faults, 0, MOST, seconds=20, apart=True)
]

"""Faults in a run whose players are on the nodes of a Ray cluster; `ray_session` makes them, many in each session."""

from __future__ import annotations

import json
import os
import pathlib
import random
import subprocess
import sys

from chaos.harness import Kind, Outcome, World

TESTS = pathlib.Path(__file__).resolve().parents[1]
EVERY_S = 1.0  # between two faults, on average, besides the time that the run takes to recover
STEPS = 6000  # of a run: some twenty faults
PROTOCOL = (
    "Kind cluster: three Ray nodes of one CPU each on this machine, one run with three players, compared with the "
    "inline loop with the same ages. Nodes that were killed are replaced by new ones, drivers that ended are started "
    "again and resume. The head node is spared. A hang is 180 s without a step; segments left in /dev/shm count as "
    "lost. measured_s: the longest time without progress between a fault and the next one."
)
SESSION_S = 2400.0  # a session that takes longer hangs


def cluster_faults(world: World, rng: random.Random, i: int) -> Outcome:
    """A cluster of three nodes on this machine; players, nodes and the driver are killed, stopped, cut off."""
    folder = world.new().parent
    words = [sys.executable, "-m", "chaos.ray_session", str(rng.getrandbits(32)), str(EVERY_S), str(STEPS), str(folder)]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])}
    with subprocess.Popen(words, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            text, errors = process.communicate(timeout=SESSION_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out = Outcome()
            out.count("hangs", f"a session of more than {SESSION_S:.0f} s")
            return out
    if process.returncode:
        raise RuntimeError(f"the session itself failed: {errors[-2000:]}")
    out = Outcome(**json.loads(text.strip().splitlines()[-1]))
    world.forget(folder / "run")
    return out


KINDS = [Kind("cluster", "players, nodes and driver of runner cluster", cluster_faults, 0, 100, seconds=20, apart=True)]

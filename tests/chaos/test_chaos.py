"""The short form of the campaign (`python -m chaos --short`), and that it can fail; `make chaos` is the long one."""

import os
import subprocess
import sys

import pytest

from chaos.harness import COLUMNS, Outcome, World, forked
from chaos.saves import SAVES, Saboteur

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def chaos(*words: str) -> subprocess.CompletedProcess[str]:
    environ = os.environ | {"PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
    return subprocess.run([sys.executable, "-m", "chaos", *words], env=environ, text=True, capture_output=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every fault is made in a forked child: run it on Linux or macOS")
@pytest.mark.long
def test_some_hundred_faults_of_all_kinds_cost_nothing():
    out = chaos("--short")
    assert out.returncode == 0, out.stdout + out.stderr
    total = out.stdout.strip().splitlines()[-1].split()
    assert int(total[1]) >= 300 and total[2:8] == ["0"] * len(COLUMNS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="every fault is made in a forked child: run it on Linux or macOS")
def test_the_campaign_sees_what_it_is_there_to_see(tmp_path, monkeypatch):
    """A lost checkpoint, a different run, a traceback and a crash, made on purpose, are counted."""
    world = World(tmp_path)
    out, run = Outcome(), world.copy()
    for path in (run / "checkpoints").glob("*/manifest.json"):
        path.unlink()
    world.check_resumes(run, out)
    assert out.bad["lost"] == 1
    out, run = Outcome(), world.copy("other seed", seed=2)
    world.check_resumes(run, out)
    assert out.bad["different"] == 1
    out, run = Outcome(), world.copy()
    monkeypatch.setattr("dqnitro.store.checkpoint.load", lambda *_: {}["no such key"])
    world.check_resumes(run, out)
    assert out.bad["tracebacks"] == 1
    monkeypatch.setattr("dqnitro.store.checkpoint.load", lambda *_: os.kill(os.getpid(), 9))
    world.check_resumes(run, out := Outcome())
    assert out.bad["crashes"] == 1

    def sabotaged() -> int:
        saboteur = Saboteur(tmp_path / "new", 10**9)
        saboteur.install()
        SAVES["first"][1](tmp_path / "new")
        return saboteur.calls

    monkeypatch.undo()
    assert forked(sabotaged).value > 40, "files are opened, written, flushed, renamed and removed"

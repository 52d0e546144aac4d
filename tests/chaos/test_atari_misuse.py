"""A short form of the campaign: `AtariVec` in wrong hands, in processes of its own, because the worst is a crash."""

import os
import pathlib
import subprocess
import sys

import pytest

TESTS = pathlib.Path(__file__).parents[1]
SRC = TESTS.parent / "src"


@pytest.mark.parametrize(("options", "seed"), [((), 1), (("-O",), 2)], ids=["plain", "without assert"])
def test_misuse_is_an_exception_and_never_the_end_of_the_process(options, seed):
    command = [sys.executable, *options, "-m", "chaos.atari_misuse", str(seed), "240"]
    done = subprocess.run(
        command, cwd=TESTS, env=os.environ | {"PYTHONPATH": f"{SRC}{os.pathsep}{TESTS}"},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    assert done.stdout.splitlines()[-1] == "240 faults, 0 broken promises"

"""Kernels for a GPU, run without one: Triton's interpreter does what they say, in float32."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).parents[1] / "support" / "own_kernels_checks.py"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed (the extra dev has it)")
@pytest.mark.long
@pytest.mark.parametrize("part", ["values", "distributions"])
def test_the_kernels_do_what_autograd_does(part):
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(CHECKS), part], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "all checks passed" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]

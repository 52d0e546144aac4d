"""The kernels that keep the books of `hybrid` on a card, run without one: Triton's interpreter does what they say."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = Path(__file__).parents[1] / "books_checks.py"


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed (the extra dev has it)")
def test_the_books_are_kept_as_torch_keeps_them():
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(CHECKS)], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "all checks passed" in done.stdout, done.stdout[-2000:] + done.stderr[-4000:]

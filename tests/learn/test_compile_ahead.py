"""Triton's kernels compiled at the same time: for a GPU that is not here, in a process of its own."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver


class Hopper:
    def get_current_target(self):
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self):
        return 0

    def get_current_stream(self, device=0):
        return 0


driver.set_active(Hopper())
from dqnitro.learn.gpu import compile_ahead
from support.own_kernels_checks import config_of, pair

own, _, _, ring = pair(config_of("dqn", 3), "cpu", torch.bfloat16, 1)
before = own.said_acting.clone()
said = []
compile_ahead.show = said.append
own.compile_for(lambda: own.values(ring, None, own.weights))
print(len(compile_ahead.spans), said[-1] == "", said[-2].rsplit(",", 1)[0], torch.equal(own.said_acting, before))
own.compile_for(lambda: own.values(ring, None, own.weights))
print(len(compile_ahead.spans))
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed (the extra dev has it)")
def test_the_kernels_of_a_pass_are_compiled_and_not_started(tmp_path):
    tests = str(Path(__file__).parents[1])
    paths = os.pathsep.join([tests, *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": paths}
    env.pop("TRITON_INTERPRET", None)
    done = subprocess.run([sys.executable, "-c", CODE], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = done.stdout.strip().splitlines()
    assert first == "1 True compiling the kernels of the update: 4 kernels True"
    assert second == "1", "nothing was new"
    assert len(list(tmp_path.rglob("*.cubin"))) == 4

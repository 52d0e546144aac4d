"""Process tuning: a CPU that claims AMX without tiles must not kill the process; glibc takes the memory options."""

import platform
import subprocess
import sys

import pytest

from dqnitro.process_setup import amx_is_broken, keep_freed_memory, prepare

CORE = "processor\t: 0\ncpuid level\t: {level}\nflags\t\t: fpu {flags} sse\n\nprocessor\t: 1\ncpuid level\t: 99\n"


@pytest.mark.parametrize(
    ("flags", "level", "broken"),
    [
        ("amx_tile amx_bf16", 28, True),
        ("amx_tile amx_bf16", 32, False),
        ("avx512f", 28, False),
        ("amx_tile", "", False),
    ],
)
def test_amx_without_tile_palettes_is_broken(flags, level, broken):
    assert amx_is_broken(CORE.format(flags=flags, level=level)) is broken


def test_what_says_nothing_is_not_broken():
    assert not amx_is_broken("") and not amx_is_broken("Hardware: something else")


def test_what_the_user_has_set_stays(monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    prepare()
    import os

    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "SSE41" and os.environ["GOMP_SPINCOUNT"] == "7"


def test_glibc_takes_the_memory_options():
    assert keep_freed_memory() is platform.libc_ver()[0].startswith("glibc")


def test_a_product_of_bfloat16_matrices_does_not_end_the_process():
    code = "import dqnitro, torch; a = torch.ones(256, 256).bfloat16(); print(float((a @ a)[0, 0]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "256.0", (done.returncode, done.stderr)

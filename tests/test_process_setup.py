"""Process tuning: a CPU that claims AMX without tiles must not kill the process; glibc takes the memory options."""

import platform
import shutil
import subprocess
import sys

import pytest

from dqnitro.process_setup import SHARED_GPU, amx_is_broken, keep_freed_memory, prepare, sleep_while_gpu_works

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


def test_an_optimiser_of_ours_is_made_without_the_compiler_of_torch():
    code = (
        "import sys, torch; from dqnitro.learn.cpu.one_pass_adam import OnePassAdam; "
        "p = torch.nn.Parameter(torch.ones(3)); o = OnePassAdam([p], 1e-3, 1e-8); p.grad = torch.ones(3); o.step(); "
        "print(float(p[0]) < 1, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.split() == ["True", "False"], done.stderr


DRIVER = """
static int flags = -1;
int cuInit(unsigned x) { return 0; }
int cuDeviceGet(int *device, int which) { *device = 7; return 0; }
int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned x) { flags = 100 * device + x; return 0; }
int what(void) { return flags; }
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler for a stand-in for CUDA's driver")
def test_processes_that_share_a_gpu_tell_its_driver_to_let_threads_sleep(tmp_path, monkeypatch):
    import ctypes

    library = str(tmp_path / "driver.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=DRIVER, text=True, check=True)
    what = ctypes.CDLL(library).what
    monkeypatch.delenv(SHARED_GPU, raising=False)
    assert not sleep_while_gpu_works(library) and what() == -1
    monkeypatch.setenv(SHARED_GPU, "1")
    assert sleep_while_gpu_works(library) and what() == 704
    assert not sleep_while_gpu_works(str(tmp_path / "none.so"))

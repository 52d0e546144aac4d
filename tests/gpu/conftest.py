"""Tests that need a GPU: `make test-gpu`. Anywhere else they are skipped, with the reason."""

import importlib.util

import pytest

from dqnitro.atari.cuda import build


@pytest.fixture(autouse=True)
def needs_a_gpu() -> None:
    try:
        build.require()
    except build.CudaUnavailable as error:
        pytest.skip(str(error))
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed. hint: pip install 'dqnitro[cuda]'")

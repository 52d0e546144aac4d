"""Tests that need a card: `make test-gpu`. Anywhere else they are skipped, with the reason."""

import importlib.util

import pytest

from dqnitro.atari import cuda


@pytest.fixture(autouse=True)
def card() -> None:
    try:
        cuda.require()
    except cuda.CudaUnavailable as error:
        pytest.skip(str(error))
    if importlib.util.find_spec("numba_cuda") is None:
        pytest.skip("numba-cuda is not installed. hint: pip install 'dqnitro[cuda]'")

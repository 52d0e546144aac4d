"""`deterministic`: what is refused, what is left out, and what torch is told, with a stand-in for the GPU.

That a run on a GPU is then the same bit for bit can only be tested there (tests/gpu).
"""

import contextlib
import os

import pytest
import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.learn import fixed_order as module
from dqnitro.learn.fixed_order import WORKSPACE, fixed_order

ON = Config(deterministic=True, device="cuda", runner="hybrid", envs="console", wrappers=("no-grad", "fused-adam"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"wrappers": ("no-grad", "fused-adam", "bfloat16", "own-kernels")}, "own-kernels cannot be deterministic"),
        ({"wrappers": ("no-grad", "fused-adam", "compile")}, "compile cannot be deterministic on a GPU: every process"),
        ({"network": "impala"}, "network impala cannot be deterministic"),
        ({"prioritized": True}, "prioritized cannot be deterministic"),
    ],
)
def test_what_has_no_fixed_order_is_refused_in_one_line(changes, said):
    with pytest.raises(ConfigError, match=said) as refused:
        module.check(ON.replace(**changes))
    assert "hint: " in str(refused.value) and "\n" not in str(refused.value)


def test_on_a_cpu_everything_is_taken():
    on_cpu = {"device": "cpu", "runner": "inline", "network": "impala", "prioritized": True}
    module.check(ON.replace(**on_cpu))
    module.check(ON)
    with fixed_order(ON.replace(**on_cpu)):
        assert not torch.are_deterministic_algorithms_enabled()


def test_a_recipe_leaves_out_what_cannot_be_deterministic_and_says_so():
    fast = ON.replace(wrappers=("no-grad", "fused-adam", "bfloat16", "own-kernels"))
    config, rungs, said = module.fitted(fast, ("bfloat16", "own-kernels"))
    assert config.wrappers == ("no-grad", "fused-adam", "bfloat16") and rungs == ("bfloat16",)
    assert said == "deterministic: without own-kernels, which repeat only up to rounding on a GPU"
    assert module.fitted(fast, ("own-kernels",), asked=("own-kernels",)) == (fast, ("own-kernels",), None)
    plain = fast.replace(deterministic=False)
    assert module.fitted(plain, ("own-kernels",)) == (plain, ("own-kernels",), None)


@pytest.fixture
def fresh_gpu(monkeypatch):
    """A GPU that nobody has used yet."""
    monkeypatch.delenv(WORKSPACE, raising=False)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(module, "on_gpu", lambda c: True)


def test_torch_is_told_while_the_run_lasts_and_no_longer(fresh_gpu, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    with contextlib.suppress(KeyError), fixed_order(ON):
        assert torch.are_deterministic_algorithms_enabled() and torch.backends.cudnn.deterministic
        assert not torch.backends.cudnn.benchmark and os.environ[WORKSPACE] == ":4096:8"
        raise KeyError  # a run that ends by an error
    assert not torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.deterministic
    assert torch.backends.cudnn.benchmark
    with fixed_order(ON.replace(deterministic=False)):
        assert not torch.are_deterministic_algorithms_enabled()


def test_a_gpu_that_is_in_use_already_cannot_change_its_workspace(fresh_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(ConfigError, match="needs CUBLAS_WORKSPACE_CONFIG=:4096:8"), fixed_order(ON):
        pass
    monkeypatch.setenv(WORKSPACE, ":16:8")
    with fixed_order(ON):
        assert os.environ[WORKSPACE] == ":16:8"

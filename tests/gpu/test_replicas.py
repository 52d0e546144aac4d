"""One rank over NCCL, on one GPU: the means of all updates inside a CUDA graph. Several GPUs are not tested here."""

from __future__ import annotations

import argparse

import pytest
import torch

from dqnitro.distributed import world
from dqnitro.distributed.ranks import ALONE, GroupRanks
from dqnitro.lab.replicas import _repeated, main, update_of

pytestmark = pytest.mark.gpu


@pytest.fixture
def ranks(monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "29533")
    with world.joined(world.Place(0, 1), cuda=True):
        yield GroupRanks()


@pytest.mark.parametrize("own_kernels", [False, True])
def test_updates_with_a_mean_over_nccl_in_a_graph_are_those_without(ranks, own_kernels):
    args = argparse.Namespace(batch=64, own_kernels=own_kernels)
    weights = []
    for chosen in (ALONE, ranks):
        torch.manual_seed(3)
        one, parameters = update_of(args, torch.device("cuda:0"), chosen)
        begun = [p.detach().clone() for p in parameters]
        run = _repeated(one, 2, torch.device("cuda:0"), record=True)
        run()
        weights.append([(p.detach() - q) for p, q in zip(parameters, begun, strict=True)])
    for x, y in zip(*weights, strict=True):
        assert float(x.norm()) > 0
        assert float((x - y).norm()) <= (0.2 if own_kernels else 0.05) * float(x.norm())


def test_the_measurement_runs(monkeypatch, capsys):
    monkeypatch.setenv("MASTER_PORT", "29534")
    assert main(["--ranks", "1", "--device", "cuda", "--rounds", "2", "--updates", "2"]) == 0
    assert '"backend": "nccl"' in capsys.readouterr().out

"""Priorities on a GPU against values worked out by hand and against the sum tree of the host's replay."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dqnitro.replay.gpu_priorities import Priorities, Window
from dqnitro.replay.gpu_ring import Ring
from dqnitro.replay.prioritized import SumTree

EVERYWHERE = Window(torch.tensor([3]), torch.tensor([4]))


def filled(alpha: float = 1.0) -> Priorities:
    """Four slots of two environments, with errors 1 to 8."""
    p = Priorities(4, 2, alpha, "cpu")
    at = torch.arange(8)
    p.update(at // 2, at % 2, torch.arange(1.0, 9.0))
    return p


def test_transitions_are_drawn_as_often_as_their_priority_says():
    torch.manual_seed(0)
    t, env, _ = filled().draw(1, 36_000, EVERYWHERE, torch.tensor(1.0))
    counts = torch.bincount(t * 2 + env, minlength=8)
    assert counts.tolist() == pytest.approx([1000 * k for k in range(1, 9)], abs=2)  # one draw from each slice


def test_alpha_flattens_the_priorities():
    torch.manual_seed(0)
    t, env, _ = filled(alpha=0.0).draw(1, 8_000, EVERYWHERE, torch.tensor(1.0))
    assert torch.bincount(t * 2 + env, minlength=8).tolist() == pytest.approx([1000] * 8, abs=2)


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_weights_undo_the_preference_in_each_batch(beta):
    torch.manual_seed(0)
    p = filled()
    t, env, weight = p.draw(3, 16, EVERYWHERE, torch.tensor(beta))
    by_hand = (8 * p.values[t, env] / p.values.sum()) ** -beta
    for i in range(3):
        part = slice(16 * i, 16 * (i + 1))
        assert torch.allclose(weight[part], by_hand[part] / by_hand[part].max(), rtol=1e-4)


def test_draws_are_those_of_the_sum_tree(monkeypatch):
    """The same random numbers find the same leaves."""
    rng = np.random.default_rng(0)
    p = Priorities(50, 3, 0.6, "cpu")
    at = torch.arange(150)
    p.update(at // 3, at % 3, torch.from_numpy(rng.exponential(size=150)))
    tree = SumTree(150)
    tree.set(np.arange(150), p.values.double().flatten().numpy())
    spread = torch.from_numpy(rng.random((2, 64)))
    monkeypatch.setattr(torch, "rand", lambda *_, **__: spread)
    t, env, _ = p.draw(2, 64, Window(torch.tensor([49]), torch.tensor([50])), torch.tensor(1.0))
    mass = (np.arange(64) + spread.numpy()) * (tree.total / 64)
    assert (t * 3 + env).tolist() == tree.find(mass.flatten()).tolist()


def test_nothing_outside_the_window_is_drawn():
    t, _, weight = filled().draw(2, 500, Window(torch.tensor([1]), torch.tensor([3])), torch.tensor(1.0))
    assert set(t.tolist()) == {1, 0, 3} and torch.isfinite(weight).all()


def test_new_transitions_get_the_largest_priority_and_consoles_that_reset_none():
    ring = Ring(40, 2, 8, 4, "cpu", False)
    ring.prioritize(0.5)
    assert ring.priorities is not None
    ring.priorities.update(torch.tensor([20]), torch.tensor([1]), torch.tensor([9.0]))
    ring.see(torch.zeros((2, 8, 8), dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))
    ring.decide(torch.tensor([0, 0]), torch.tensor([False, True]))
    ring.outcome(torch.zeros(2), torch.zeros(2, dtype=torch.bool), torch.zeros(2, dtype=torch.bool))
    assert ring.priorities.values[0].tolist() == [0.0, pytest.approx(3.0, rel=1e-5)]


def test_a_group_writes_its_own_environments():
    ring = Ring(40, 4, 8, 4, "cpu", False)
    ring.prioritize(1.0)
    assert ring.priorities is not None
    group = ring.group(2, 2)
    group.see(torch.zeros((2, 8, 8), dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))
    group.decide(torch.tensor([0, 0]), torch.tensor([True, True]))
    group.outcome(torch.zeros(2), torch.zeros(2, dtype=torch.bool), torch.zeros(2, dtype=torch.bool))
    assert ring.priorities.values[0].tolist() == [0, 0, 1, 1]


def test_priorities_are_saved_with_the_ring():
    def ring() -> Ring:
        made = Ring(40, 2, 8, 4, "cpu", False)
        made.prioritize(0.5)
        return made

    a, b = ring(), ring()
    assert a.priorities is not None and b.priorities is not None
    a.priorities.update(torch.tensor([3]), torch.tensor([1]), torch.tensor([4.0]))
    b.set_state(a.get_state())
    assert torch.equal(a.priorities.values, b.priorities.values) and b.priorities.largest.item() > 3.9

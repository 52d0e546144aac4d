"""Prioritised replay: the tree by hand, the weights by hand, and what may never be sampled."""

import numpy as np
import pytest
import torch

from dqnitro.replay.frames import TRUNCATED
from dqnitro.replay.prioritized import PrioritizedReplay, SumTree
from support import fakes


def test_the_tree_sums_and_finds_by_hand():
    tree = SumTree(5)
    tree.set(np.array([0, 1, 2, 4]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert tree.total == 10.0
    # masses 0-1 -> leaf 0, 1-3 -> leaf 1, 3-6 -> leaf 2, (leaf 3 is empty), 6-10 -> leaf 4
    mass = np.array([0.0, 0.99, 1.0, 2.99, 3.0, 5.99, 6.0, 9.99])
    assert tree.find(mass).tolist() == [0, 0, 1, 1, 2, 2, 4, 4]
    tree.set(np.array([2, 2]), np.array([9.0, 0.5]))  # a leaf named twice keeps the last value
    assert tree.total == 7.5 and tree.get(np.array([2])).tolist() == [0.5]


def test_rounding_never_leads_to_an_empty_leaf():
    tree = SumTree(64)
    rng = np.random.default_rng(0)
    full = rng.permutation(64)[:20]
    tree.set(full, rng.random(20) * 1e-3)
    found = tree.find(np.linspace(0, tree.total, 4001))  # the very end included
    assert set(found) <= set(full.tolist())


def filled(alpha: float = 1.0, n_step: int = 1, n_envs: int = 1, ticks: int = 6, **ends) -> PrioritizedReplay:
    stream = fakes.Stream(n_envs, 2, 0, **({"p_end": 0.0, "p_cut": 0.0, "p_life": 0.0} | ends))
    replay = PrioritizedReplay(10 * n_envs, stream.spec, n_step, 0.9, alpha=alpha)
    replay.start(stream.obs)
    for _ in range(ticks):
        replay.add(*stream.step())
    return replay


def test_sampling_follows_priorities_and_weights_undo_it():
    replay = filled(alpha=1.0, ticks=4)
    # All four begin with the largest priority, 1; then the errors say 1, 2, 3, 4 (plus a millionth).
    ids = np.stack([np.arange(4), np.arange(4)])
    replay.update_priorities(ids, torch.tensor([1.0, -2.0, 3.0, -4.0]))
    sample = replay.sample(10_000, np.random.default_rng(1), beta=1.0)
    share = np.bincount(sample.ids[1], minlength=4) / 10_000
    assert share == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.002)
    # weight = (N * chance)^-beta, divided by the largest, which belongs to the rarest: 1, 1/2, 1/3, 1/4
    for position, weight in enumerate([1.0, 1 / 2, 1 / 3, 1 / 4]):
        got = sample.batch.weight[torch.from_numpy(sample.ids[1] == position)]
        assert got[0].item() == pytest.approx(weight, rel=1e-4)


def test_alpha_zero_is_uniform_and_beta_zero_leaves_the_weights_alone():
    replay = filled(alpha=0.0, ticks=4)
    replay.update_priorities(np.stack([np.arange(4)] * 2), torch.tensor([1.0, 20.0, 3.0, 4.0]))
    sample = replay.sample(4_000, np.random.default_rng(1), beta=0.0)
    assert np.bincount(sample.ids[1]) / 4_000 == pytest.approx([0.25] * 4, abs=0.002)
    assert (sample.batch.weight == 1).all()


def test_a_new_transition_gets_the_largest_priority_seen():
    replay = filled(alpha=1.0, ticks=3)
    replay.update_priorities(np.stack([np.array([1]), np.array([1])]), torch.tensor([7.0]))
    stream = fakes.Stream(1, 2, 3, p_end=0.0, p_cut=0.0, p_life=0.0)
    replay.add(*stream.step())
    assert replay._tree.get(np.array([3]))[0] == pytest.approx(7.0, rel=1e-5)


@pytest.mark.parametrize("n_step", [1, 3])
def test_only_complete_transitions_inside_the_window_are_sampled(n_step):
    """Through the seam, ends and time limits: what the tree offers is what the uniform replay offers."""
    stream = fakes.Stream(3, 2, 9)
    replay = PrioritizedReplay(36, stream.spec, n_step, 0.9)
    replay.start(stream.obs)
    rng = np.random.default_rng(0)
    for tick in range(150):
        replay.add(*stream.step())
        if tick < 10:
            continue
        sizes, oldest = replay._sizes(), replay._oldest()
        slots, envs = np.divmod(np.flatnonzero(replay._tree.nodes[replay._tree.first_leaf :]), 3)
        offered = set(zip(envs.tolist(), slots.tolist(), strict=True))
        allowed = {
            (e, p % replay.slots) for e in range(3) for p in range(oldest[e], oldest[e] + sizes[e])
            if not replay._flags[p % replay.slots, e] & TRUNCATED
        }  # fmt: skip
        assert offered == allowed
        sample = replay.sample(8, rng, 0.5)
        assert torch.isfinite(sample.batch.weight).all()
        replay.update_priorities(sample.ids, torch.from_numpy(rng.random(8)))


def test_errors_of_overwritten_slots_are_dropped():
    replay = filled(alpha=1.0, ticks=5)
    ids = np.stack([np.array([0]), np.array([0])])
    stream = fakes.Stream(1, 2, 3, p_end=0.0, p_cut=0.0, p_life=0.0)
    for _ in range(replay.slots):
        replay.add(*stream.step())
    before = replay._tree.nodes.copy()
    replay.update_priorities(ids, torch.tensor([0.5]))
    assert np.array_equal(replay._tree.nodes, before)

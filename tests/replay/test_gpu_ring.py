"""The ring of the device runner: transitions by hand, and the first convolution in its two forms."""

from __future__ import annotations

import pytest
import torch

from dqnitro import dqn
from dqnitro.replay.gpu_ring import Ring, space_to_depth


def filled_ring(deep: bool = False) -> Ring:
    """Two environments, 40 slots; environment 0 plays games of 5 steps, then takes 2 to reset; environment 1 never
    ends.
    """
    ring = Ring(40, 2, 8, 4, "cpu", deep)
    phase = 0
    age = torch.zeros(2, dtype=torch.int64)
    for t in range(60):
        here = torch.tensor([phase < 5, True])
        ring.see(torch.full((2, 8, 8), t % 251, dtype=torch.uint8), age)
        ring.decide(torch.tensor([t % 6, t % 3]), here)
        ends = phase == 4
        ring.outcome(
            torch.tensor([float(t), 1.0]) * here, torch.tensor([ends, False]) & here, torch.tensor([False, False])
        )
        phase = (phase + 1) % 7
        age += 1
        if phase == 0:
            age[0] = 0
    return ring


def slot(t: int) -> torch.Tensor:
    return torch.tensor([t % 40])


def test_three_steps_add_up_and_bootstrap():
    b = filled_ring().transitions(slot(49), torch.tensor([0]), 3, 0.5)  # 49 is the first step of a game
    assert b.reward_t.item() == 49 + 0.5 * 50 + 0.25 * 51
    assert b.discount_t.item() == 0.125 and b.weight.item() == 1 and b.action_tm1.item() == 49 % 6
    assert b.obs_t[0, :, 0, 0].tolist() == [49, 50, 51, 52]


def test_an_end_within_the_steps_stops_the_sum_and_the_bootstrap():
    b = filled_ring().transitions(slot(52), torch.tensor([0]), 3, 0.5)  # the game ends with step 53
    assert b.reward_t.item() == 52 + 0.5 * 53
    assert b.discount_t.item() == 0 and b.weight.item() == 1


def test_an_environment_that_is_resetting_has_no_transition():
    ring = filled_ring()
    for t in (54, 55):
        assert ring.transitions(slot(t), torch.tensor([0]), 3, 0.5).weight.item() == 0


def test_frames_from_before_the_game_are_black():
    ring = filled_ring()
    for t, seen in ((49, [0, 0, 0, 49]), (50, [0, 0, 49, 50]), (52, [49, 50, 51, 52])):
        assert ring.stacks(slot(t), torch.tensor([0]))[0, :, 0, 0].tolist() == seen


def test_a_cut_off_game_bootstraps_from_its_last_observation():
    ring = filled_ring()
    ring.truncated[slot(50), 1] = True
    b = ring.transitions(slot(49), torch.tensor([1]), 3, 0.5)
    assert b.reward_t.item() == 1 + 0.5 and b.discount_t.item() == 0.25 and b.weight.item() == 1
    assert b.obs_t[0, -1, 0, 0].item() == 51


def test_samples_stay_away_from_the_seam_and_from_the_unwritten():
    ring = filled_ring()
    torch.manual_seed(0)
    head = int(ring.head)
    seen = ring.draw(4000, 3, ring.head.clone(), ring.filled.clone())[0].tolist()
    age = sorted((head - t) % 40 for t in seen)
    assert age[0] >= 3  # its three rewards are known
    assert age[-1] <= 40 - 8 - 4 + 3  # neither the slot being written nor the stack before it


@pytest.mark.parametrize("autocast", [False, True])
def test_the_first_convolution_sees_the_same_in_both_layouts(autocast):
    torch.manual_seed(0)
    network = dqn.make_network((4, 84, 84), "nature", 64, dqn.HeadSpec(6))
    obs = torch.randint(0, 256, (3, 4, 84, 84), dtype=torch.uint8)
    deep = space_to_depth(obs)  # (3, 4, 21, 21, 16)
    deep = deep.permute(0, 1, 4, 2, 3).reshape(3, 64, 21, 21)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        a, b = network(obs), network(deep)
    torch.testing.assert_close(a, b, rtol=1e-2 if autocast else 1e-4, atol=2e-2 if autocast else 1e-5)


def test_deep_stacks_hold_the_same_pixels():
    plain, deep = filled_ring(), filled_ring(deep=True)
    t, env = torch.tensor([12, 13, 30]), torch.tensor([0, 1, 0])
    a, b = plain.stacks(t, env), deep.stacks(t, env)
    expected = space_to_depth(a).permute(0, 1, 4, 2, 3).reshape(b.shape)
    assert torch.equal(b, expected)

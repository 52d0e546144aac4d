"""The check of a state before it goes to a GPU, made of states that the CPU played: it needs no GPU."""

from __future__ import annotations

import numpy as np
import pytest

from dqnitro.atari import AtariVec
from dqnitro.atari.chips import layout
from dqnitro.atari.chips.rng import MT_N
from dqnitro.atari.cuda import start_phases as phases
from dqnitro.atari.cuda.state_check import check_shapes, check_values, consoles
from dqnitro.atari.vector import agent_step

LANES = 32
N, ROM_BYTES, STACK = 3, 4096, 4


@pytest.fixture(scope="module")
def played():
    """Three consoles in the middle of a game, as a GPU would keep them."""
    env = AtariVec("pong", N, num_threads=1)
    env.reset(seed=1)
    for k in range(40):
        env.step(np.full(N, k % 3))
    state = env.get_state()
    env.close()
    grouped = np.zeros((1, layout.S_SIZE + 18, LANES), np.int32)
    whole = state["state"].astype(np.int64)
    grouped[0, : layout.S_SIZE, :N] = (whole & 0xFFFFFFFF).astype(np.uint32).view(np.int32).T
    return {
        "state": grouped, "episode": state["episode"],
        **{k: state[k].astype(np.uint32).view(np.int32) for k in ("rng_actions", "rng_machine", "rng_noops")},
        "away": np.array([0, 1, 0], np.int32), "starts": np.concatenate([np.zeros((1, phases.T_SIZE), np.int64),
                                                                         phases.before_a_start(2)]),
    }  # fmt: skip


def copy(state):
    return {k: v.copy() for k, v in state.items()}


def test_a_state_that_was_played_is_taken(played):
    check_values(played, N, ROM_BYTES, STACK)
    assert consoles(played["state"], N).shape == (N, layout.S_SIZE)


def test_a_start_that_pressed_fire_and_waits_for_nothing_is_taken(played):
    """FIRE takes the place of a no-op, also where there is none to take (`start_in_steps.after_lead`)."""
    state = copy(played)
    state["starts"][1, phases.T_NOOPS] = -1
    check_values(state, N, ROM_BYTES, STACK)


def test_lanes_without_a_console_are_not_looked_at(played):
    state = copy(played)
    state["state"][0, :, N:] = 2**31 - 1
    check_values(state, N, ROM_BYTES, STACK)


@pytest.mark.parametrize(
    ("key", "place", "value"),
    [
        ("state", (0, layout.S_PC, 1), 0x10000), ("state", (0, layout.S_BANK, 0), 4096),
        ("state", (0, layout.S_POS_BL, 2), -1), ("state", (0, layout.S_LOGGED, 0), 1),
        ("state", (0, layout.S_ROW, 0), 1 << 21), ("state", (0, layout.S_BUFFER, 1), 2),
        ("episode", (0, agent_step.E_SLOT), STACK), ("episode", (1, agent_step.E_RESET), -1),
        ("rng_machine", (2, MT_N), MT_N + 1), ("away", (1,), -1),
        ("starts", (0, phases.T_PHASE), phases.NOOPS + 1), ("starts", (1, phases.T_LEFT), 1 << 40),
        ("starts", (2, phases.T_OPTION), 9),
    ],
)  # fmt: skip
def test_numbers_that_would_lead_a_kernel_out_of_its_arrays_are_refused(played, key, place, value):
    state = copy(played)
    state[key][place] = value
    with pytest.raises(ValueError, match="this state is damaged: "):
        check_values(state, N, ROM_BYTES, STACK)


def test_an_option_of_double_dunk_is_in_its_table(played):
    state = copy(played)
    state["starts"][0, [phases.T_PHASE, phases.T_OPTION]] = phases.DUNK_OPTION, 4
    with pytest.raises(ValueError, match="option of Double Dunk"):
        check_values(state, N, ROM_BYTES, STACK)


def test_types_and_shapes_are_checked_first(played):
    here = {k: (v.shape, v.dtype) for k, v in played.items()}
    check_shapes(played, here)
    with pytest.raises(ValueError, match="away is not in the state"):
        check_shapes({k: v for k, v in played.items() if k != "away"}, here)
    with pytest.raises(ValueError, match=r"away has shape \(2,\) in the state, \(3,\) here"):
        check_shapes(played | {"away": np.zeros(2, np.int32)}, here)
    with pytest.raises(ValueError, match="away has numbers of type float64, not int32"):
        check_shapes(played | {"away": np.zeros(3)}, here)

"""Translated games on a GPU: equal to interpreted ones on the GPU, number for number, and to the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dqnitro.atari import AtariVec
from dqnitro.atari.cuda.measure import Way, check_game, differences, made
from dqnitro.atari.cuda.vec import CudaVec

pytestmark = pytest.mark.gpu

# One game of each kind of cartridge, and some that are played most.
GAMES = [
    "pong", "space_invaders", "beam_rider", "double_dunk", "montezuma_revenge", "robotank", "elevator_action",
    "darkchambers", "pitfall2", "breakout", "seaquest", "qbert", "ms_pacman", "enduro",
]  # fmt: skip


@pytest.mark.parametrize("per_warp", [1, 32])
@pytest.mark.parametrize("game", GAMES)
def test_translated_equals_interpreted_equals_the_cpu(game, per_warp):
    """New games begin in it, too: an episode has at most 300 frames."""
    assert check_game(game, Way(True, per_warp, 0), n=6 if per_warp == 1 else 40, steps=110) > 0


@pytest.mark.parametrize("registers", [64, 128])
@pytest.mark.parametrize("per_warp", [2, 4, 8])
def test_registers_and_shared_warps_change_nothing(per_warp, registers):
    check_game("breakout", Way(True, per_warp, registers), n=40, steps=40)


@pytest.mark.parametrize("per_warp", [1, 32])
@pytest.mark.parametrize(
    "options",
    [
        {"episodic_life": True},
        {"maxpool": False, "frameskip": 1, "max_num_frames_per_episode": 21},
        {"frameskip": 7, "stack_num": 2, "max_num_frames_per_episode": 55},
        {"noop_max": 0, "use_fire_reset": False},
        {"reward_clipping": False, "full_action_space": True},
        {"grayscale": False, "img_height": 210, "img_width": 160},
        {"autoreset_mode": "SameStep", "max_num_frames_per_episode": 90},
        {"resets_aside": True, "max_num_frames_per_episode": 90},
    ],
    ids=str,
)
def test_options_change_nothing(options: dict[str, Any], per_warp: int):
    pair = [made("breakout", 40, Way(translated, per_warp, 0), **options) for translated in (True, False)]
    for vec in pair:
        vec.reset(seed=3)
    rng = np.random.default_rng(0)
    for t in range(60):
        actions = rng.integers(0, 4, 40)
        for vec in pair:
            vec.step(actions)
        assert not differences(*pair), f"step {t}"


def test_a_state_goes_on_translated_or_interpreted():
    ours, theirs = (made("seaquest", 37, Way(translated, 1, 0)) for translated in (True, False))
    ours.reset(seed=2)
    for k in range(20):
        ours.step(np.full(37, k % 18))
    theirs.set_state(ours.get_state())
    for k in range(20):
        for vec in (ours, theirs):
            vec.step(np.full(37, k % 18))
    assert not differences(ours, theirs)


def test_steps_in_a_cuda_graph_are_the_same_steps():
    eager, recorded = (made("pong", 40, Way(True, 1, 0)) for _ in range(2))
    for vec in (eager, recorded):
        vec.reset(seed=5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded.launch_step()
    for k in range(30):
        eager.step(np.full(40, k % 6))
        recorded.actions.fill_(k % 6)
        graph.replay()
    assert not differences(eager, recorded)


def test_what_cannot_be_translated_is_interpreted(monkeypatch, capsys, tmp_path):
    """And says so."""
    monkeypatch.setattr("dqnitro.atari.cuda.build.ptx", lambda *a: 1 / 0)
    monkeypatch.setattr("dqnitro.atari.cuda.build._LOADED", {})
    monkeypatch.setattr("dqnitro.atari.cuda.build.key", lambda *a: "none")
    vec = CudaVec("freeway", 4)
    assert not vec.translated and "stays interpreted" in capsys.readouterr().err
    theirs: Any = AtariVec("freeway", 4)
    assert np.array_equal(vec.reset(seed=1)[0].cpu().numpy(), theirs.reset(seed=1)[0])

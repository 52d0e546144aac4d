"""The step kernel around its frames, without a GPU: who plays, who starts a game; that no start lengthens a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dqnitro.atari.cuda.start_phases import BEGIN, PLAYING, T_PHASE
from dqnitro.atari.cuda.vec import starts_of
from dqnitro.atari.games import game_table
from dqnitro.atari.games.table_language import G_TERMINAL
from dqnitro.atari.vector import agent_step
from support.atari import kernel_model

NOTHING, FRESH = 3, 4  # views of kernels.py
N, SKIP = 11, 4
START = 60 + 4 + 4 + len(game_table.game("seaquest").start)  # frames of a start without no-ops
STEPS = -(-START // SKIP)


class Games:
    """A game of console m ends after `lengths[m]` frames."""

    def __init__(self, kernels: Any, lengths: list[int], **options: Any) -> None:
        self.left = list(lengths)
        self.lengths = lengths
        self.consoles = kernel_model.Consoles(kernels, "seaquest", N, self.frame, use_fire_reset=False, **options)

    def frame(self, m: int, g: np.ndarray) -> None:
        if self.consoles["starts"][m, T_PHASE] != PLAYING:
            return
        self.left[m] -= 1
        if self.left[m] <= 0:
            g[G_TERMINAL] = 1
            self.left[m] = self.lengths[m]


@pytest.fixture(scope="module")
def kernels():
    with pytest.MonkeyPatch.context() as patch:
        yield kernel_model.load(patch)


@pytest.mark.parametrize("noop_max", [0, 30, 500])
def test_no_start_lengthens_a_step(kernels, noop_max):
    """Sixteen steps are a graph of the runner `device`: none has more than sixteen steps' frames of any console."""
    games = Games(kernels, [40 + 13 * m for m in range(N)], noop_max=noop_max)
    c, ended, back, frames = games.consoles, 0, 0, np.zeros((N, 160), int)
    for k in range(160):
        before = c["away"].copy()
        c.step()
        frames[:, k] = [c.played[m] for m in range(N)]
        assert frames[:, k].max() <= SKIP
        came = (before != 0) & (c["away"] == 0)
        assert (c["view"][came] & 15 == FRESH).all()
        assert (c["view"][(before != 0) & ~came] == NOTHING).all() and not c["terminated"][before != 0].any()
        # who starts has the frames of a step as well, up to the last of the start
        assert (frames[(before != 0) & ~came, k] == SKIP).all()
        ended += int((c["away"] != 0)[before == 0].sum())
        back += int(came.sum())
    assert ended >= N
    assert back >= (N if noop_max <= 30 else 1)


def test_a_start_takes_the_steps_of_its_frames(kernels):
    games = Games(kernels, [8] * N, noop_max=0)
    c = games.consoles
    away = []
    for _ in range(STEPS + 5):
        c.step()
        away.append(int(c["away"][0] != 0))
    assert away == [0, *[1] * STEPS, 0, 0, 1, 1]  # two steps of a game end it


def test_states_of_older_versions_go_on(kernels):
    """1 and 2: a game that was to be started; 3: one that had begun, and nobody had seen it."""
    games = Games(kernels, [1000] * N, noop_max=0)
    c = games.consoles
    c["away"][:4] = [1, 2, 3, 0]
    c["episode"][:2, agent_step.E_RESET] = 1
    c["starts"][:] = starts_of(c["away"])
    assert c["starts"][:4, T_PHASE].tolist() == [BEGIN, BEGIN, PLAYING, PLAYING]
    c.step()
    assert c["away"][:4].tolist() == [1, 2, 0, 0] and c["view"][2] & 15 == FRESH
    assert [c.played[m] for m in range(4)] == [SKIP, SKIP, 0, SKIP]
    for _ in range(STEPS - 1):
        c.step()
    assert c["away"][:4].tolist() == [0, 0, 0, 0] and c["view"][0] & 15 == FRESH
    assert not c["episode"][:, agent_step.E_RESET].any()

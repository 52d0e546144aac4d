"""The consoles on a GPU compared with ale-py itself. All games: `dqnitro games --check --device cuda`."""

from __future__ import annotations

import pytest

from dqnitro.atari.compare_with_ale import check_vectors

pytestmark = pytest.mark.gpu


def test_consoles_on_a_gpu_equal_ale_on_every_frame():
    results = list(check_vectors(["pong", "seaquest", "air_raid", "montezuma_revenge"], frames=300))
    assert [r.difference for r in results] == [""] * 4
    assert all(r.frames == 300 for r in results)

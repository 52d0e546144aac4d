"""The shortest form of the campaign on a Ray cluster: one node, one player. `make chaos CHAOS="--only cluster"` is the
long one, `make test-cluster` has three nodes.
"""

import pathlib
import shutil
import tempfile

import pytest

from chaos.on_ray import session
from chaos.ray_session import NoRay


@pytest.fixture
def folder():
    """A short path: Ray puts sockets below it, whose names have at most 107 characters."""
    path = pathlib.Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.mark.long
def test_a_player_that_is_stopped_and_one_that_is_killed_on_a_ray_node_change_nothing_and_leave_nothing(folder):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    words = ["--nodes", "1", "--players", "1", "--faults", "2", "--steps", "2500", "--only"]
    try:
        out = session(folder, 1, [*words, "stop a player,kill a player"])
    except NoRay as e:
        pytest.skip(f"{e}: make test-cluster")
    assert out.faults == 2 and not any(out.bad.values()), out.notes
    assert set(out.seconds) == {"stop a player", "kill a player"}

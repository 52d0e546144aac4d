"""What is left of a group once its ranks have parted."""

import os
import subprocess
import sys

from dqnitro.common.ports import free_port

# In a process of its own: torch is imported there in the order of a run.
SCRIPT = """
import weakref
from dqnitro.distributed import world

with world.joined(world.Place(0, 1), cuda=False):
    import torch.distributed as dist
    import torch._dynamo

    group = weakref.ref(dist.group.WORLD)
    dist.broadcast(torch.zeros(3), 0)
    assert group() is not None
print("gone" if group() is None else "still there")
"""


def test_the_group_and_its_threads_are_gone_whatever_was_imported_meanwhile():
    """Python aborts if a thread of the group frees a tensor while Python ends."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    env = {**os.environ, **address, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout == "gone\n", done.stderr

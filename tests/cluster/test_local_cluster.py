"""What `--on ray` starts, in a process of its own."""

import os
import re
import subprocess
import sys

import pytest

LISTENS = """
import psutil
from dqnitro.cluster.connect import connect
with connect("ray"):
    for p in psutil.Process().children(recursive=True):
        for c in p.net_connections("inet"):
            if c.status == psutil.CONN_LISTEN:
                print("listens", c.laddr.ip)
"""


@pytest.mark.skipif(not os.environ.get("DQNITRO_TEST_CLUSTER"), reason="a real Ray node: make test-cluster")
def test_a_cluster_of_our_own_listens_on_localhost_only():
    done = subprocess.run([sys.executable, "-c", LISTENS], capture_output=True, text=True, timeout=180, check=True)
    addresses = {a.removeprefix("::ffff:") for a in re.findall(r"listens (\S+)", done.stdout)}  # of IPv4 in IPv6
    assert addresses == {"127.0.0.1"}, done.stdout

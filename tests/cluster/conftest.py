"""One small Ray cluster for all tests in here: starting it takes some ten seconds of a busy core."""

import contextlib
import os
import pathlib
import sys
import uuid

import psutil
import pytest

from dqnitro.common.ports import free_port

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # localhost only; read when Ray is imported
TESTS = pathlib.Path(__file__).resolve().parents[1]
SMALL = {"num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": False}


def head_node(start):
    """Ray gives up on a node after 30 s, which a very busy machine may need, and leaves its processes behind."""
    before = set(psutil.Process().children(recursive=True))
    for _ in range(2):
        try:
            return start()
        except Exception as e:
            why = str(e)
            for p in set(psutil.Process().children(recursive=True)) - before:
                with contextlib.suppress(psutil.Error):
                    p.kill()
    pytest.skip(f"Ray cannot start a node on this machine: {why}")


@pytest.fixture(scope="package")
def ray_cluster():
    """A cluster of one node with one CPU, for all tests."""
    if not os.environ.get("DQNITRO_TEST_CLUSTER"):  # its processes would be children of a worker that has other tests
        pytest.skip("a real Ray node takes a minute: make test-cluster")
    os.environ.setdefault("RAY_AUTH_TOKEN", uuid.uuid4().hex)  # the cluster asks for it, also where there was none
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    from dqnitro.cluster.connect import import_ray

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])  # nodes and their workers inherit it
    ray = import_ray("ray")
    from ray.cluster_utils import Cluster

    config = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_timeout_ms": 3000}
    head = {"_system_config": config, "ray_client_server_port": free_port(), **SMALL}
    cluster = head_node(lambda: Cluster(initialize_head=True, head_node_args=head))
    try:
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        yield cluster
    finally:
        ray.shutdown()
        cluster.shutdown()
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


@pytest.fixture
def three_nodes(request):
    """Three nodes with one CPU each, all on this machine; a test may kill all but the head."""
    if not os.environ.get("DQNITRO_TEST_CLUSTER"):
        pytest.skip("several Ray nodes on one machine take minutes: make test-cluster")
    ray_cluster = request.getfixturevalue("ray_cluster")
    import ray

    for _ in range(3 - sum(n["Alive"] for n in ray.nodes())):
        ray_cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    return ray_cluster

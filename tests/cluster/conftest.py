"""One small Ray cluster for all tests in here: starting it takes some ten seconds of a busy core."""

import os
import pathlib
import sys

import pytest

os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # localhost only; read when Ray is imported
TESTS = pathlib.Path(__file__).resolve().parents[1]
SMALL = {"object_store_memory": 100 << 20, "include_dashboard": False}


@pytest.fixture(scope="package")
def ray_cluster():
    """A cluster of one node with one CPU, for all tests."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    if not os.environ.get("DQNITRO_TEST_CLUSTER"):
        pytest.skip("several Ray nodes on one machine take minutes: make test-cluster")
    from dqnitro.cluster.connect import import_ray

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(TESTS), *sys.path])  # nodes and their workers inherit it
    ray = import_ray("ray")
    from ray.cluster_utils import Cluster

    config = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_timeout_ms": 3000}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": config, **SMALL})
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
def three_nodes(ray_cluster):
    """Three nodes with one CPU each, all on this machine; a test may kill all but the head."""
    import ray

    for _ in range(3 - sum(n["Alive"] for n in ray.nodes())):
        ray_cluster.add_node(num_cpus=1, object_store_memory=100 << 20)
    return ray_cluster

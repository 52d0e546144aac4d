"""What a campaign may strike on a cluster that is there, and how it ends when there is none. No cluster is needed."""

import argparse
import os
import signal
import subprocess
import sys
import time
import types

import psutil
import pytest

from chaos.ray_session import aimed
from chaos.there import ON_NODES, ON_PLAYERS, ON_SEEDS, There, felling, listing, striking

SLEEP = "print(flush=True); import time; time.sleep(600)"


@pytest.fixture
def process():
    started = []

    def start(*words: str) -> int:
        p = subprocess.Popen([sys.executable, "-c", SLEEP, *words], stdout=subprocess.PIPE)
        assert p.stdout is not None and p.stdout.readline()
        started.append(p)
        return p.pid

    yield start
    for p in started:
        p.kill()
        p.communicate()


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="Windows has no signals between processes: run it on Linux")
def test_a_process_is_struck_only_if_it_is_what_it_should_be(process):
    player, other = process("ray::PlayerHost"), process("ray::SomebodyElse")
    strike = striking()
    assert strike(player, "ray::PlayerHost", 0) and psutil.Process(player).status() != psutil.STATUS_STOPPED
    assert not strike(other, "ray::PlayerHost", signal.SIGKILL) and psutil.pid_exists(other)
    assert psutil.Process(other).status() != psutil.STATUS_ZOMBIE
    assert strike(player, "ray::PlayerHost", signal.SIGSTOP)
    while psutil.Process(player).status() != psutil.STATUS_STOPPED:  # the kernel takes its time
        time.sleep(0.01)
    assert not strike(player, "ray::PlayerHost", signal.SIGKILL), "it has been struck already"


def test_whole_runs_of_others_are_not_listed(process):
    mine = process("-m", "dqnitro.cli.one_seed", "/x", "1000000007")
    process("-m", "dqnitro.cli.one_seed", "/x", "7")
    assert listing()([1_000_000_007], 0) == [(mine, os.getpid(), 1_000_000_007)]


def test_a_node_whose_parent_is_no_raylet_is_left_alone():
    assert felling()("kill", 0.0) is False and felling()("stop", 0.0) is False


def nodes_of(resources, mine="a"):
    """The nodes that may be struck, of a cluster with these."""
    rows = [{"NodeID": k, "Alive": True, "Resources": r, "NodeManagerHostname": k} for k, r in resources.items()]
    session = There.__new__(There)
    where = types.SimpleNamespace(get_node_id=lambda: mine)
    session.ray = types.SimpleNamespace(nodes=lambda: rows, get_runtime_context=lambda: where)
    session.there = types.SimpleNamespace(ray=session.ray)
    return [n.id for n in session._nodes()]


def test_the_head_this_machine_and_the_last_node_are_spared():
    head = {"node:__internal_head__": 1.0}
    assert nodes_of({"a": {"CPU": 1}, "h": {"CPU": 1, **head}, "b": {"CPU": 1}, "c": {"CPU": 0}}) == ["b"]
    assert nodes_of({"h": {"CPU": 0, **head}, "b": {"CPU": 1}}, mine="h") == []
    assert nodes_of({"h": {"CPU": 1, **head}, "b": {"CPU": 1}}, mine="h") == ["b"]


def test_nodes_are_struck_only_when_that_is_said(monkeypatch):
    session = There.__new__(There)
    session.ray = types.SimpleNamespace(exceptions=types.SimpleNamespace(RayError=RuntimeError))
    session.named, session.out = [], types.SimpleNamespace(faults=0)
    tried = set()
    monkeypatch.setattr(There, "_node", lambda self, name: tried.add(name))
    monkeypatch.setattr(There, "_player", lambda self, name: tried.add(name))
    monkeypatch.setattr(There, "_whole_run", lambda self, name: tried.add(name))
    monkeypatch.setattr(There, "_stop", lambda self, name: tried.add(name))
    for nodes in (False, True):
        session.args = argparse.Namespace(strike_nodes=nodes, seed=1)
        tried.clear()
        for session.runs in (1, 2):
            session.rng = __import__("random").Random(1)
            for _ in range(300):
                session.strike()
        assert tried == {*ON_PLAYERS, *ON_SEEDS, *(ON_NODES if nodes else {})}


@pytest.mark.parametrize(
    ("address", "minutes", "told"),
    [
        ("nonsense", 1.0, "--on nonsense: not the address of a cluster"),
        ("ray://127.0.0.1:1", 1.0, "nothing answers there"),
        ("ray", 1.0, "--address ray would start a cluster"),
        ("auto", 0.0, "--address needs --minutes above 0"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(address, minutes, told, tmp_path, monkeypatch, capsys):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setenv("DQNITRO_CHAOS_SESSION", "")
    args = argparse.Namespace(folder=tmp_path, seed=1, only="", address=address, minutes=minutes, strike_nodes=False)
    assert aimed(args) == 2
    out, err = capsys.readouterr()
    assert out == "" and told in err and err.count("\n") == 1 and "; hint: " in err

"""What is looked at before anything starts on a cluster: resources, versions, storage. No cluster is needed for it."""

import os
import pathlib
import signal
import sys
import types

import pytest

from dqnitro.cluster import nodes
from dqnitro.cluster.connect import check_address, connect, import_ray
from dqnitro.cluster.nodes import Need, Node, check_nodes, check_work, fits, shared_out, versions
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.requirements import cannot_play
from dqnitro.seeds.allocation import PROCESS_BYTES, least_need
from dqnitro.storage.by_url import storage_at

GIB = 1 << 30
BIG, SMALL, GPUS = (
    Node("a" * 56, "big", 8, 0, 16 * GIB),
    Node("b", "small", 2, 0, 3 * GIB),
    Node("c", "gpus", 16, 2, 64 * GIB),
)


@pytest.mark.parametrize(
    ("need", "count"),
    [
        (Need(1, 0, GIB), 8 + 2 + 16),
        (Need(3, 0, GIB), 2 + 0 + 5),
        (Need(1, 1, GIB), 2),
        (Need(1, 0, 2 * GIB), 8 + 1 + 16),
    ],
)
def test_each_node_carries_what_fits_into_all_of_its_resources(need, count):
    assert fits([BIG, SMALL, GPUS], need) == count


def test_spare_cpus_are_divided_and_never_cost_a_place():
    assert shared_out([BIG, SMALL], Need(1, 0, GIB), 10) == (Need(1, 0, GIB), 10)
    assert shared_out([BIG, SMALL], Need(1, 0, GIB), 3) == (Need(2, 0, GIB), 3)
    assert shared_out([BIG, SMALL], Need(1, 0, GIB), 1) == (Need(8, 0, GIB), 1)
    assert shared_out([BIG], Need(1, 0, GIB), 100) == (Need(1, 0, GIB), 8)


@pytest.mark.parametrize("need", [Need(9, 0, GIB), Need(1, 1, GIB), Need(1, 0, 17 * GIB)])
def test_what_no_node_can_carry_is_refused_instead_of_waited_for(need):
    with pytest.raises(ConfigError, match="no node of the cluster has that .big: 8 CPUs and 16.0 GiB; small"):
        shared_out([BIG, SMALL], need, 4)


def test_a_run_needs_the_memory_of_its_replay():
    atari = Config(replay_capacity=100_000, torch_threads=3)
    assert least_need(atari) == Need(3, 0, PROCESS_BYTES + 84 * 84 * 100_000)
    assert least_need(Config(env_id="CartPole-v1")) == Need(1, 0, PROCESS_BYTES)


class FakeRay:
    """A node that answers whatever it is told to."""

    def __init__(self, answer):
        self.answer = answer

    def remote(self, **options):
        def function(f):
            out = types.SimpleNamespace(remote=lambda path: self.answer(f, path))
            out.options = lambda **more: out
            return out

        return function

    def get(self, answer, timeout):
        if isinstance(answer, Exception):
            raise answer
        return answer

    alive = True

    def nodes(self):
        return [{"Alive": self.alive, "NodeID": BIG.id, "Resources": {}}]


@pytest.fixture(autouse=True)
def no_patience(monkeypatch):
    monkeypatch.setattr(nodes, "GONE_S", 0.0)


def asked(answer, shared=None):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    return check_nodes(types.SimpleNamespace(ray=FakeRay(answer)), [BIG], shared)


def test_a_node_like_this_one_passes(tmp_path):
    (tmp_path / "seeds.json").write_text("{}")
    assert asked(lambda f, path: f(path), tmp_path / "seeds.json") == []
    assert asked(lambda f, path: f(path)) == []


def test_a_node_that_dies_while_it_is_asked_is_left_out(monkeypatch):
    monkeypatch.setattr(FakeRay, "alive", False)
    assert asked(lambda f, path: TimeoutError()) == []


class Failed(Exception):
    """What Ray raises for a task that did."""

    cause = ImportError("libz.so\nis missing")


BAD = {
    "no DQNitro": (lambda f, path: ("ModuleNotFoundError: dqnitro", None, True), "node big has no DQNitro that works"),
    "old torch": (
        lambda f, path: (versions() | {"torch": "1.0"}, None, True),
        f"node big has torch 1.0, here it is {versions()['torch']}",
    ),
    "other DQNitro": (lambda f, path: (versions() | {"DQNitro": "9"}, None, True), "node big has DQNitro 9, here it"),
    "broken package": (lambda f, path: Failed(), "node big cannot be asked (ImportError: libz.so is missing)"),
    "no answer": (lambda f, path: TimeoutError(), "node big does not answer (TimeoutError)"),
}
BLIND = {
    "no storage": lambda f, path: f("/nowhere/seeds.json"),
    "other storage": lambda f, path: (*f(path)[:1], "0" * 64, True),
    "no rights": lambda f, path: (*f(path)[:2], False),
}


@pytest.mark.parametrize("name", BLIND)
def test_a_node_that_does_not_share_the_folder_is_named(name, tmp_path):
    (tmp_path / "seeds.json").write_text("{}")
    assert asked(BLIND[name], tmp_path / "seeds.json") == [BIG]


def test_a_node_that_cannot_use_a_url_says_why(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    cluster = types.SimpleNamespace(ray=FakeRay(lambda f, about: f(about)))

    def why(url, data=b"{}"):
        return nodes.without_storage(cluster, [BIG], url, "seeds.json", data).get("big", "")

    url = f"local://{tmp_path}/there"
    assert "does not see the files" in why(url)
    storage_at(url).write("seeds.json", [b"{}"])
    assert why(url) == "" and why(url, b"other") == "it has other files there"
    assert [p.name for p in (tmp_path / "there").iterdir()] == ["seeds.json"], "the probe is gone"
    assert "Protocol not known" in why("nothing://x")


@pytest.mark.parametrize("name", BAD)
def test_a_node_that_would_give_other_runs_or_none_is_one_line(name, tmp_path):
    answer, message = BAD[name]
    (tmp_path / "seeds.json").write_text("{}")
    with pytest.raises(ConfigError) as e:
        asked(answer, tmp_path / "seeds.json")
    assert message in str(e.value) and "hint: " in str(e.value) and "\n" not in str(e.value)


def test_a_node_that_cannot_play_is_one_line():
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    cluster = types.SimpleNamespace(ray=FakeRay(lambda f, config: f(config)))
    check_work(cluster, [BIG], cannot_play, Config(env_id="CartPole-v1"))
    check_work(cluster, [BIG], cannot_play, Config())
    with pytest.raises(ConfigError, match="node big: the ROM of pong is missing; hint: pip install") as e:
        check_work(cluster, [BIG], lambda config: "the ROM of pong is missing", Config())
    assert "\n" not in str(e.value)


def test_a_machine_without_a_rom_or_a_compiler_says_so(monkeypatch):
    for nowhere in (lambda game: None, lambda game: pathlib.Path("/nowhere.bin").resolve(strict=True)):
        monkeypatch.setattr("ale_py.roms.get_rom_path", nowhere)
        assert cannot_play(Config()) == "the ROM of pong is missing"
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "numba", None)
    assert "pong cannot be played (ModuleNotFoundError: " in str(cannot_play(Config(envs="console")))


def test_the_checksum_is_of_the_sources(tmp_path, monkeypatch):
    before = nodes.source_digest()
    package = tmp_path / "dqnitro" / "cluster"
    package.mkdir(parents=True)
    (package / "nodes.py").write_text("x = 1\n")
    monkeypatch.setattr(nodes, "__file__", str(package / "nodes.py"))
    first = nodes.source_digest()
    (package / "nodes.py").write_text("x = 2\n")
    assert len({before, first, nodes.source_digest()}) == 3


def test_without_ray_it_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ConfigError, match="--on auto needs Ray, which cannot be imported .*; hint: pip install 'dqnitro"
    ):
        connect("auto")


def fake_ray(monkeypatch, error) -> list[str]:
    """A Ray whose `init` fails; the calls that it got."""
    calls = []

    def init(**options):
        calls.append(f"init {options['address']}")
        raise error

    fake = types.ModuleType("ray")
    fake.__dict__.update(init=init, is_initialized=lambda: False, shutdown=lambda: calls.append("shutdown"))
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setitem(sys.modules, "ray._private", types.ModuleType("ray._private"))
    monkeypatch.setitem(sys.modules, "ray._private.worker", types.ModuleType("ray._private.worker"))
    return calls


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("Could not find any running Ray instance."), "no Ray cluster was found (Could not find any"),
        (
            RuntimeError("Version mismatch: Ray: 2.9\n  Python: 3.9"),
            "(Version mismatch: Ray: 2.9 Python: 3.9); hint: install",
        ),
        (ValueError("no room"), "cannot use that cluster (no room); hint: "),
    ],
)
def test_a_cluster_that_cannot_be_used_is_one_line_and_is_left(error, message, monkeypatch):
    calls = fake_ray(monkeypatch, error)
    with pytest.raises(ConfigError) as e:
        connect("auto")
    assert message in str(e.value) and calls == ["init auto", "shutdown"]


CLIENT = "ray://10.0.0.1:10001"


def test_a_client_that_gets_no_answer_is_told_of_the_token(monkeypatch):
    calls = fake_ray(monkeypatch, ConnectionError("ray client connection timeout"))
    monkeypatch.setattr("dqnitro.cluster.connect._knock", lambda *args: None)
    with pytest.raises(ConfigError, match="or it asks for another token; hint: copy ~/.ray/auth_token from"):
        connect(CLIENT)
    assert calls == [f"init {CLIENT}", "shutdown"]


def test_a_client_whose_server_does_not_start_asks_once_more(monkeypatch):
    calls = fake_ray(monkeypatch, ConnectionAbortedError("Initialization failure from server"))
    monkeypatch.setattr("dqnitro.cluster.connect._knock", lambda *args: None)
    with pytest.raises(ConfigError, match="no Ray cluster was found .Initialization failure from server.; hint: "):
        connect(CLIENT)
    assert calls == [f"init {CLIENT}", "shutdown", f"init {CLIENT}", "shutdown"]


@pytest.mark.parametrize(
    ("variables", "file", "mode"),
    [
        ({}, "", None),
        ({}, ".ray/auth_token", "token"),
        ({}, "elsewhere", None),
        ({"RAY_AUTH_TOKEN": "abc"}, "", "token"),
        ({"RAY_AUTH_TOKEN_PATH": "elsewhere"}, "elsewhere", "token"),
        ({"RAY_AUTH_TOKEN_PATH": "elsewhere"}, ".ray/auth_token", None),
        ({"RAY_AUTH_MODE": "disabled"}, ".ray/auth_token", "disabled"),
    ],
)
def test_a_token_that_is_there_is_sent(variables, file, mode, monkeypatch, tmp_path):
    fake_ray(monkeypatch, None)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.setenv(name, "")  # so that what is set below is taken back
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if file:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text("abc")
    import_ray(CLIENT)
    assert os.environ.get("RAY_AUTH_MODE") == mode


@pytest.mark.parametrize(("address", "mode"), [("10.0.0.1:6379", None), (CLIENT, "token")])
def test_only_a_client_sends_it_unasked(address, mode, monkeypatch):
    """Nodes that differ in this do not answer each other."""
    fake_ray(monkeypatch, None)
    monkeypatch.setenv("RAY_AUTH_MODE", "")
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "abc")
    monkeypatch.setenv("RAY_ADDRESS", address)
    import_ray("ray")
    assert "RAY_AUTH_MODE" not in os.environ
    import_ray("auto")
    assert os.environ.get("RAY_AUTH_MODE") == mode


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_has_ended_is_one_line_at_once(address, monkeypatch):
    """Its address is still known to this machine, and Ray would try it for minutes."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda **options: pytest.fail("it was tried"))
    with pytest.raises(ConfigError, match=r"--on auto: nothing answers at .*:1, where Ray says that it is .*; hint: "):
        connect("auto")


def test_rays_own_handlers_of_signals_do_not_replace_those_of_a_run(monkeypatch):
    """They abort the process; a run that is told to end saves first."""
    fake_ray(monkeypatch, None)

    def init(**options):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    sys.modules["ray"].init = init
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        mine = signal.getsignal(signal.SIGTERM)
        connect("auto")
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_addresses():
    for good in ("ray", "auto", "ray://10.0.0.1:10001", "ray://[::1]:10001", "ray://host.example:1"):
        assert check_address(good) == good
    for bad in ("", "Ray", "ray://", "ray://host", "ray://:1", "ray://host:x", "ray://host:70000", "http://host:1"):
        with pytest.raises(ConfigError, match="not the address of a cluster"):
            check_address(bad)

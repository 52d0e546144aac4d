"""Agents to take away: the folder, plain torch, onnxruntime, the model card, the upload."""

import errno
import http.server
import json
import pathlib
import re
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

import dqnitro
from dqnitro import agents, protocol
from dqnitro.cli import main
from dqnitro.config import Config
from dqnitro.errors import ConfigError, StorageError
from dqnitro.export import Wanted, export, push
from support import fakes_envs

fakes_envs.register()
SMALL = {
    "env_id": "dqnitro_test/Catch-v0", "screen_size": 36, "frame_stack": 2, "network": "small", "hidden_units": 16,
    "batch_size": 8, "first_fill_steps": 40, "replay_capacity": 200, "max_steps": 60, "replay": "frames",
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> pathlib.Path:
    at = tmp_path_factory.mktemp("runs") / "catch"
    dqnitro.train(Config(**SMALL), at, progress=False)
    return at


@pytest.fixture(scope="module")
def exported(run, tmp_path_factory) -> pathlib.Path:
    pytest.importorskip("onnxscript", reason="pip install 'dqnitro[export]'")
    return export(run, tmp_path_factory.mktemp("out") / "agent", Wanted(games=3, video=False)).folder


def test_the_folder_plays_like_the_run(run, exported):
    obs = np.random.default_rng(0).integers(0, 256, (5, 2, 36, 36), np.uint8)
    a, b = dqnitro.load(run), dqnitro.load(exported)
    assert torch.equal(a.values(obs), b.values(obs)) and b.score(games=2).scores == a.score(games=2).scores


def test_torch_and_onnxruntime_load_it_without_this_package(run, exported):
    obs = np.random.default_rng(0).integers(0, 256, (5, 2, 36, 36), np.uint8)
    np.save(exported.parent / "obs.npy", obs)
    code = (
        "import sys, numpy as np, torch, onnxruntime\n"
        "obs = np.load('../obs.npy')\n"
        "a = torch.export.load('model.pt2').module()(torch.from_numpy(obs)).detach().numpy()\n"
        "b = onnxruntime.InferenceSession('model.onnx').run(None, {'obs': obs})[0]\n"
        "assert 'dqnitro' not in sys.modules\n"
        "np.save('../values.npy', np.stack([a, b]))\n"
    )
    pytest.importorskip("onnxruntime", reason="pip install 'dqnitro[export]'")
    subprocess.run([sys.executable, "-c", code], cwd=exported, check=True, capture_output=True, timeout=300)
    expected = dqnitro.load(run).values(obs).numpy()
    assert np.abs(np.load(exported.parent / "values.npy") - expected).max() < 1e-5


def test_the_card_says_score_protocol_and_use_and_its_code_runs(exported):
    card = (exported / "README.md").read_text()
    facts = json.loads((exported / "agent.json").read_text())
    assert f"**Score {facts['scores']['mean']:.2f}** over 3 fresh games" in card and "protocol `other`" in card
    assert facts["protocol"]["counted"] == "fresh games" and facts["training"]["steps"] == 60
    assert card.startswith("---\nlibrary_name: dqnitro\n") and "model-index:" in card
    torch_code = re.findall(r"```python\n(.*?)```", card, re.S)[0].replace("model.pt2", str(exported / "model.pt2"))
    names: dict = {}
    exec(torch_code, names)
    assert names["values"].shape == (1, 3)


def test_an_export_can_be_exported_again_and_nothing_is_overwritten(exported, tmp_path):
    again = export(exported, tmp_path / "again", Wanted(games=0, video=False, onnx=False))
    assert again.files == ("README.md", "agent.json", "config.json", "model.pt2", "model.safetensors")
    assert again.facts["training"]["steps"] == 60
    with pytest.raises(ConfigError, match="not an empty folder"):
        export(exported, tmp_path / "again")


def test_without_onnx_the_rest_is_written_and_the_reason_said(run, tmp_path, monkeypatch, capsys):
    import importlib.util

    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n, *a: None if n == "onnx" else real(n, *a))
    code = main(["export", str(run), "--out", str(tmp_path / "x"), "--games", "0", "--no-video"])
    out = capsys.readouterr().out
    assert code == 0 and "no model.onnx: model.onnx needs the extra `export`" in out


@pytest.mark.parametrize(("fails_at", "there"), [("write_json", True), ("describe", False), ("save_weights", False)])
def test_what_was_begun_goes_again(fails_at, there, run, tmp_path, monkeypatch):
    """A full disk, Ctrl-C: the folder was new or empty, and is so again."""
    import dqnitro.export as module

    def fail(*args, **kwargs):
        raise KeyboardInterrupt if fails_at == "describe" else OSError(errno.ENOSPC, "No space left on device")

    if fails_at == "save_weights":
        monkeypatch.setattr(module.shutil, "copyfile", fail)
    else:
        monkeypatch.setattr(module, fails_at, fail)
    folder = tmp_path / "above" / "agent"
    if there:
        folder.mkdir(parents=True)
    with pytest.raises((StorageError, KeyboardInterrupt)):
        export(run, folder, Wanted(games=0, video=False, onnx=False))
    assert list(tmp_path.rglob("*")) == ([folder.parent, folder] if there else [])


def test_a_network_that_torch_cannot_export_is_said_and_the_rest_is_written(run, tmp_path, monkeypatch):
    import dqnitro.export as module

    def fail(agent, path):
        raise RuntimeError("data-dependent\nbranching")

    monkeypatch.setattr(module, "write_program", fail)
    made = export(run, tmp_path / "agent", Wanted(games=0, video=False))
    assert made.files == ("README.md", "agent.json", "config.json", "model.safetensors")
    assert "RuntimeError: data-dependent branching" in made.left_out["model.pt2"] == made.left_out["model.onnx"]
    assert "torch.export" not in (tmp_path / "agent" / "README.md").read_text()


def test_what_cannot_work_is_said_before_anything_is_written(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("dqnitro.export.write_program", lambda *a: pytest.fail("it was begun"))
    for words, why in ((["--envs", "stella"], "envs"), (["--push", "a/b/c"], "does not name a repository")):
        assert main(["export", str(run), "--out", str(tmp_path / "x"), *words]) == 2
        said = capsys.readouterr().err
        assert why in said and said.count("\n") == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("bad", [["nowhere", "--out", "x"], ["nowhere"], ["nowhere", "--out", "x", "--games", "-1"]])
def test_bad_input_is_one_line(bad, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["export", *bad]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_the_name_of_a_game_is_the_agent_in_the_box_unless_a_folder_has_it(tmp_path, monkeypatch):
    (tmp_path / "box" / "pong").mkdir(parents=True)
    (tmp_path / "box" / "pong" / "model.safetensors").touch()
    monkeypatch.setattr(agents, "BOX", tmp_path / "box")
    monkeypatch.chdir(tmp_path)
    assert agents.boxed() == ["pong"]
    assert agents.find("Pong") == agents.find("ALE/Pong-v5") == tmp_path / "box" / "pong"
    assert agents.find("breakout") == pathlib.Path("breakout") and agents.find("runs/pong") == pathlib.Path("runs/pong")
    (tmp_path / "pong").mkdir()
    assert agents.find("pong") == pathlib.Path("pong")


def test_protocols_have_names():
    machado = Config(**protocol.settings("machado"))
    assert protocol.of(machado, "fresh games", 100, 0.01).name == "machado"
    assert protocol.of(machado.replace(sticky_actions=0.1), "fresh games", 100, 0.01).name == "other"
    assert protocol.of(Config(**protocol.settings("nature")), "training games", 100, 0.01).lives_told
    with pytest.raises(ConfigError, match="unknown protocol"):
        protocol.settings("machiavelli")


class Hub(http.server.BaseHTTPRequestHandler):
    """As much of a model hub as an upload needs; it keeps what it was sent."""

    got: dict[str, bytes] = {}  # noqa: RUF012
    created: list[str] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        if path == "/api/repos/create":
            self.created.append(json.loads(body)["name"])
            self.answer({"url": f"http://{self.headers['Host']}/me/agent"})
        elif path == "/api/validate-yaml":  # of the model card's head
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = [f["path"] for f in json.loads(body)["files"]]
            self.answer({"files": [{"path": f, "uploadMode": "regular", "shouldIgnore": False} for f in files]})
        elif "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.got[line["value"]["path"]] = line["value"]["content"].encode()
            self.answer(
                {
                    "success": True,
                    "commitOid": "0" * 40,
                    "commitUrl": f"http://{self.headers['Host']}/me/agent/commit/{'0' * 40}",
                }
            )
        else:
            self.answer({}, 404)

    def do_GET(self) -> None:
        self.answer({"id": "me/agent", "sha": "0" * 40, "siblings": [], "name": "me"})

    def answer(self, data: dict, code: int = 200) -> None:
        text = json.dumps(data).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *args) -> None: ...


@pytest.fixture
def hub(monkeypatch):
    pytest.importorskip("huggingface_hub", reason="pip install 'dqnitro[export]'")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Hub.got.clear()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    for module in ("constants", "hf_api"):
        found = __import__(f"huggingface_hub.{module}", fromlist=["x"])
        for name in ("ENDPOINT",):
            if hasattr(found, name):
                monkeypatch.setattr(found, name, address)
    yield address
    server.shutdown()


def test_push_uploads_every_file(exported, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    assert push(exported, "me/agent") == f"{hub}/me/agent"
    assert set(Hub.got) == {p.name for p in exported.iterdir()}

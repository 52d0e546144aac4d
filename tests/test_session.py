"""Stop, crash, resume: a run that was interrupted ends where one that never stopped ends."""

import errno
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

from dqnitro.cli import main
from dqnitro.common import signals
from dqnitro.common.files import sealed
from dqnitro.config import RANGES, Config
from dqnitro.errors import CheckpointError, ConfigError, DivergedError, EnvFailed, StorageError
from dqnitro.play import load_config, score
from dqnitro.session import resume, train
from dqnitro.store import checkpoint
from dqnitro.store.read_run import read_run
from dqnitro.store.run_folder import RunFolder
from support import fakes_envs

CORRIDOR = Config(
    env_id="dqnitro_test/Corridor-v0", n_envs=3, frame_stack=1, clip_rewards=False, hidden_units=16, batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, epsilon_decay_steps=200, max_steps=300,
    torch_threads=1, n_step=2, double=True, checkpoint_every_s=0.0,
)  # fmt: skip
VARIANTS = {
    "plain": {"replay": "plain"},
    "frames": {},
    "prioritized": {"prioritized": True},
    "categorical": {"categorical": True, "dueling": True},
    "pixels": {"env_id": "dqnitro_test/Catch-v0", "frame_stack": 2, "screen_size": 36, "max_steps": 120, "n_envs": 2},
    "async": {"envs": "gym-async", "n_envs": 2},
    "fused": {"wrappers": ("no-grad", "fused-adam")},
    "float16": {"wrappers": ("no-grad", "float16")},
    "acting copy": {"act_device": "cpu", "act_sync_updates": 7},
    "pong": {
        "env_id": "pong",
        "frame_stack": 4,
        "max_steps": 90,
        "n_envs": 2,
        "replay_capacity": 200,
        "envs": "ale",
        "n_step": 3,
    },
}
fakes_envs.register()


def parameters(result) -> list[torch.Tensor]:
    return [*result.agent.learner.online.parameters(), *result.agent.learner.target.parameters()]


def same_run(a, b) -> None:
    assert (a.steps, a.updates, a.games, a.mean_score) == (b.steps, b.updates, b.games, b.mean_score)
    assert all(torch.equal(x, y) for x, y in zip(parameters(a), parameters(b), strict=True))
    assert a.agent.rng_act.bit_generator.state == b.agent.rng_act.bit_generator.state
    x, y = (r.agent.replay.sample(16, np.random.default_rng(0), 1.0).batch for r in (a, b))
    assert all(torch.equal(i, j) for i, j in zip(x, y, strict=True))


@pytest.mark.parametrize("name", VARIANTS)
def test_a_run_stopped_and_resumed_twice_is_the_run_that_never_stopped(name, tmp_path):
    config = CORRIDOR.replace(**VARIANTS[name])
    whole = train(config)
    assert whole.updates > 10
    third = config.max_steps // 3
    train(config.replace(max_steps=third), tmp_path / "run")
    resume(tmp_path / "run", max_steps=2 * third)
    same_run(whole, resume(tmp_path / "run", max_steps=config.max_steps))


def test_the_files_of_a_run(tmp_path):
    result = train(CORRIDOR, tmp_path / "run", recipe="mine", rungs=["a"])
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert Config.from_dict(stored["config"]) == CORRIDOR
    assert (
        stored["recipe"] == "mine"
        and stored["machine"]["cores"] >= 1
        and stored["versions"]["torch"]
        and stored["commit"]
    )
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["state"] == "steps" and summary["steps"] == result.steps and summary["bytes_per_transition"] > 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    games = [x for x in lines if x["event"] == "game"]
    assert len(games) == result.games > 0
    assert [x["event"] for x in lines].count("loss") == result.updates // 100
    assert list((tmp_path / "run" / "tensorboard").iterdir())
    average = None
    for g in games:
        average = g["score"] if average is None else 0.98 * average + 0.02 * g["score"]
        assert g["avg_reward"] == pytest.approx(average)


def test_metrics_of_a_resumed_run_have_no_step_twice(tmp_path):
    """What was written after the checkpoint is dropped, because those steps are made again."""
    config = CORRIDOR.replace(max_steps=150)
    train(config, tmp_path / "run")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as f:
        f.write('{"event": "game", "steps": 155, "score": 99, "wall_s": 1}\n')
    resume(tmp_path / "run", max_steps=300)
    whole = train(config.replace(max_steps=300), tmp_path / "whole")

    def games(run):
        lines = (tmp_path / run / "metrics.jsonl").read_text().splitlines()
        return [(x["steps"], x["score"]) for x in map(json.loads, lines) if x["event"] == "game"]

    assert games("run") == games("whole") and len(games("run")) == whole.games


def test_a_full_disk_leaves_the_last_good_checkpoint(tmp_path, monkeypatch):
    config = CORRIDOR.replace(max_steps=150)
    train(config, tmp_path / "run")
    before = checkpoint.complete(tmp_path / "run" / "checkpoints")
    import safetensors.numpy

    real, calls = safetensors.numpy.save_file, []

    def full(tensors, path, *args):
        calls.append(path)
        if len(calls) == 2:  # the second file of the checkpoint does not fit any more
            path.write_bytes(b"half")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(tensors, path, *args)

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    with pytest.raises(StorageError, match="disk of .* is full; the last complete checkpoint is kept"):
        resume(tmp_path / "run", max_steps=200)
    assert checkpoint.complete(tmp_path / "run" / "checkpoints") == before
    assert not list((tmp_path / "run" / "checkpoints").glob(".tmp*"))
    monkeypatch.undo()
    same_run(train(config.replace(max_steps=300)), resume(tmp_path / "run", max_steps=300))


def _damage(kind: str, path) -> None:
    manifest = path / "manifest.json"
    data = json.loads(manifest.read_text())
    if kind == "flipped byte":
        file = path / "learner.safetensors"
        raw = bytearray(file.read_bytes())
        raw[-5] ^= 1
        file.write_bytes(raw)
    elif kind == "cut file":
        file = path / "replay.safetensors"
        file.write_bytes(file.read_bytes()[:-10])
    elif kind == "missing file":
        (path / "envs.safetensors").unlink()
    elif kind == "cut manifest":
        manifest.write_text(manifest.read_text()[:100])
    elif kind == "foreign":
        manifest.write_text('{"hello": "world"}')
    elif kind == "flipped digit":
        text = manifest.read_text()
        at = text.index('"learning_rate": 0.0001') + len('"learning_rate": 0.000')
        manifest.write_text(text[:at] + "3" + text[at + 1 :])
    else:
        changes = {
            "newer": {"format": checkpoint.SHARDED + 1},
            "other config": {"config": data["config"] | {"hidden_units": 17}},
            "unknown setting": {"config": data["config"] | {"warp_drive": 1}},
            "path outside": {"files": {"../learner.safetensors": {"bytes": 1, "blake2b": "x"}}},
        }
        manifest.write_text(json.dumps(sealed(data | changes[kind])))


KINDS = {
    "flipped byte": "damaged",
    "cut file": "damaged",
    "missing file": "damaged",
    "cut manifest": "not a readable checkpoint",
    "foreign": "not written by dqnitro",
    "flipped digit": "manifest.json is damaged \\(its checksum differs",
    "newer": "format 4, this dqnitro reads up to 3",
    "other config": "does not fit its config",
    "unknown setting": "unknown setting",
    "path outside": "outside the checkpoint",
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored") / "run"
    train(CORRIDOR.replace(max_steps=60), folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_checkpoint_gets_one_clear_line_and_nothing_is_overwritten(kind, stored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    (path,) = checkpoint.complete(run / "checkpoints")
    _damage(kind, path)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with pytest.raises((CheckpointError, ConfigError), match=KINDS[kind]) as e:
        resume(run, max_steps=100)
    assert "\n" not in str(e.value)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before


# A way into a record, and what may be found there, if the manifest was edited or is an older one without a checksum.
RECORDS = [
    (("clock",), 5), (("clock", "steps"), -1), (("clock", "steps"), "60"), (("clock", "updates"), None),
    (("clock", "syncs"), 1.5), (("tally",), []), (("tally", "wall_s"), "x"), (("tally", "scores"), 3),
    (("tally", "scores"), ["x"]), (("tally", "games"), {}), (("tally", "avg_loss"), "x"), (("metrics_bytes",), None),
    (("metrics_bytes",), -5), (("metrics_bytes",), 1e300), (("phases",), 7), (("phases", "act"), "x"),
    (("rng_act",), {}), (("rng_act", "state"), 5), (("rng_replay", "bit_generator"), "MT19937"), (("config",), []),
    (("config", "n_envs"), "3"), (("config", "wrappers"), 5), (("files",), 5),
    (("files",), {"learner.safetensors": 5}), (("format",), "2"), (("format",), None),
]  # fmt: skip
GONE = object()
RECORDS += [((name,), GONE) for name in ("clock", "tally", "metrics_bytes", "phases", "config", "files", "rng_act")]
RECORDS += [(("tally", name), GONE) for name in ("wall_s", "scores", "avg_reward")]


@pytest.mark.parametrize("signed", [True, False], ids=["edited", "without a checksum"])
def test_a_record_that_cannot_be_used_is_refused_before_anything_is_written(signed, stored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    (path,) = checkpoint.complete(run / "checkpoints")
    manifest = path / "manifest.json"
    good = manifest.read_text()
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p != manifest}
    for way, value in RECORDS:
        data = json.loads(good)
        del data["checksum"]
        place = data
        for name in way[:-1]:
            place = place[name]
        place[way[-1]] = value
        if value is GONE:
            del place[way[-1]]
        manifest.write_text(json.dumps(sealed(data) if signed else data))
        with pytest.raises(CheckpointError) as e:
            resume(run, max_steps=100)
        assert "\n" not in str(e.value), way
        assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file() and p != manifest} == before, way
    manifest.write_text(good)
    assert resume(run, max_steps=100).steps >= 100


def test_a_damaged_checkpoint_beside_an_older_complete_one_says_what_to_do(stored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    (old,) = checkpoint.complete(run / "checkpoints")
    new = old.with_name(f"{int(old.name) + 40:012d}")
    shutil.copytree(old, new)
    (new / "replay.safetensors").unlink()
    with pytest.raises(CheckpointError, match=f"hint: delete {new} to resume from {old.name}, which is complete"):
        resume(run, max_steps=100)
    shutil.rmtree(new)
    assert resume(run, max_steps=100).steps >= 100


def flipped(path: pathlib.Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] ^= 4
    path.write_bytes(raw)


def test_a_flipped_bit_in_weights_or_settings_is_not_played(stored, tmp_path):
    for name, ways in (("model.safetensors", 40), ("config.json", 40)):
        size = (stored / name).stat().st_size
        for i in range(ways):
            run = tmp_path / "run"
            run.mkdir()
            for kept in ("model.safetensors", "config.json"):
                shutil.copy(stored / kept, run / kept)
            flipped(run / name, at := (i * size) // ways)
            try:
                config = load_config(run)
                scored = score(run, 1, epsilon=0.1)
            except CheckpointError:
                pass
            else:  # nothing but a space between two values may have changed
                assert name == "config.json" and config == load_config(stored), at
                assert scored == score(stored, 1, epsilon=0.1)
            shutil.rmtree(run)


def test_settings_with_a_flipped_digit_are_not_shown(stored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    text = (run / "config.json").read_text()
    (run / "config.json").write_text(text.replace('"learning_rate": 0.0001', '"learning_rate": 0.0003'))
    for use in (read_run, load_config):
        with pytest.raises(CheckpointError, match="config.json is damaged \\(its checksum differs"):
            use(run)


@pytest.mark.parametrize("name", ["metrics.jsonl", "summary.json", "model.safetensors", "tensorboard"])
def test_a_folder_in_the_place_of_a_file_is_one_line(name, stored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    path = run / name
    if path.is_dir():
        shutil.rmtree(path)
        path.write_bytes(b"")
    else:
        path.unlink()
        path.mkdir()
    with pytest.raises(CheckpointError, match=f"{name} is a .*, expected a .*; hint: move it away"):
        resume(run, max_steps=100)


def test_only_limits_change_on_resume(stored):
    with pytest.raises(ConfigError, match="gamma cannot change on resume"):
        resume(stored, gamma=0.5)


def test_a_folder_with_files_in_it_is_not_written_over(stored):
    with pytest.raises(ConfigError, match="is not empty; hint: --resume"):
        train(CORRIDOR, stored)


def test_a_run_that_is_being_trained_is_left_alone(stored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    other = RunFolder(run)
    other.lock()
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    with pytest.raises(CheckpointError, match="is being trained by another process"):
        resume(run)
    assert {p: p.read_bytes() for p in run.rglob("*") if p.is_file()} == before
    other.unlock()
    assert resume(run, max_steps=200).steps == 200


def test_a_crashed_run_can_be_resumed_whoever_has_its_process_number_now(stored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    (run / "summary.json").write_text(json.dumps({"state": "running", "pid": os.getppid()}))
    assert RunFolder(run).state() == "crashed"
    assert resume(run, max_steps=200).steps == 200


def test_the_lock_goes_with_the_process_that_held_it(tmp_path):
    code = (
        "import pathlib, sys; from dqnitro.store.run_folder import RunFolder\n"
        "folder = RunFolder(pathlib.Path(sys.argv[1])); folder.lock(); print('held', flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "held\n"
    assert RunFolder(tmp_path).is_locked()
    with pytest.raises(CheckpointError, match="another process"):
        RunFolder(tmp_path).lock()
    child.kill()
    child.wait()
    assert not RunFolder(tmp_path).is_locked()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_what_safetensors_says_of_a_disk_is_a_storage_error(number, tmp_path, monkeypatch):
    """safetensors tells an errno in words only."""
    import safetensors.numpy

    def refuse(tensors, path, *args):
        raise safetensors.SafetensorError(f"I/O error: something (os error {number})")

    monkeypatch.setattr(safetensors.numpy, "save_file", refuse)
    with pytest.raises(StorageError, match="the last complete checkpoint is kept") as caught:
        train(CORRIDOR.replace(max_steps=100), tmp_path / "run")
    assert caught.value.exit_code == 2
    assert RunFolder(tmp_path / "run").state() == "crashed"


SAVES = {"first": 1, "a step saved a second time": 2, "and a third time": 3}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="it kills forked processes, and this system cannot fork")
@pytest.mark.parametrize("times", SAVES.values(), ids=SAVES)
def test_at_every_moment_of_a_save_one_complete_checkpoint_has_its_name(times, tmp_path, monkeypatch):
    """A kill at every call that changes a name or removes something."""
    arrays = {"learner": {"w": np.arange(6.0)}, "agent": {"x": np.ones(2)}}

    def saved(folder, until=None):
        """Save, and die at call number `until`; how many calls there were."""
        calls = [0]

        def counted(real):
            def call(*args, **kwargs):
                calls[0] += 1
                if calls[0] == until:
                    os._exit(9)  # as kill -9: nothing after it happens
                return real(*args, **kwargs)

            return call

        with monkeypatch.context() as m:
            for owner, name in ((pathlib.Path, "rename"), (pathlib.Path, "mkdir"), (shutil, "rmtree"), (os, "fsync")):
                m.setattr(owner, name, counted(getattr(owner, name)))
            checkpoint.save(folder / "checkpoints", 120, arrays, {})
        return calls[0]

    def before(folder):
        for _ in range(times - 1):
            checkpoint.save(folder / "checkpoints", 120, arrays, {})

    before(tmp_path / "count")
    total = saved(tmp_path / "count")
    assert total >= 4
    for moment in range(1, total + 1):
        run = tmp_path / str(moment)
        before(run)
        if (child := os.fork()) == 0:
            saved(run, until=moment)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
        if times > 1 or checkpoint.complete(run / "checkpoints"):
            loaded, manifest = checkpoint.load(run)
            assert manifest["steps"] == 120 and np.array_equal(loaded["learner"]["w"], np.arange(6.0))
        checkpoint.save(run / "checkpoints", 120, arrays, {})  # the next process cleans up
        assert len(list((run / "checkpoints").iterdir())) == 1


def test_a_loss_that_is_not_finite_stops_the_run_with_a_checkpoint_and_the_update(tmp_path, monkeypatch):
    monkeypatch.delitem(RANGES, "learning_rate")  # larger than anybody may choose, so that it comes soon
    config = CORRIDOR.replace(learning_rate=1e30, max_steps=300)
    with pytest.raises(DivergedError, match=r"the loss became (nan|inf) at update \d+") as e:
        train(config, tmp_path / "run")
    assert e.value.update > 1
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "diverged"
    assert checkpoint.load(tmp_path / "run")[1]["clock"]["updates"] == e.value.update - 1


def test_solved_means_a_hundred_games_at_the_bar():
    result = train(CORRIDOR.replace(stop_at_score=-100.0, max_steps=20_000, epsilon_end=0.5))
    assert result.ended == "solved" and result.games >= 100


def test_a_run_from_a_stranger_imports_nothing_without_trust(stored, tmp_path, monkeypatch, capsys):
    """Its environment is `module:Id`, and importing that module leaves a trace."""
    run, trace = tmp_path / "runs" / "run", tmp_path / "trace"
    shutil.copytree(stored, run)
    (tmp_path / "stranger.py").write_text(f"import pathlib, support.fakes_envs; pathlib.Path({str(trace)!r}).touch()")
    monkeypatch.syspath_prepend(tmp_path)
    (path,) = checkpoint.complete(run / "checkpoints")
    for file in (path / "manifest.json", run / "config.json"):
        data = json.loads(file.read_text())
        file.write_text(
            json.dumps(sealed(data | {"config": data["config"] | {"env_id": f"stranger:{CORRIDOR.env_id}"}}))
        )
    refused = "would import the Python module 'stranger'; hint: if you trust this run, add --trust"
    for use in (lambda: resume(run, max_steps=100), lambda: score(run, 1)):
        with pytest.raises(CheckpointError, match=refused):
            use()
    for words in (["train", "--resume", str(run)], ["play", str(run), "--games", "1"], ["play", str(run)]):
        assert main(words) == 2 and refused in capsys.readouterr().err
    for words in (["runs", "--root", str(run.parent)], ["report", str(run)], ["compare", str(run), str(run)]):
        assert main(words) in (0, 2)
    assert "--trust" in (run / "page.html").read_text()
    assert not trace.exists() and "stranger" not in sys.modules
    assert len(score(run, 1, trust=True).scores) == 1 and trace.exists()
    monkeypatch.delitem(sys.modules, "stranger")
    assert resume(run, max_steps=100, trust=True).steps >= 100
    assert resume(run, max_steps=150).steps >= 150, "the module is imported by now"
    monkeypatch.delitem(sys.modules, "stranger")


# -- environments that fail

MOODY = CORRIDOR.replace(env_id="dqnitro_test/Moody-v0", max_steps=240)
SAID = {
    "raise": r"^/.*fakes_envs.py:\d+: KeyError: 'the wrong door' \(in the environment\)",
    "nan reward": r"environment \d returned the reward nan in step \d+",
    "no reward": "the environment's reward must be a number, got None",
    "nan": r"environment \d returned an observation with nan in it, in step \d+",
    "inf": r"environment \d returned an observation with inf in it",
    "no observation": "the environment's observation is None",
}


@pytest.fixture
def mood(monkeypatch):
    def be(name: str, at_step: int) -> None:
        for key, value in (("steps", 0), ("mood", name), ("at_step", at_step)):
            monkeypatch.setattr(fakes_envs.Moody, key, value)

    return be


@pytest.mark.parametrize("changes", [{}, {"wrappers": ("no-grad", "one-pass-acting")}], ids=["plain", "one pass"])
@pytest.mark.parametrize("kind", SAID)
def test_an_environment_that_fails_is_named_and_the_run_goes_on_once_it_is_repaired(kind, changes, mood, tmp_path):
    if changes and kind != "raise":
        pytest.skip("the failure itself is the same with other updates: one kind is enough")
    config = MOODY.replace(**changes)
    mood("", 0)
    whole = train(config)
    mood(kind, 161)  # the second of three environments
    with pytest.raises(EnvFailed, match=SAID[kind]) as e:
        train(config, tmp_path / "run")
    assert "\n" not in str(e.value) and e.value.exit_code == 5
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["state"] == "crashed"
    mood("", 0)
    same_run(whole, resume(tmp_path / "run"))


def test_the_first_ctrl_c_in_a_step_that_hangs_saves_the_run(mood, tmp_path, monkeypatch):
    monkeypatch.setattr(signals, "PATIENCE_S", 0.2)
    mood("", 0)
    whole = train(MOODY)
    mood("hang", 161)

    def press():
        while fakes_envs.Moody.steps < 161:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    stopped = train(MOODY, tmp_path / "run")
    assert stopped.ended == "SIGINT" and 100 < stopped.steps < 161
    mood("", 0)
    same_run(whole, resume(tmp_path / "run"))


def test_a_finished_run_that_is_resumed_has_its_last_line_once(tmp_path):
    config = CORRIDOR.replace(max_steps=150)
    train(config, tmp_path / "run")
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    resume(tmp_path / "run")
    resume(tmp_path / "run")
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_what_killed_processes_left_half_written_is_cleaned_up(stored, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(stored, run)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = [run / f".model.safetensors.{gone.pid}", run / f".{gone.pid}.game.mp4", run / f".summary.json.{gone.pid}"]
    mine = run / f".page.html.{os.getpid()}"
    for path in (*left, mine):
        path.write_bytes(b"half")
    resume(run, max_steps=100)
    assert not any(path.exists() for path in left) and mine.exists()

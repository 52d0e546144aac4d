"""Several seeds: how the machine is divided, who runs when, how they are stopped, and what is said of them."""

import json
import math
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from dqnitro.config import Config
from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.seeds.allocation import GPU_BYTES, USABLE, Room, replay_bytes, share
from dqnitro.seeds.folder import SeedsFolder, is_seeds, seed_range
from dqnitro.seeds.launcher import Team, last_words
from dqnitro.seeds.summary import STOPPED, all_facts, last_progress, seed_facts, spread
from dqnitro.store.run_folder import RunFolder

LARGE = 1e15
PONG, POLE = Config(env_id="pong"), Config(env_id="CartPole-v1")


# ---------- dividing the machine


@pytest.mark.parametrize(
    ("config", "n", "room", "expected"),  # at once, torch threads, console threads
    [
        (POLE, 8, Room(2, LARGE), (2, 1, 1)),
        (POLE, 3, Room(16, LARGE), (3, 5, 5)),
        (POLE.replace(torch_threads=4), 8, Room(16, LARGE), (4, 4, 4)),
        (POLE.replace(torch_threads=4), 8, Room(2, LARGE), (1, 4, 2)),
        (POLE, 1, Room(1, LARGE), (1, 1, 1)),
        (PONG.replace(runner="processes", slack_steps=8), 8, Room(8, LARGE), (4, 1, 2)),
        (PONG.replace(runner="hybrid", device="cuda"), 8, Room(16, LARGE, LARGE), (8, 2, 2)),
        (PONG.replace(runner="hybrid", device="cuda"), 8, Room(4, LARGE, LARGE), (2, 2, 2)),
        (PONG.replace(runner="device", device="cuda", env_threads=3), 8, Room(4, LARGE, LARGE), (4, 1, 3)),
    ],
)
def test_cores_are_divided_and_named_threads_stay(config, n, room, expected):
    s = share(config, n, room)
    assert (s.at_once, s.torch_threads, s.env_threads) == expected


def test_no_more_at_a_time_than_fit_into_memory():
    need = replay_bytes(PONG)
    assert (
        need == 84 * 84 * 100_000
        and replay_bytes(PONG.replace(replay="plain")) == 32 * need
        and replay_bytes(POLE) == 0
    )
    main = share(PONG, 8, Room(16, 4e9))
    assert main.at_once == 1 and "memory" in main.why
    gpu = share(PONG.replace(device="cuda"), 8, Room(16, LARGE, 2.5 * (GPU_BYTES + need) / USABLE))
    assert gpu.at_once == 2 and "GPU" in gpu.why
    # the replay is on the GPU, so it does not count in main memory
    assert share(PONG.replace(device="cuda"), 8, Room(16, 12e9, LARGE)).at_once == 8


def test_the_user_may_choose_how_many():
    s = share(POLE, 8, Room(2, LARGE), at_once=4)
    assert (s.at_once, s.torch_threads) == (4, 1) and share(POLE, 3, Room(2, LARGE), at_once=9).at_once == 3


def test_seeds_that_cannot_be():
    assert list(seed_range(5, 3)) == [5, 6, 7]
    with pytest.raises(ConfigError, match="--seeds must be at least 1, got 0"):
        seed_range(1, 0)
    with pytest.raises(ConfigError, match="hint: start with a smaller --seed"):
        seed_range(2**31 - 2, 3)


# ---------- processes


def script(text: str) -> list[str]:
    return [sys.executable, "-S", "-c", text]


def finish(team: Team, seconds: float = 30.0) -> list[int]:
    """Poll until all are through; how many ran at each look."""
    end, seen = time.monotonic() + seconds, []
    while not team.over:
        assert time.monotonic() < end, "the team does not end"
        team.poll()
        seen.append(len(team.running))
        time.sleep(0.01)
    return seen


def test_never_more_than_at_once_and_one_that_fails_stops_nobody(tmp_path):
    def command(seed):
        return script(f"import sys, time; time.sleep(0.1); print('said {seed}'); sys.exit(3 if {seed} == 2 else 0)")

    team = Team(command, [1, 2, 3, 4, 5], 2, lambda s: tmp_path / f"{s}.log")
    assert max(finish(team)) == 2
    assert {m.seed: m.code for m in team.members.values()} == {1: 0, 2: 3, 3: 0, 4: 0, 5: 0}
    assert [last_words(tmp_path / f"{s}.log") for s in (2, 5)] == ["said 2", "said 5"]
    assert last_words(tmp_path / "none.log") == ""


def test_stopping_tells_all_that_run_and_starts_nobody(tmp_path):
    text = (
        "import signal, sys, time; signal.signal(2, lambda *_: sys.exit(130)); open({!r}, 'w').close(); time.sleep(60)"
    )
    team = Team(lambda s: script(text.format(str(tmp_path / f"up{s}"))), [1, 2, 3], 2, lambda s: tmp_path / f"{s}.log")
    team.poll()
    wait_until(lambda: (tmp_path / "up1").exists() and (tmp_path / "up2").exists())
    team.stop(signal.SIGINT)
    finish(team)
    assert {m.seed: m.code for m in team.members.values()} == {1: 130, 2: 130} and not (tmp_path / "up3").exists()


def test_closing_leaves_no_process_behind(tmp_path, monkeypatch):
    """Also one that does not listen."""
    monkeypatch.setattr("dqnitro.seeds.launcher.PATIENCE_S", 0.3)
    text = (
        f"import signal, time; signal.signal(15, signal.SIG_IGN); open({str(tmp_path / 'up')!r}, "
        "'w').close(); time.sleep(60)"
    )
    team = Team(lambda s: script(text), [1], 1, lambda s: tmp_path / f"{s}.log")
    team.poll()
    wait_until((tmp_path / "up").exists)
    team.close()
    assert team.over and team.members[1].code == -signal.SIGKILL


def test_a_member_whose_parent_is_killed_stops_as_if_told(tmp_path):
    """The parent is a process of its own that dies by kill -9; its member writes that it was told."""
    member = (
        "import pathlib, signal, time; from dqnitro.seeds.launcher import stop_with_parent; "
        f"signal.signal(15, lambda *_: (pathlib.Path({str(tmp_path / 'told')!r}).touch(), exit())); "
        "stop_with_parent(); "
        f"pathlib.Path({str(tmp_path / 'up')!r}).touch(); time.sleep(60)"
    )
    parent = (
        "import pathlib, sys, time; from dqnitro.seeds.launcher import Team; "
        f"t = Team(lambda s: [sys.executable, '-c', {member!r}], [1], 1, lambda s: "
        f"pathlib.Path({str(tmp_path / 'log')!r})); "
        "t.poll(); time.sleep(60)"
    )
    p = subprocess.Popen([sys.executable, "-c", parent])
    wait_until((tmp_path / "up").exists)
    assert not (tmp_path / "told").exists()
    p.kill()
    p.wait()
    wait_until((tmp_path / "told").exists)
    assert (tmp_path / "log").read_text() == ""  # and its end was a quiet one


def wait_until(true, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.02)


# ---------- the folder


def folder(path: pathlib.Path, n: int = 3, **changes) -> SeedsFolder:
    return SeedsFolder.create(path / "f", POLE.replace(**changes), range(1, n + 1), "auto", ("console",), 2)


def stand(f: SeedsFolder, seed: int, state: str, saved: bool = True, **facts) -> None:
    """As a run's process leaves it."""
    run = f.run_dir(seed)
    run.mkdir(exist_ok=True)
    (run / "config.json").write_text(json.dumps({"config": f.config.to_dict()}))
    (run / "summary.json").write_text(json.dumps({"state": state, "pid": os.getpid(), **facts}))
    if saved:
        (run / "checkpoints" / "000000000100").mkdir(parents=True, exist_ok=True)
        manifest = {"magic": "dqnitro-checkpoint", "format": 1, "tally": {"wall_s": 45.0}}
        (run / "checkpoints" / "000000000100" / "manifest.json").write_text(json.dumps(manifest))


def test_what_was_asked_for_is_read_back(tmp_path):
    f = folder(tmp_path, max_steps=100)
    assert is_seeds(f.path) and not is_seeds(tmp_path) and SeedsFolder.read(f.path) == f
    g = f.changed({"max_steps": 200}, 1)
    assert SeedsFolder.read(f.path) == g and g.config.max_steps == 200 and g.at_once == 1
    with pytest.raises(ConfigError, match="gamma cannot be changed on resume"):
        f.changed({"gamma": 0.5}, 1)
    with pytest.raises(ConfigError, match="is not empty; hint: continue it with --resume"):
        folder(tmp_path)
    for text in ("", "[]", "{}", '{"seeds": 3, "rungs": [], "at_once": 1, "config": {}, "recipe": ""}'):
        (f.path / "seeds.json").write_text(text)
        with pytest.raises(CheckpointError, match="seeds.json is damaged"):
            SeedsFolder.read(f.path)


def test_a_seed_is_done_when_it_reached_a_limit(tmp_path):
    f = folder(tmp_path, max_steps=100, max_minutes=1.0, stop_at_score=10.0)
    assert not f.is_done(1)
    stand(f, 1, "solved", mean_score=11.0, steps=50, wall_s=5)
    assert f.is_done(1) and f.is_done(1, more_minutes=True)
    assert not f.changed({"stop_at_score": 12.0}, 2).is_done(1)
    for state, more, expected in (
        ("steps", {"steps": 100}, True),
        ("steps", {"steps": 99}, False),
        ("minutes", {"wall_s": 60.1}, True),
        ("stopped", {"steps": 100}, False),
    ):
        stand(f, 2, state, **more)
        assert f.is_done(2) is expected, state
    stand(f, 2, "minutes", wall_s=60.1)
    assert not f.is_done(2, more_minutes=True) and not f.changed({"max_minutes": 2.0}, 2).is_done(2)
    stand(f, 3, "diverged")
    assert f.is_done(3)
    stand(f, 3, "steps", saved=False, steps=100)
    (f.run_dir(3) / "checkpoints" / "000000000100" / "manifest.json").unlink()
    assert not f.is_done(3), "without a checkpoint there is nothing to show for it"


def test_every_seed_gets_the_same_time_however_often_it_was_stopped(tmp_path):
    f = folder(tmp_path, max_minutes=1.0)
    assert f.minutes_left(1) == 1.0
    stand(f, 1, "stopped", wall_s=15)
    assert f.minutes_left(1) == pytest.approx(0.75)
    stand(f, 1, "running")  # killed: only the checkpoint knows
    assert f.minutes_left(1) == pytest.approx(0.25)
    assert folder(tmp_path / "no", max_minutes=0.0).minutes_left(1) == 0.0


def test_what_never_came_to_a_checkpoint_begins_anew(tmp_path):
    f = folder(tmp_path)
    stand(f, 1, "running", saved=False)
    stand(f, 2, "stopped")
    for seed in f.seeds:
        f.clear_unbegun(seed)
    assert not f.run_dir(1).exists() and f.run_dir(2).exists()
    assert not f.discard_if_empty() and f.path.exists()
    empty = folder(tmp_path / "other")
    assert empty.discard_if_empty() and not (tmp_path / "other").exists()


# ---------- numbers


def test_seeds_without_a_value_are_later_than_all_others():
    assert spread([]) is None
    s = spread([3.0, 1.0, 2.0])
    assert (s["median"], s["min"], s["max"], s["n"]) == (2.0, 1.0, 3.0, 3) and s["interval"]["low"] < 2.0 < s[
        "interval"
    ]["high"]
    some = spread([3.0, 1.0, 2.0], of=5)
    assert (some["median"], some["of"]) == (3.0, 5) and some["interval"] is None
    assert spread([3.0, 1.0], of=5)["median"] is None and spread([1.0, 2.0], of=4)["median"] is None
    json.dumps([s, some], allow_nan=False)


def test_the_facts_of_all_seeds(tmp_path):
    f = folder(tmp_path, n=4)
    stand(f, 1, "solved", mean_score=20.0, steps=100, wall_s=10.0, steps_per_s=10.0)
    stand(f, 2, "solved", mean_score=18.0, steps=300, wall_s=30.0, steps_per_s=10.0)
    stand(f, 3, "running", mean_score=None)
    runs = [seed_facts(f, s, code) for s, code in ((1, 0), (2, 0), (3, 1), (4, None))]
    assert [r["state"] for r in runs] == ["solved", "solved", "failed", "waiting"]
    assert [seed_facts(f, 3, code)["state"] for code in STOPPED] == ["stopped"] * len(STOPPED)
    whole = all_facts(f, runs)
    assert whole["solved"] == 2 and whole["score"]["median"] == 19.0 and whole["score"]["n"] == 2
    assert whole["seconds_to_solve"] == {"median": None, "min": 10.0, "max": 30.0, "n": 2, "of": 4, "interval": None}
    assert whole["steps_to_solve"]["max"] == 300 and not math.isnan(whole["steps_per_s"]["median"])


def test_the_newest_progress_is_read_while_somebody_writes(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert last_progress(path) == {}
    lines = [json.dumps({"event": "progress", "steps": k, "fill": "x" * 200}) for k in range(200)]
    path.write_text("\n".join([*lines, '{"event": "game", "steps": 5}', '{"event": "progress", "ste']))
    assert last_progress(path)["steps"] == 199


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_seed_that_was_told_to_stop_has_not_failed(name, tmp_path):
    folder = SeedsFolder.create(tmp_path / "r", POLE, (1, 2), "fast", (), 2)
    number = getattr(signal, name)
    for code in (128 + number, -number):
        assert seed_facts(folder, 1, code)["state"] == "waiting"
    assert seed_facts(folder, 1, -signal.SIGKILL)["state"] == "failed"


def test_a_run_that_has_saved_nothing_yet_is_not_deleted_under_its_process(tmp_path):
    folder = SeedsFolder.create(tmp_path / "r", POLE, (1,), "fast", (), 1)
    begun = RunFolder.create(folder.run_dir(1), POLE, "fast", ())
    with pytest.raises(CheckpointError, match="is being trained by another process"):
        folder.clear_unbegun(1)
    assert (begun.path / "config.json").is_file()
    begun.unlock()
    folder.clear_unbegun(1)
    assert not begun.path.exists()

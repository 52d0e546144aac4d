"""Several ranks asked for wrongly: one line with a hint, exit code 2, and nothing is started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from dqnitro.cli import main, replicas
from dqnitro.distributed import world
from dqnitro.errors import ConfigError, RankLost
from dqnitro.run.processes import watchdog

RANK = {
    "TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "host", "MASTER_PORT": "29400",
}  # fmt: skip
CPU = ("--device", "cpu", "--gpus", "2")


@pytest.fixture
def nothing_starts(monkeypatch):
    def crew(*args):
        raise AssertionError("processes were started")

    monkeypatch.setattr(replicas, "Crew", crew)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("pong", "--gpus", "2"), "gpus 2: .*(torch finds|GPU)"),
        (("pong", *CPU, "--n-envs", "3"), "3 environments cannot be divided among 2 GPUs; hint: --n-envs 2 or 4"),
        (("pong", *CPU, "--batch-size", "33"), "33 transitions of a batch cannot .*hint: --batch-size 32 or 34"),
        (("pong", *CPU, "--runner", "inline"), "gpus 2 needs runner device or hybrid, got inline; hint: "),
        (("pong", *CPU, "--also", "one-pass-adam"), "one-pass-adam cannot be used on several GPUs: "),
        (("pong", "--gpus", "0"), "gpus must be at least 1"),
        (("CartPole-v1", *CPU), "gpus 2: there is no convolution"),
        (("pong", "--gpus", "2", "--seeds", "3"), "--gpus is for one run, --seeds for several"),
        (("pong", "--restarts", "2"), "--restarts needs --gpus"),
        (("--gpus", "2"), "no game was given"),
    ],
)
def test_what_cannot_work_is_said_before_anything_starts(words, says, nothing_starts, capsys, monkeypatch, tmp_path):
    import re

    monkeypatch.chdir(tmp_path)
    assert main(["train", *words]) == 2
    said = capsys.readouterr().err
    assert re.search(says, said) and said.count("\n") == 1 and "hint: " in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"RANK": "4"}, "RANK is 4, but WORLD_SIZE is 4"),
        ({"RANK": ""}, "RANK must be a whole number"),
        ({"LOCAL_RANK": "2"}, "LOCAL_RANK is 2, but LOCAL_WORLD_SIZE is 2"),
        ({"RANK": "0"}, "rank 0 of 4 cannot be number 1 of 2 on its machine"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
    ],
)
def test_variables_that_disagree_are_refused(changes, says):
    with pytest.raises(ConfigError, match=says) as e:
        world.place({**RANK, **changes})
    assert "hint: " in str(e.value)


def test_a_rank_knows_its_place():
    assert world.place(RANK) == world.Place(1, 4, 1, 2)
    assert world.place({k: v for k, v in RANK.items() if k != "TORCHELASTIC_RUN_ID"}) is None  # of another program
    with pytest.raises(ConfigError, match="--gpus 2, but torchrun started 4 ranks"):
        world.checked_size(2, world.Place(1, 4))


def test_another_version_or_config_is_named():
    mine = {"versions": {"DQNitro": "1", "torch": "2"}, "config": {"n_envs": 8, "seed": 1}}
    assert replicas.difference(mine, mine) == ""
    assert replicas.difference(mine, {**mine, "versions": {"DQNitro": "0", "torch": "2"}}) == "DQNitro 0, rank 0 has 1"
    assert replicas.difference(mine, {**mine, "config": {"n_envs": 8, "seed": 2}}) == "seed 2, rank 0 has 1"


@pytest.mark.parametrize(
    ("codes", "rank"),
    [
        ({0: 0, 1: 0}, None), ({0: 130, 1: 0}, None), ({0: 2, 1: 2}, None), ({0: 3, 1: 0}, None),
        ({0: 6, 1: -9}, 1), ({0: -9, 1: 6}, 0), ({0: 6, 1: 6, 2: 1}, 2), ({1: -11}, 1), ({0: 6, 1: 6}, 0),
    ],
)  # fmt: skip
def test_the_rank_that_was_lost_first_is_named(codes, rank):
    assert replicas.lost_rank(codes) == rank


def test_how_a_rank_ended():
    assert replicas.how_it_ended(-signal.SIGKILL, "") == "killed by SIGKILL"
    assert replicas.how_it_ended(-37, "") == "killed by 37", "some real-time signals have no name"
    assert replicas.how_it_ended(-9, "", "process 7 was stopped for 8 s") == "process 7 was stopped for 8 s"
    assert replicas.how_it_ended(1, "MemoryError") == "MemoryError" and replicas.how_it_ended(1, "") == "exit code 1"
    assert replicas.how_it_ended(-signal.SIGABRT, "terminate called") == "killed by SIGABRT: terminate called"
    assert replicas.how_it_ended(-signal.SIGKILL, "step 7") == "killed by SIGKILL"
    assert RankLost("rank 1 was lost").exit_code == 6


def test_a_folder_with_files_is_refused_before_ranks_could_be_lost_and_begun_again(nothing_starts, capsys, tmp_path):
    """A run that had saved nothing is deleted before it begins again: never files of others."""
    (tmp_path / "thesis.txt").write_text("years of work")
    assert main(["train", "pong", *CPU, "--restarts", "2", "--run-dir", str(tmp_path)]) == 2
    assert "is not empty; hint: --resume" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="no process can be stopped here: run it on Linux or macOS")
def test_a_rank_that_was_stopped_is_named_however_early(monkeypatch, tmp_path):
    """Before the ranks have met there is nobody else who could miss it."""
    monkeypatch.setattr(watchdog, "STOPPED_S", 1.0)
    crew = replicas.Crew([], 0, tmp_path)
    words = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    crew.processes = [subprocess.Popen([sys.executable, "-c", words])]
    codes = crew.wait([])
    assert codes == {0: -signal.SIGKILL} and crew.given_up[0].endswith("was stopped for 1 s")


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with replicas._noted_signals() as told:
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
        assert told == [signal.SIGTERM] and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)

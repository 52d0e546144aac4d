"""Many games under one protocol: which runs there are, how they go on, and what the table says of them."""

import json
import os
import signal
import sys
import threading

import pytest

from dqnitro import published
from dqnitro.cli import atari as command
from dqnitro.cli import main, one_seed
from dqnitro.cli.terminal.training import afterwards
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab import atari
from dqnitro.lab.atari import Asked, Run, games_named, in_all, jobs_of, normalized, open_folder, row_of
from dqnitro.seeds.folder import SeedsFolder
from dqnitro.session import train
from support import fakes_envs

TINY = {
    "envs": "ale", "n_envs": 2, "runner": "inline", "device": "cpu", "first_fill_steps": 32, "replay_capacity": 200,
    "batch_size": 8, "hidden_units": 16, "torch_threads": 1, "env_threads": 1,
}  # fmt: skip


def test_sets_and_lists_of_games():
    assert games_named("atari5") == ["battle_zone", "name_this_game", "phoenix", "qbert", "double_dunk"]
    assert len(games_named("atari26")) == 26 and len(games_named("atari57")) == 57
    assert games_named("Pong, qbert,pong") == ["pong", "qbert"]
    assert games_named("qbert,atari5")[0] == "qbert" and len(games_named("qbert,atari5")) == 5
    assert set(games_named("atari26")) <= set(published.games())
    with pytest.raises(ConfigError, match=r"unknown game 'pang'; hint: did you mean pong"):
        games_named("pang")
    with pytest.raises(ConfigError, match="no game was given"):
        games_named(" , ")


def test_the_protocol_decides_the_rules_and_no_score_ends_a_run():
    config, _ = Asked(["pong"], changes=TINY).plan("pong")
    assert (config.sticky_actions, config.noop_max, config.episodic_life) == (0.25, 0, False)
    assert config.stop_at_score == float("inf") and config.max_minutes == 10 and config.hidden_units == 16
    nature, _ = Asked(["pong"], protocol="nature", changes=TINY).plan("pong")
    assert (nature.sticky_actions, nature.episodic_life) == (0.0, True)
    with pytest.raises(ConfigError, match="sticky_actions: the protocol machado decides"):
        Asked(["pong"], changes={"sticky_actions": 0.1}).plan("pong")


def test_a_folder_goes_on_with_more_minutes_seeds_and_games(tmp_path):
    asked = Asked(["pong"], (1, 2), 1.0, changes=TINY)
    folders, mine = open_folder(tmp_path / "st", asked, at_once=2)
    assert mine.at_once == 2 and folders["pong"].seeds == (1, 2)
    more = Asked(["pong", "qbert"], (1, 2, 3), 5.0, changes=TINY)
    folders, _ = open_folder(tmp_path / "st", more, at_once=1)
    assert folders["pong"].config.max_minutes == 5.0 and folders["pong"].seeds == (1, 2, 3)
    assert SeedsFolder.read(tmp_path / "st" / "pong").seeds == (1, 2, 3), "also on disk"
    todo = jobs_of(folders, more.seeds, 0)
    order = [(j.game, j.seed) for j in todo]
    assert order == [(g, s) for s in (1, 2, 3) for g in ("pong", "qbert")], "every game has its first seed first"
    with pytest.raises(ConfigError, match="was begun with other options"):
        open_folder(tmp_path / "st", Asked(["pong"], changes=TINY | {"batch_size": 4}))


def test_a_run_is_done_when_its_fresh_games_are_played(tmp_path, monkeypatch):
    folders, _ = open_folder(tmp_path / "st", Asked(["pong"], (1, 2), changes=TINY), at_once=1)
    monkeypatch.setattr(SeedsFolder, "is_done", lambda self, seed: True)
    played = {1: {"state": "minutes", "evaluation": {"mean": 1.0}}, 2: {"state": "minutes"}}
    monkeypatch.setattr(SeedsFolder, "summary", lambda self, seed: played[seed])
    assert [j.seed for j in jobs_of(folders, (1, 2), fresh_games=10)] == [2]
    assert jobs_of(folders, (1, 2), fresh_games=0) == []


def fresh(*scores):
    mean = sum(scores) / len(scores)
    return {"scores": list(scores), "mean": mean, "low": mean - 1, "high": mean + 1, "truncated": 0}


def run(game, seed, training, found=None, frames=12_000_000):
    facts = {"seed": seed, "state": "minutes", "why": None, "steps": frames // 4, "wall_s": 600.0, "run_dir": "x"}
    return Run(game, facts, frames, training, found)


def test_a_row_has_scores_with_intervals_and_published_ones_beside_them():
    row = row_of("breakout", [run("breakout", 1, 50.0, fresh(58.0, 62.0)), run("breakout", 2, 60.0, fresh(70.0, 90.0))])
    assert row["training"].mean == 55.0 and row["fresh"].mean == 70.0 and row["fresh"].n == 2
    assert row["human_normalized"] == pytest.approx((70 - 1.7) / (30.5 - 1.7)), "of fresh games"
    assert row["frames"] == 12e6 and row["minutes"] == 10 and row["frames_per_s"] == 20_000
    rainbow = published.agents()["Rainbow"]
    assert row["published"]["Rainbow"]["at"] == rainbow.on_curve(12, "breakout")
    assert row["published"]["Rainbow"]["end"] == rainbow.last("breakout")
    assert row["published"]["IQN"]["at"] == published.agents()["IQN"].at(12, "breakout"), "no curve: the nearest point"
    assert row["published"]["Cleanba IMPALA, 1 A100, 10 CPU"]["at"] is None
    single = row_of("breakout", [run("breakout", 1, 50.0, fresh(1.0, 2.0, 3.0))])
    assert (single["fresh"].low, single["fresh"].n) == (1.0, 3), "one seed: the interval of its games"
    begun = row_of("breakout", [run("breakout", 1, None, None, 0)])
    assert begun["fresh"] is begun["training"] is begun["human_normalized"] is begun["frames"] is None


def test_aggregates_over_games_and_seeds_by_hand():
    human = {g: published.human_normalized(g, 0.0) for g in ("pong", "boxing")}
    assert human["pong"] is not None
    runs = [run("pong", 1, -20.7), run("pong", 2, 14.6), run("boxing", 1, 24.1), run("boxing", 2, 24.1)]
    per_game = normalized(runs, "training")
    assert per_game == {"pong": [0.0, 1.0], "boxing": [pytest.approx(2.0), pytest.approx(2.0)]}
    found = in_all(per_game)
    assert found["n"] == 2 and found["above_human"] == 1 and found["atari5"] is None
    assert found["median"]["value"] == pytest.approx((0.5 + 2.0) / 2) and found["mean"] == pytest.approx(1.25)
    assert found["iqm"]["value"] == pytest.approx((1.0 + 2.0) / 2)
    assert (found["median"]["seeds"].low, found["median"]["seeds"].high) == (pytest.approx(1.0), pytest.approx(1.5))
    assert normalized(runs, "fresh") == {} and in_all({}) is None
    assert in_all({"pong": [0.5]})["median"]["seeds"] is None


def test_published_rows_name_the_difference_of_protocols():
    rules = published.agents()["DQN"].protocol
    same = atari.published_in_all(["pong", "qbert"], 12.0, rules)
    assert {(p["agent"], p["millions"]) for p in same} >= {("DQN", 10), ("DQN", 200)}
    assert not any(p["differences"] for p in same if p["family"] == "Dopamine")
    other = atari.published_in_all(["pong"], 12.0, {**rules, "sticky_actions": 0.0})
    assert all(p["differences"] == ["sticky actions: 0.25 there, 0 here"] for p in other if p["family"] == "Dopamine")
    assert [p["in_all"] for p in atari.published_in_all(["surround"], 10, rules) if p["agent"] == "DQN"] == [None, None]


def arguments(tmp_path, *more):
    settings = [w for k, v in TINY.items() for w in (f"--{k.replace('_', '-')}", str(v))]
    return ["atari", "pong,qbert", "--state", str(tmp_path / "st"), *settings, *more]


def test_a_game_is_trained_and_the_same_command_has_nothing_left_to_do(tmp_path, capsys):
    """In a real process."""
    out = tmp_path / "result.json"
    asked = arguments(tmp_path, "--minutes", "0.01", "--fresh-games", "0", "--out", str(out))
    asked[1] = "pong"
    assert main(asked) == 0
    told = capsys.readouterr()
    assert "1 run to do" in told.err and "pong seed 1: minutes" in told.err
    assert "Rainbow 200 M" in told.out and "* another protocol (Dopamine): FIRE at the start" in told.out
    result = json.loads(out.read_text())
    assert result["what"] == "atari" and result["done"] == result["of"] == 1 and result["interrupted"] is None
    (row,) = result["rows"]
    assert row["game"] == "pong" and row["frames"] > 0 and row["runs"][0]["state"] == "minutes"
    assert result["protocol"]["name"] == "machado" and result["protocol"]["noop_max"] == 0
    assert "<section" in (tmp_path / "st" / "page.html").read_text()
    assert main([*asked, "--json"]) == 0
    again = capsys.readouterr()
    assert "0 runs to do" in again.err and json.loads(again.out)["rows"][0]["frames"] == row["frames"]


def test_a_signal_is_passed_on_and_what_is_known_is_kept(tmp_path, capsys, monkeypatch):
    script = (
        "import signal,sys,time; signal.signal(signal.SIGTERM, lambda *a: sys.exit(143)); print('up', flush=True); "
    )
    monkeypatch.setattr(one_seed, "command", lambda *a: [sys.executable, "-c", script + "time.sleep(600)"])
    timer = threading.Timer(3.0, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    assert main(arguments(tmp_path, "--at-once", "1", "--json")) == 143
    told = capsys.readouterr()
    assert json.loads(told.out)["interrupted"] == "SIGTERM" and "not done: 2 of 2 runs" in told.err


def test_a_run_that_fails_is_told_and_does_not_stop_the_others(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        one_seed, "command", lambda *a: [sys.executable, "-c", "import sys; print('no memory'); sys.exit(7)"]
    )
    assert main(arguments(tmp_path)) == 7
    told = capsys.readouterr()
    assert "pong, seed 1: no memory" in told.out and "qbert, seed 1: no memory" in told.out


def test_fresh_games_after_any_end_have_their_protocol(tmp_path):
    fakes_envs.register()
    corridor = Config(
        env_id="dqnitro_test/Corridor-v0", frame_stack=1, hidden_units=8, batch_size=4, first_fill_steps=20,
        replay_capacity=200, max_steps=40, torch_threads=1, sticky_actions=0.25, noop_max=0,
    )  # fmt: skip
    result = train(corridor, tmp_path / "run")
    assert afterwards(result, 2, False) == {}
    facts = afterwards(result, 2, False, always=True, envs="wrappers")
    rules = facts["evaluation"]["protocol"]
    assert (rules["name"], rules["counted"], rules["games"], rules["backend"]) == (
        "machado",
        "fresh games",
        2,
        "wrappers",
    )


def test_numbers_of_the_table():
    assert (command.millions(12.34e6), command.millions(3400), command.millions(None)) == ("12.3 M", "3 k", "-")
    assert command.score_text(-20.66) == "-20.7" and command.score_text(12345.6) == "12,346"

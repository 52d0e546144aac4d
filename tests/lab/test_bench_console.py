"""The benchmark of the console measures what it says, and invents nothing where a peer is missing."""

from __future__ import annotations

import importlib.util
import time

import pytest

pytest.importorskip("dqnitro.lab.interleave")

from dqnitro.lab.bench import console as bench


def test_rows_ratios_and_table() -> None:
    said: list[str] = []
    two = ["pong", "breakout"]
    result = bench.bench_console(two, threads=[1], seconds=0.05, rounds=2, num_envs=2, progress=said.append)
    assert said == ["pong, 1 thread", "breakout, 1 thread"]
    assert [r["game"] for r in result["rows"]] == ["pong", "breakout"]
    for row in result["rows"]:
        assert {bench.OURS, bench.ALE} <= set(row["rates"])
        assert all(len(v) == 2 and min(v) > 0 for v in row["rounds"].values())
        ratio = row["ratios"][bench.ALE]
        assert ratio["low"] <= ratio["mean"] <= ratio["high"]
    assert result["geomean"][1]["n"] == 2
    assert not result["scaling"], "one number of threads: nothing to compare"
    text = bench.table(result)
    if importlib.util.find_spec("envpool") is None:
        assert " - |" in text, "a peer that was not measured has no number"
        assert text.splitlines()[-1].startswith("EnvPool: not installed here (") and "hint:" in text
    else:
        assert not result["skipped"]


def test_scaling_beside_what_the_cores_allow(monkeypatch) -> None:
    """Everybody with every number of threads takes turns; the allowed speed is of environments that share nothing."""
    made: list[tuple[str, int, int]] = []

    class Env:
        single_action_space = action_space = type("Space", (), {"n": 2})

        def __init__(self, *what):
            made.append(what)
            self.size = what[2]

        def reset(self, seed=None):
            pass

        def step(self, actions):
            time.sleep(2e-3 * self.size)  # on one thread, whatever it was told; long beside a wait for a core

        def close(self):
            made.append("closed")

    def not_here(*_):
        raise ImportError("No module named 'envpool'")

    for name in (bench.OURS, bench.ALE):
        monkeypatch.setitem(bench.MAKERS, name, lambda *a, name=name: Env(name, *a))
    monkeypatch.setitem(bench.MAKERS, bench.ENVPOOL, not_here)
    monkeypatch.setattr(bench, "ours", lambda *a: Env("part", *a))
    result = bench.bench_console(["pong"], threads=[2, 1], seconds=0.1, rounds=2, num_envs=8)
    assert made[:6] == [
        (bench.OURS, "pong", 8, 1), (bench.ALE, "pong", 8, 1), (bench.OURS, "pong", 8, 2), (bench.ALE, "pong", 8, 2),
        ("part", "pong", 4, 1), ("part", "pong", 4, 1),
    ]  # fmt: skip
    assert made[6:] == ["closed"] * 6
    assert [r["threads"] for r in result["rows"]] == [1, 2]
    assert all(bench.ALLOWED not in r["rates"] for r in result["rows"]), "not a peer"
    (row,) = result["scaling"]
    assert row["threads"] == 2 and set(row["times"]) == {bench.OURS, bench.ALE, bench.ALLOWED}
    assert row["times"][bench.ALLOWED]["mean"] > 1.2, "two threads that sleep do so at the same time"
    assert result["scaling_geomean"][2][bench.OURS]["n"] == 1
    text = bench.table(result)
    assert bench.SCALING_HEAD in text and "| **geometric mean** | 2 |" in text
    assert "EnvPool: not installed here (No module named 'envpool')" in text


def test_scaling_is_to_one_thread_in_the_same_round() -> None:
    single = {bench.OURS: [10.0, 20.0], bench.ALE: [5.0, 5.0]}
    many = {bench.OURS: [18.0, 36.0], bench.ALE: [9.0, 9.0], bench.ALLOWED: [20.0, 40.0]}
    times = bench._scaling_row("x", 2, single, many)["times"]
    assert times[bench.OURS]["mean"] == pytest.approx(1.8) and times[bench.OURS]["low"] == pytest.approx(1.8)
    assert times[bench.ALLOWED]["mean"] == pytest.approx(2.0)


def test_the_faster_peer_is_the_one_compared_with() -> None:
    row = bench._row("x", 1, {bench.OURS: [8.0, 8.0], bench.ALE: [2.0, 2.0], bench.ENVPOOL: [4.0, 4.0]})
    assert row["faster_peer"] == bench.ENVPOOL
    geomean = bench._geomeans([row])[1]
    assert geomean["mean"] == pytest.approx(2.0)


def test_at_least_ten_games_by_default() -> None:
    assert len(set(bench.GAMES)) >= 10

"""The benchmark of the console measures what it says, and invents nothing where a peer is missing."""

from __future__ import annotations

import importlib.util

import pytest

pytest.importorskip("dqnitro.lab.measure")

from dqnitro.lab import bench_console as bench


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
    text = bench.table(result)
    assert text.count("\n") == 4
    if importlib.util.find_spec("envpool") is None:
        assert " - |" in text, "a peer that was not measured has no number"


def test_the_faster_peer_is_the_one_compared_with() -> None:
    row = bench._row("x", 1, {bench.OURS: [8.0, 8.0], bench.ALE: [2.0, 2.0], bench.ENVPOOL: [4.0, 4.0]})
    assert row["faster_peer"] == bench.ENVPOOL
    geomean = bench._geomeans([row])[1]
    assert geomean["mean"] == pytest.approx(2.0)


def test_at_least_ten_games_by_default() -> None:
    assert len(set(bench.GAMES)) >= 10

"""Compare: real differences are called real, noise is called noise, and too little is too little."""

import json
import pathlib
import random

import numpy as np
import pytest

from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.lab import compare
from report import fake_run


def make(path: pathlib.Path, mean: float, fps: float, seed: int, games: int = 120, **config) -> str:
    """A run of `games` games of 100 steps with normal scores, and a line of progress a second."""
    rng = random.Random(seed)
    fake_run.write_head(path, fake_run.pong_config(**config).to_dict())
    fake_run.write_summary(path, "minutes")
    total, lines, steps, wall = games * 100, [], 0.0, 0.0
    while steps < total:
        wall += 1.0
        steps += fps * rng.gauss(1.0, 0.02)
        lines.append(
            {"event": "progress", "wall_s": wall, "steps": int(steps), "updates": int(steps), "steps_per_s": fps}
        )
    for g in range(1, games + 1):
        lines.append({"event": "game", "wall_s": g * 100 / fps, "steps": g * 100, "score": rng.gauss(mean, 4.0)})
    (path / "metrics.jsonl").write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    return str(path)


def test_a_real_difference_is_called_real(tmp_path):
    a, b = make(tmp_path / "a", 0.0, 100.0, 1), make(tmp_path / "b", 8.0, 80.0, 2)
    r = compare.compare_runs(a, b)
    assert r["score"]["verdict"] == r["speed"]["verdict"] == "real"
    assert r["difference"].mean == pytest.approx(8, abs=2.5) and r["difference"].low > 0 and r["p_value"] < 1e-4
    assert "the difference is real, b is higher" in r["verdict"] and "a is higher" in r["sentences"][1]
    assert r["window_steps"] == [9000, 12000] and r["runs"][0]["scores"].n == 31  # the last quarter of what both have
    assert "several seeds per side" in r["sentences"][2]


def test_noise_is_called_noise(tmp_path):
    called = []
    for k in range(20):
        a, b = make(tmp_path / f"a{k}", 3.0, 100.0, 2 * k), make(tmp_path / f"b{k}", 3.0, 100.0, 2 * k + 1)
        r = compare.compare_runs(a, b)
        called += [r["score"]["verdict"], r["speed"]["verdict"]]
    assert called.count("real") <= 5, "two of 40 are expected at p < 0.05"


def test_several_runs_a_side_count_once_each(tmp_path):
    groups = []
    for name, mean in (("a", 0.0), ("b", 6.0)):
        groups.append(",".join(make(tmp_path / f"{name}{s}", mean, 100.0, s + 50 * len(groups)) for s in range(4)))
    r = compare.compare_runs(*groups)
    assert r["values"] == "runs" and r["runs"][0]["scores"].n == 4 and r["score"]["verdict"] == "real"
    assert not any("several seeds" in s for s in r["sentences"])
    three = ",".join(groups[0].split(",")[:3])
    assert compare.compare_runs(three, groups[1])["score"]["verdict"] == "too little to say"


def test_the_window_can_be_given_and_has_to_hold_games(tmp_path):
    a, b = make(tmp_path / "a", 0.0, 100.0, 1), make(tmp_path / "b", 0.0, 100.0, 2, games=60)
    assert compare.compare_runs(a, b)["window_steps"] == [4500, 6000]
    assert compare.compare_runs(a, b, (0, 1000))["runs"][0]["scores"].n == 10
    with pytest.raises(ConfigError, match="b has no game in the window"):
        compare.compare_runs(a, b, (7000, 8000))


def test_what_cannot_be_compared_is_one_line(tmp_path):
    a, b = make(tmp_path / "a", 0.0, 100.0, 1), make(tmp_path / "b", 0.0, 100.0, 2, env_id="breakout")
    with pytest.raises(ConfigError, match="different games: breakout, pong"):
        compare.compare_runs(a, b)
    with pytest.raises(CheckpointError, match="does not exist"):
        compare.compare_runs(a, str(tmp_path / "none"))
    (tmp_path / "b" / "metrics.jsonl").write_text("")
    fake_run.write_head(tmp_path / "b")
    with pytest.raises(ConfigError, match="has not finished a game"):
        compare.compare_runs(a, b)


@pytest.mark.parametrize("n", [4, 8, 40])
def test_the_interval_of_a_difference_keeps_its_word(n):
    rng = np.random.default_rng(3)
    held = []
    for _ in range(150):
        d = compare.difference(rng.normal(0, 1, n).tolist(), rng.normal(1, 3, n).tolist())
        held.append(d.low <= 1.0 <= d.high)
    assert 0.88 <= np.mean(held) <= 1.0


def test_a_folder_of_seeds_is_a_side(tmp_path):
    for name, mean in (("a", 0.0), ("b", 6.0)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "seeds.json").write_text("{}")
        for s in range(9, 13):
            make(tmp_path / name / f"s{s}", mean, 100.0, s)
    side = compare.read_side(str(tmp_path / "a"))
    assert [r.path.name for r in side.runs] == ["s9", "s10", "s11", "s12"]
    assert compare.compare_runs(str(tmp_path / "a"), str(tmp_path / "b"))["values"]
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "seeds.json").write_text("{}")
    with pytest.raises(ConfigError, match="has no runs yet; hint: none of its seeds has started"):
        compare.read_side(str(tmp_path / "c"))

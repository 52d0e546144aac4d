"""Data to charts: what is dropped for display, and what never is."""

import json
import math
import pathlib
import random

from hypothesis import given
from hypothesis import strategies as st

from dqnitro.report import charts
from dqnitro.store.read_run import read_run
from report import fake_run


@given(st.lists(st.floats(-1e6, 1e6), max_size=400), st.integers(8, 60), st.integers(0, 4))
def test_downsampling_keeps_ends_extremes_and_order(values: list[float], limit: int, between: int) -> None:
    keep = charts.downsample(values, limit, between)
    assert len(keep) <= limit and keep == sorted(set(keep))
    if values:
        shown = [values[i] for i in keep]
        assert (keep[0], keep[-1]) == (0, len(values) - 1)
        assert (min(shown), max(shown)) == (min(values), max(values))


def test_one_spike_among_a_million_is_shown() -> None:
    values = [0.0] * 1_000_000
    values[654_321] = 9.0
    assert 654_321 in charts.downsample(values, charts.LINE_POINTS)


def test_a_thinned_cloud_of_dots_keeps_its_middle() -> None:
    rng = random.Random(5)
    values = [rng.gauss(0, 1) for _ in range(100_000)]
    shown = charts.Series("s", "dots", {"steps": list(range(len(values)))}, values).to_dict()
    assert len(shown["y"]) <= charts.DOT_POINTS and shown["of"] == len(values)
    assert sum(abs(v) < 1 for v in shown["y"]) > 0.3 * len(shown["y"])


def test_running_mean_is_the_mean_of_the_last() -> None:
    rng = random.Random(3)
    values = [rng.uniform(-21, 21) for _ in range(9_000)]
    means = charts.running_mean(values, 100)
    for i in (0, 1, 57, 99, 100, 4_095, 4_096, 4_097, 8_999):
        window = values[max(0, i - 99) : i + 1]
        assert math.isclose(means[i], sum(window) / len(window), abs_tol=1e-9)
    assert charts.running_mean([], 100) == []


def test_series_drop_what_is_not_finite_on_every_axis_alike() -> None:
    s = charts.Series("s", "line", {"wall_s": [0, 1, 2, 3], "steps": [0, 4, 8, 12]}, [1, math.nan, math.inf, 2])
    d = s.to_dict()
    assert d["y"] == [1, 2] and d["x"] == {"wall_s": [0, 3], "steps": [0, 12]} and d["of"] == 2


def test_large_step_counts_stay_exact() -> None:
    s = charts.Series("s", "line", {"steps": [123_456_784, 123_456_788]}, [1, 2])
    assert s.to_dict()["x"]["steps"] == [123_456_784, 123_456_788]


def test_charts_without_data_are_none(tmp_path: pathlib.Path) -> None:
    fake_run.write_head(tmp_path)
    run = read_run(tmp_path)
    makers = (
        charts.learning_curve,
        charts.loss_curve,
        charts.epsilon_curve,
        charts.speed_curve,
        charts.time_shares,
        charts.evaluation,
    )
    assert [make(run) for make in makers] == [None] * len(makers)


def test_charts_of_a_run_hold_its_numbers(tmp_path: pathlib.Path) -> None:
    run = read_run(fake_run.make_run(tmp_path / "r", n_games=120, seconds=60))
    learning = charts.learning_curve(run)
    assert learning is not None
    assert [s["name"] for s in learning["series"]] == ["score of a game", "smoothed", "mean of the last 100"]
    assert learning["series"][0]["y"] == run.metrics.game["score"]
    assert learning["marks"] == [{"y": 17.0, "label": "solved at 17"}] and set(learning["axes"]) == {"wall_s", "steps"}
    shares = charts.time_shares(run)
    assert shares is not None and [p["name"] for p in shares["rows"][0]["parts"]] == list(charts.PHASES)
    total_us = sum(p["value"] for p in shares["rows"][0]["parts"])
    assert run.steps_per_s is not None and math.isclose(total_us, 1e6 / run.steps_per_s, rel_tol=1e-3)
    json.dumps([learning, shares, charts.loss_curve(run), charts.evaluation(run)], allow_nan=False)


def test_all_curves_of_a_run_end_where_it_ends(tmp_path: pathlib.Path) -> None:
    run = read_run(fake_run.make_run(tmp_path / "r", n_games=20, seconds=60))
    for make in (charts.learning_curve, charts.loss_curve, charts.epsilon_curve, charts.speed_curve):
        chart = make(run)
        assert chart is not None and chart["until"] == {"wall_s": 60, "steps": run.steps}


def test_a_phase_nobody_described_is_shown_behind_the_known_ones() -> None:
    chart = charts.stack("t", {"a": {"copies": 1.0, "learn": 2.0}}, charts.PHASES)
    assert chart is not None and [x["name"] for x in chart["legend"]] == ["learn", "copies"]

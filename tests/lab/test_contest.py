"""A contest compares what took turns, keeps what could not run with its reason, and never claims what the rounds do not
show.
"""

from __future__ import annotations

import pytest

from dqnitro.errors import ConfigError
from dqnitro.lab.bench.contest import CannotRun, Contest, Options, fastest, ratio_text, say_ratio, sure


def fixed(*rates: float):
    """A contender that returns these rates, one a round."""
    turns = iter(rates)
    return lambda: lambda seconds: next(turns)


def run(contest: Contest, **kw) -> dict:
    return contest.run(lambda table: f"fastest: {fastest(table)}", **kw)


def test_every_row_is_compared_with_its_own_reference():
    with Contest(Options(rounds=3), "title", "things/s", "the slow one") as contest:
        contest.add_rate("slow, 1", fixed(1.0, 2.0, 4.0), "slow, 1")
        contest.add_rate("quick, 1", fixed(2.0, 4.0, 8.0), "slow, 1", size=1)
        contest.add_rate("slow, 2", fixed(10.0, 10.0, 10.0), "slow, 2")
        contest.add_rate("quick, 2", fixed(5.0, 5.0, 5.0), "slow, 2")
        result = run(contest)
    rows = result["table"]
    assert rows["quick, 1"]["ratio"] == pytest.approx(2.0) and rows["quick, 1"]["size"] == 1
    assert rows["quick, 1"]["low"] == pytest.approx(2.0)  # the same factor in every round, however the machine drifts
    assert rows["quick, 2"]["ratio"] == pytest.approx(0.5) and rows["quick, 2"]["to"] == "slow, 2"
    assert result["rates"]["quick, 1"] == [2.0, 4.0, 8.0]
    assert result["verdict"] == "fastest: slow, 2"


def test_what_cannot_run_is_listed_with_the_reason():
    def no_gpu():
        raise CannotRun("there is no GPU")

    def missing():
        raise ImportError("No module named 'x'")

    with Contest(Options(rounds=3), "t", "u", "a") as contest:
        contest.add_rate("a", fixed(1.0, 1.0, 1.0), "a")
        contest.add_rate("b", no_gpu, "a")
        contest.add_rate("c", missing, "a")
        result = run(contest)
    assert result["skipped"] == {"b": "there is no GPU", "c": "not installed here (No module named 'x')"}
    assert list(result["table"]) == ["a"]


def test_an_unexpected_error_is_not_a_reason():
    def broken():
        raise RuntimeError("a bug")

    with Contest(Options(), "t", "u", "a") as contest:
        contest.add_rate("a", broken, "a")
        with pytest.raises(RuntimeError, match="a bug"):
            run(contest)


def test_only_keeps_references_and_refuses_names_that_nobody_has():
    built = []

    def contender(name):
        built.append(name)
        return lambda seconds: 1.0

    def fill(only):
        contest = Contest(Options(rounds=3, only=only), "t", "u", "a")
        for name in ("a", "big fish", "small fish"):
            contest.add_rate(name, lambda name=name: contender(name), "a")
        return contest

    assert list(run(fill(("BIG",)))["table"]) == ["a", "big fish"]
    assert built == ["a", "big fish"]  # the other one is not even built
    with pytest.raises(ConfigError, match="--only bird: no contender has that name; hint: contenders: a, big fish"):
        run(fill(("bird",)))


def test_a_step_is_warmed_up_and_then_timed():
    calls = []

    def make():
        def step() -> float:
            calls.append(1)
            return 3.0

        return step

    with Contest(Options(rounds=1, seconds=0.002), "t", "u", "a") as contest:
        contest.add("a", make, "a", warm_up=4)
        contest._build()
        assert len(calls) == 4
        result = run(contest)
    assert len(calls) > 8 and result["rates"]["a"][0] > 0
    assert "too few to tell a difference from noise" in result["verdict"]


def test_everything_is_closed_even_after_an_error():
    closed = []

    def fail():
        with Contest(Options(), "t", "u", "a") as contest:
            contest.closing.callback(closed.append, "worker")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert closed == ["worker"]


def test_noise_is_called_noise():
    row = {"ratio": 1.1, "low": 0.9, "high": 1.3}
    assert not sure(row) and say_ratio(row, "the wrappers") == "1.10x [0.90, 1.30] the wrappers (which may be noise)"
    assert say_ratio(row | {"rounds": 1}, "the wrappers") == "1.10x the wrappers"
    assert sure({"ratio": 0.5, "low": 0.4, "high": 0.6})
    assert ratio_text({"ratio": 2890.6, "low": 2043.7, "high": 4088.4}) == "2,891x [2,044, 4,088]"

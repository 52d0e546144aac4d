"""Numbers in sentences agree with what they count."""

from dqnitro.cli.terminal.wording import fresh_text, mean_of_text, turns_text


def test_one_of_a_kind_is_told_in_the_singular_and_without_an_interval():
    assert turns_text({"rounds": 1, "seconds": 2.0}) == "1 round, 2 s per turn"
    assert turns_text({"rounds": 9, "seconds": 2.0}) == "9 rounds, 2 s per turn, 95% intervals over rounds"
    assert mean_of_text(1) == "the only game" and mean_of_text(511) == "mean of the last 100 of 511 games"
    assert mean_of_text(7) == "mean of the last 7 of 7 games"


def test_equal_scores_have_no_interval():
    assert fresh_text({"scores": [-21.0] * 3, "mean": -21.0, "low": -21.0, "high": -21.0}) == (
        "-21.00 over 3 games, all equal"
    )
    assert fresh_text({"scores": [1.0, 3.0], "mean": 2.0, "low": 1.0, "high": 3.0}).endswith("interval 1.00 to 3.00")

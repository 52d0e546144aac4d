"""A 95% interval contains the true mean about 95 times in 100, also over the few rounds of a benchmark."""

import numpy as np
import pytest

from dqnitro.common.intervals import mean_interval, rate_interval, ratio_interval


@pytest.mark.parametrize("n", [3, 6, 11])
def test_intervals_over_few_rounds_keep_their_word(n):
    rng = np.random.default_rng(1)
    held = [i.low <= 10.0 <= i.high for _ in range(600) if (i := mean_interval(rng.normal(10.0, 1.0, n).tolist()))]
    assert 0.92 <= np.mean(held) <= 0.98


def test_many_values_are_resampled():
    i = mean_interval([0.0] * 50 + [1.0] * 50)
    assert i.n == 100 and 0.35 < i.low < 0.45 and 0.55 < i.high < 0.65


def test_rates_have_a_geometric_mean_so_that_ratios_of_means_are_means_of_ratios():
    a, b = [1.0, 4.0, 2.0], [3.0, 5.0, 7.0]
    assert rate_interval(a).mean == pytest.approx(2.0)
    assert rate_interval(b).mean / rate_interval(a).mean == pytest.approx(ratio_interval(b, a).mean)
    assert rate_interval([1.0, 100.0]).low > 0


def test_one_value_and_equal_values_have_no_width():
    assert mean_interval([2.0])[:3] == (2.0, 2.0, 2.0) and mean_interval([2.0] * 5)[:3] == (2.0, 2.0, 2.0)

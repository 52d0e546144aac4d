"""Values that cannot work are refused with a hint; what can be written can be read back."""

import math

import pytest

from dqnitro.config import CHOICES, FIELDS, RANGES, Config
from dqnitro.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch_size": 64, "first_fill_steps": 32}, "batch_size 64 is larger than first_fill_steps 32"),
        ({"n_envs": 0}, "n_envs must be at least 1, got 0"),
        ({"learning_rate": -1e-4}, "learning_rate must be over 0, got -0.0001"),
        ({"learning_rate": 0.0}, "learning_rate must be over 0"),
        ({"gamma": 1.1}, "gamma must be at most 1"),
        ({"steps_per_update": 0.0}, "steps_per_update must be at least 0.001, got 0; hint: the default is 1"),
        ({"epsilon_start": 0.1, "epsilon_end": 0.5}, "epsilon can only decrease"),
        ({"first_fill_steps": 200_000}, "larger than replay_capacity"),
        ({"n_envs": 50_000}, "raise it to at least"),
        ({"replay": "list"}, "one of plain, frames"),
        ({"learning_rate": math.nan}, "not a number"),
        ({"n_envs": True}, "must be of type int"),
        ({"n_envs": 2.0}, "must be of type int"),
        ({"double": 1}, "must be of type bool"),
        ({"device": "tpu"}, "device must be auto, cpu or cuda"),
        ({"act_device": "auto"}, "act_device must be same, cpu, cuda or cuda:N"),
        ({"act_sync_updates": 4}, "needs a second network to act with.*hint: act_device cpu"),
        ({"resize": "linear", "envs": "ale"}, "envs ale supports resize area only, got 'linear'"),
        ({"prioritized": True, "replay": "plain"}, "prioritized needs"),
        ({"value_min": 1.0, "value_max": 1.0}, "value_max"),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(changes, says):
    with pytest.raises(ConfigError, match=says) as e:
        Config().replace(**changes)
    assert "\n" not in str(e.value)


def test_an_unknown_name_gets_the_nearest_ones():
    with pytest.raises(ConfigError, match=r"unknown setting 'lerning_rate'; hint: did you mean learning_rate"):
        Config().replace(lerning_rate=1.0)


def test_a_config_survives_json():
    c = Config(double=True, wrappers=("no-grad", "fused-adam"), stop_at_score=math.inf)
    assert Config.from_dict(c.to_dict()) == c
    assert Config.from_dict(Config(stop_at_score=17.0).to_dict()).stop_at_score == 17.0


def test_every_field_has_a_description_and_every_limit_a_field():
    assert all(f.metadata["help"] for f in FIELDS.values())
    assert set(CHOICES) <= set(FIELDS)


def test_every_number_has_a_range_and_its_default_is_in_it():
    numbers = {n: f.default for n, f in FIELDS.items() if type(f.default) in (int, float)}
    assert set(RANGES) == set(numbers)
    assert [n for n, value in numbers.items() if RANGES[n].wrong(value)] == []

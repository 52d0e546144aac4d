"""The seam between a config and what runs it."""

from dqnitro.config import CHOICES, Config
from dqnitro.run import RUNNERS, make_run


def test_every_runner_of_the_config_is_there_and_no_other():
    assert tuple(RUNNERS) == CHOICES["runner"]


def test_nothing_is_played_before_the_first_tick_is_asked_for():
    agent, ticks = make_run(Config(env_id="CartPole-v1", envs="gym-sync", frame_stack=1, hidden_units=8))
    assert agent.clock.steps == 0
    assert next(ticks).steps == agent.clock.steps == 1
    agent.close()

"""What a person sees and what is stored."""

import pytest

from dqnitro.cli.terminal.live import lines
from dqnitro.cli.terminal.wording import duration
from dqnitro.config import Config
from dqnitro.events import time_left_s
from dqnitro.run import make_run
from dqnitro.session import train
from support import fakes_envs
from support.terminals import snapshot

fakes_envs.register()


def test_the_live_block_says_what_is_going_on():
    text = "\n".join(lines(snapshot(), Config(stop_at_score=17.0, max_steps=90_000), "pong · auto"))
    for part in (
        *(
            "pong · auto",
            "2:05 min",
            "1:40 min left at most",
            "-3.2 (mean of the last 100 games",
            "goal 17",
            "150 played",
            "400 steps/s",
        ),
        *("1,600 console frames/s", "100.0 updates/s", "epsilon 0.510", "loss 0.0123", "learn 62%", "loop 1%"),
    ):
        assert part in text, part


def test_the_live_block_before_the_first_game_and_update():
    early = snapshot(steps=500, mean_score=None, last_score=None, loss=None, games=0)
    text = "\n".join(lines(early, Config(), "pong"))
    assert "no game finished yet" in text and "filling the replay (500 of 10,000 steps)" in text and "left" not in text


@pytest.mark.parametrize(
    ("limits", "left"),
    [((0, 0.0), None), ((54_000, 0.0), 10.0), ((0, 5.0), 175.0), ((54_000, 5.0), 10.0), ((10, 0.0), 0.0)],
)
def test_time_left_is_that_of_the_nearest_limit(limits, left):
    assert time_left_s(snapshot(), *limits) == (None if left is None else pytest.approx(left))


def test_durations_and_bars_by_hand():
    assert [duration(s) for s in (0.4, 59.4, 60, 3599, 3600, 7650)] == [
        "0 s",
        "59 s",
        "1:00 min",
        "59:59 min",
        "1:00:00 h",
        "2:07:30 h",
    ]


def test_tensorboard_has_groups_with_units_and_the_config_as_text(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = Config(
        env_id="dqnitro_test/Corridor-v0", n_envs=2, frame_stack=1, hidden_units=8, batch_size=4, first_fill_steps=20,
        replay_capacity=500, max_steps=450, torch_threads=1, epsilon_start=0.5,
    )  # fmt: skip
    result = train(config, tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    assert set(events.Tags()["scalars"]) == {
        "score/game_points", "score/mean_of_last_100_games_points", "game/length_steps", "learning/loss",
        "learning/loss_smoothed", "learning/mean_best_q_discounted_reward", "exploration/epsilon_probability",
        "speed/steps_per_s", "speed/frames_per_s",
        "speed/updates_per_s", *(f"time/{p}_share" for p in ("act", "env", "sample", "learn", "store", "loop")),
    }  # fmt: skip
    assert len(events.Scalars("score/game_points")) == result.games
    assert events.Scalars("score/mean_of_last_100_games_points")[-1].value == pytest.approx(result.mean_score)
    losses = events.Scalars("learning/loss")
    assert [e.step for e in losses] == sorted({e.step for e in losses}) and len(losses) == result.updates // 100
    told = events.Tensors("config/text_summary")[0].tensor_proto.string_val[0].decode()
    assert "| batch_size | 4 |" in told


def test_the_mean_of_best_values_is_that_of_the_network_on_the_newest_observations():
    """By hand from the network itself; None where nobody was asked, and where values are not finite."""
    import torch

    config = Config(env_id="dqnitro_test/Corridor-v0", n_envs=3, frame_stack=1, hidden_units=8, torch_threads=1)
    agent, ticks = make_run(config.replace(first_fill_steps=32, epsilon_start=0.0, epsilon_end=0.0))
    assert agent.learner.mean_best_value() is None
    before = agent.obs.copy()
    next(ticks)
    with torch.no_grad():
        expected = agent.learner.online(torch.from_numpy(before)).squeeze(-1).max(1).values.mean().item()
        assert agent.learner.mean_best_value() == pytest.approx(expected, rel=1e-5)
        next(agent.learner.online.parameters()).fill_(float("nan"))
    agent.learner.greedy(before)
    assert agent.learner.mean_best_value() is None
    agent.close()


def test_phases_add_up_to_the_wall_clock():
    config = Config(
        env_id="dqnitro_test/Corridor-v0", frame_stack=1, hidden_units=8, batch_size=4, first_fill_steps=20,
        replay_capacity=500, max_steps=300, torch_threads=1,
    )  # fmt: skip
    share = train(config).share
    assert sum(share.values()) == pytest.approx(1.0, abs=0.02)
    assert set(share) == {"act", "env", "sample", "learn", "store", "loop"}

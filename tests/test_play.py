"""Playing with what was learned: scores, a video that a player opens, a picture in the terminal."""

import re

import numpy as np
import pytest

import fakes_envs
from dqnitro.cli.watch import TerminalScreen, to_text
from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.errors import CheckpointError
from dqnitro.play import load_config, play_games, record, score
from dqnitro.session import train

fakes_envs.register()


@pytest.fixture(scope="module")
def pong(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pong") / "run"
    train(Config(envs="ale", max_steps=40, first_fill_steps=32, replay_capacity=100, torch_threads=1), folder)
    return folder


def test_a_video_of_a_whole_game(pong, tmp_path):
    import av

    end = record(pong, tmp_path / "game.mp4", epsilon=1.0)
    assert -21 <= end.score <= 21 and end.steps > 500
    with av.open(str(tmp_path / "game.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (640, 420, 60)
        assert sum(1 for _ in container.decode(video=0)) >= 4 * end.steps  # every console frame, not only the agent's
    assert [p.name for p in tmp_path.iterdir()] == ["game.mp4"]


def test_the_same_games_can_be_played_in_another_part(pong):
    own, other = (score(pong, 2, epsilon=0.5, backend=backend) for backend in ("", "console"))
    assert own == other and len(own.scores) == 2


def test_scores_over_fresh_games_have_an_interval_and_repeat(tmp_path):
    config = Config(
        env_id="dqnitro_test/Corridor-v0", frame_stack=1, hidden_units=8, batch_size=4, first_fill_steps=20,
        replay_capacity=200, max_steps=60, torch_threads=1, clip_rewards=False,
    )  # fmt: skip
    train(config, tmp_path / "run")
    one, same, other = (score(tmp_path / "run", 12, epsilon=0.5, seed=s) for s in (0, 0, 1))
    assert len(one.scores) == 12 and one.low <= one.mean <= one.high
    assert one.scores == same.scores != other.scores


def test_every_environment_plays_its_share_of_games():
    """The first games to finish would be the short ones; a fixed share per environment has no such bias."""
    envs = make_envs(Config(env_id="dqnitro_test/Corridor-v0", n_envs=3, frame_stack=1))
    ends = play_games(lambda obs: np.ones(3, np.int64), envs, 7)
    assert sorted(e.env for e in ends) == [0, 0, 0, 1, 1, 2, 2]
    envs.close()


def test_a_folder_without_a_run_or_without_weights_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="is not a run folder"):
        load_config(tmp_path)
    (tmp_path / "config.json").write_text('{"config": {"env_id": "dqnitro_test/Corridor-v0", "frame_stack": 1}}')
    with pytest.raises(CheckpointError, match=r"no model\.safetensors yet"):
        score(tmp_path, 1)
    (tmp_path / "model.safetensors").write_bytes(b"rubbish")
    with pytest.raises(CheckpointError, match="model.safetensors is damaged"):
        score(tmp_path, 1)


def test_a_picture_as_text_has_the_right_size_and_colours():
    rgb = np.zeros((210, 160, 3), np.uint8)
    rgb[:105] = (255, 0, 0)
    text = to_text(rgb, 80, 30)
    rows = text.split("\n")
    assert len(rows) == 30
    assert all(len(re.sub(r"\x1b\[[0-9;]*m", "", row)) == 80 for row in rows)
    assert "38;2;255;0;0;48;2;255;0;0" in rows[0] and "38;2;0;0;0;48;2;0;0;0" in rows[-1]


def test_the_terminal_gets_its_cursor_back():
    written: list[str] = []
    screen = TerminalScreen(600.0, written.append)
    for _ in range(40):
        screen(np.zeros((210, 160, 3), np.uint8))
    screen.close()
    assert written[0].startswith("\x1b[?25l") and written[-1].endswith("\x1b[?25h")
    assert len(written) == 2 + 2  # 40 frames at 600 a second are two pictures at 30

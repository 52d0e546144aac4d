"""Playing with what was learned: scores, a video that a player opens, a picture in the terminal."""

import re

import numpy as np
import pytest
import torch

from dqnitro import play, scoring, video
from dqnitro.cli.terminal.terminal_screen import TerminalScreen, to_text
from dqnitro.config import Config
from dqnitro.envs import make_envs
from dqnitro.errors import CheckpointError
from dqnitro.play import Bounds, Policy, load_config, play_games, record, score
from dqnitro.session import train
from support import fakes_envs

fakes_envs.register()
CORRIDOR = Config(
    env_id="dqnitro_test/Corridor-v0", frame_stack=1, hidden_units=8, batch_size=4, first_fill_steps=20,
    replay_capacity=200, max_steps=60, torch_threads=1, clip_rewards=False,
)  # fmt: skip


@pytest.fixture(scope="module")
def pong(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pong") / "run"
    train(Config(envs="ale", max_steps=40, first_fill_steps=32, replay_capacity=100, torch_threads=1), folder)
    return folder


def test_a_video_of_a_whole_game(pong, tmp_path):
    import av

    end, truncated = record(pong, tmp_path / "game.mp4", epsilon=1.0)
    assert not truncated
    assert -21 <= end.score <= 21 and end.steps > 500
    with av.open(str(tmp_path / "game.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (320, 420, 60)
        assert stream.sample_aspect_ratio == 2, "shown as 640x420"
        assert sum(1 for _ in container.decode(video=0)) >= 4 * end.steps  # every console frame, not only the agent's
    assert [p.name for p in tmp_path.iterdir()] == ["game.mp4"]
    film = (tmp_path / "game.mp4").read_bytes()
    assert 0 < film.index(b"moov") < film.index(b"mdat"), "a browser begins before all of it has come"


def test_the_same_games_can_be_played_in_another_part(pong):
    own, other = (score(pong, 2, epsilon=0.5, backend=backend) for backend in ("", "console"))
    assert own == other and len(own.scores) == 2
    assert -21 <= own.low <= own.mean <= own.high <= 21


def test_scores_over_fresh_games_have_an_interval_and_repeat(tmp_path):
    train(CORRIDOR, tmp_path / "run")
    one, same, other = (score(tmp_path / "run", 12, epsilon=1.0, seed=s) for s in (0, 0, 1))
    assert len(one.scores) == 12 and one.low <= one.mean <= one.high
    assert one.scores == same.scores != other.scores
    assert one.truncated == 0, "the limit of the environment itself is an ordinary end"


def corridors(n):
    return make_envs(Config(env_id="dqnitro_test/Corridor-v0", n_envs=n, frame_stack=1))


def test_every_environment_plays_one_game_and_only_running_ones_are_asked():
    """The first games to finish would be the short ones; one game in each environment has no such bias."""
    envs, asked, told = corridors(3), [], []

    def policy(obs):
        asked.append(len(obs))
        return np.ones(len(obs), np.int64)

    played = play_games(policy, envs, on_end=told.append)
    envs.close()
    assert sorted(p.end.env for p in played) == [0, 1, 2] and told == played
    assert asked[0] == 3 and asked == sorted(asked, reverse=True) and len(asked) == max(p.end.steps for p in played)


class Silent:
    """Environments in which nothing ever happens, except that number 1 gets a reward in every tenth step."""

    def __init__(self):
        from dqnitro.envs.base import EnvSpec

        self.spec = EnvSpec(2, 2, (1,), np.dtype(np.float32), 1, 4, False)
        self.steps = 0

    def reset(self):
        return np.zeros((2, 1), np.float32)

    def send(self, actions):
        self.steps += 1

    def recv(self):
        from dqnitro.envs.base import Step

        no = np.zeros(2, np.bool_)
        reward = np.array([0, self.steps % 10 == 0], np.float32)
        return Step(self.reset(), reward, no, no, no, ())


def test_a_game_in_which_nothing_happens_is_truncated_and_says_so():
    envs = Silent()
    first, second = play_games(lambda obs: np.zeros(len(obs), np.int64), envs, Bounds(idle_frames=100, frames=400))
    assert first == ((0, 0.0, 25), True), "100 frames are 25 steps of 4"
    assert second == ((1, 10.0, 100), True), "rewards kept it going up to the limit of frames in all"


def test_fresh_games_count_those_that_were_truncated(pong, monkeypatch):
    counted: list[int] = []
    scored = score(pong, 3, epsilon=1.0, idle_frames=40, on_game=counted.append)
    assert scored.truncated == 3 and scored.scores == [0.0] * 3 and counted == [1, 2, 3]


def test_more_games_than_are_played_at_once_are_other_games(tmp_path, monkeypatch):
    monkeypatch.setattr(scoring, "AT_ONCE", 5)
    train(CORRIDOR, tmp_path / "run")
    scored = score(tmp_path / "run", 12, epsilon=1.0)
    assert len(scored.scores) == 12 and scored.scores[:5] != scored.scores[5:10]


@pytest.mark.parametrize("cores", [1, 3])
def test_rows_of_a_batch_are_divided_among_the_cores(cores, monkeypatch):
    monkeypatch.setattr(scoring, "usable_cores", lambda: cores)
    sizes: list[int] = []

    class Network(torch.nn.Module):
        def forward(self, x):
            sizes.append(len(x))
            return torch.stack([x[:, 0], 2.0 - x[:, 0]], 1)[..., None]

    policy = Policy(Network(), None, 2, 0.0, 1)
    obs = np.arange(14, dtype=np.float32)[:, None] % 2 * 2
    assert policy(obs).tolist() == [1, 0] * 7
    policy.close()
    assert sorted(sizes) == ([14] if cores == 1 else [4, 5, 5])


def test_a_pass_on_a_gpu_has_as_many_rows_as_the_first():
    """Any name but `cpu` is another device, which a GPU's place is taken by here."""
    sizes: list[int] = []

    class Network(torch.nn.Module):
        def forward(self, x):
            sizes.append(len(x))
            return torch.stack([x[:, 0], 2.0 - x[:, 0]], 1)[..., None]

    policy = Policy(Network(), None, 2, 0.0, 1, "cpu:0")
    obs = np.arange(14, dtype=np.float32)[:, None] % 2 * 2
    for n in (14, 9, 1):
        assert policy(obs[-n:]).tolist() == ([1, 0] * 7)[-n:]
    assert sizes == [14, 14, 14]


def test_playing_leaves_torch_as_it_was(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    threads = torch.get_num_threads()
    with scoring.torch_while_playing(CORRIDOR):
        assert torch.get_num_threads() == 1 and not torch.backends.cudnn.benchmark
    assert torch.get_num_threads() == threads and torch.backends.cudnn.benchmark


def test_a_film_can_show_one_of_the_fresh_games_while_it_is_played(pong, tmp_path):
    """The same actions make the same game in another backend, frame by frame."""
    actions: list[int] = []
    scored = score(pong, 2, epsilon=0.3, backend="console", on_action=actions.append)
    end, truncated = record(pong, tmp_path / "game.mp4", actions=iter(actions))
    assert end.steps == len(actions) > 500 and not truncated and end.score in scored.scores


def test_a_film_ends_where_no_more_actions_come(pong, tmp_path):
    with pytest.raises(video.Stopped):
        record(pong, tmp_path / "game.mp4", actions=[0] * 20)


def test_a_film_that_is_given_up_leaves_no_file(pong, tmp_path):
    frames: list[int] = []

    def stopped() -> bool:
        frames.append(1)
        return len(frames) > 20

    with pytest.raises(video.Stopped):
        record(pong, tmp_path / "game.mp4", stopped=stopped)
    assert not list(tmp_path.iterdir())


def test_a_film_is_no_longer_than_five_minutes(pong, tmp_path, monkeypatch):
    monkeypatch.setattr(play, "VIDEO_FRAMES", 80)
    end, truncated = record(pong, tmp_path / "game.mp4")
    assert truncated and end.steps == 20 and (tmp_path / "game.mp4").stat().st_size > 0


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

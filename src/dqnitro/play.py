"""Play with a trained network: scores over new games, and a video of one."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import pathlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from dqnitro import dqn
from dqnitro.common.files import replacing, seal_holds
from dqnitro.common.host import usable_cores
from dqnitro.common.intervals import Scored, mean_interval
from dqnitro.config import Config
from dqnitro.envs.base import Envs, EnvSpec, GameEnd
from dqnitro.envs.names import check_trust
from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.learn.learner import build_network, head_spec
from dqnitro.requirements import on_gpu
from dqnitro.seeds.folder import is_seeds
from dqnitro.store import checkpoint

FRESH_SEED = 0x5EED  # so that `play` does not repeat games of the training
# A game is truncated after this many frames without a reward: two minutes of play in which nothing happens, such as
# that of an agent which never serves. ALE's own limit, 108,000 frames in all, holds as well.
IDLE_FRAMES = 7_200
VIDEO_FRAMES = 18_000  # a video shows at most five minutes of play
ROWS_PER_CORE = 4  # fewer observations are not worth another core
AT_ONCE = 32  # fresh games at the same time: enough to occupy many cores, and a GPU's pass costs as much for one


class Bounds(NamedTuple):
    """When a game is truncated: after this many frames without a reward, or in all (0: never)."""

    idle_frames: int = IDLE_FRAMES
    frames: int = 0


UNBOUNDED, NOT_IDLE = Bounds(0), Bounds()


class Policy:
    """A trained network that chooses actions, with a little randomness against endless loops.

    On the CPU each core computes some of the rows. torch's own threads would share every single product instead, and
    wait for each other at its end: on a busy machine that is many times slower.
    """

    def __init__(
        self,
        network: nn.Module,
        atoms: torch.Tensor | None,
        n_actions: int,
        epsilon: float,
        seed: int,
        device: str = "cpu",
    ) -> None:
        self._network = network.to(device)
        self._atoms = None if atoms is None else atoms.to(device)
        self._n_actions = n_actions
        self._epsilon = epsilon
        self._device = device
        self._rng = np.random.default_rng(seed)
        self._cores = usable_cores() if device == "cpu" else 1
        self._pool: ThreadPoolExecutor | None = None

    def __call__(self, obs: np.ndarray) -> np.ndarray:
        n = min(self._cores, len(obs) // ROWS_PER_CORE)
        if n > 1:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._cores, "policy", lambda: torch.set_num_threads(1))
            greedy = np.concatenate(list(self._pool.map(self._greedy, np.array_split(obs, n))))
        else:
            greedy = self._greedy(obs)
        return dqn.epsilon_greedy(greedy, self._epsilon, self._n_actions, self._rng)

    @torch.no_grad()
    def _greedy(self, obs: np.ndarray) -> np.ndarray:
        out = self._network(torch.from_numpy(obs).to(self._device))
        return dqn.q_values(out, self._atoms).argmax(1).cpu().numpy()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


@contextlib.contextmanager
def _one_thread(config: Config) -> Iterator[None]:
    """One thread for each of torch's products while playing on the CPU."""
    usual = torch.get_num_threads()
    if _where(config) == "cpu":
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


def load_config(run_dir: pathlib.Path, trust: bool = True) -> Config:
    """The config with which a run was started. Without `trust`, one whose environment would import code is refused."""
    path = run_dir / "config.json"
    if not path.is_file() and is_seeds(run_dir):
        raise CheckpointError(
            f"{run_dir} holds the runs of several seeds", f"give one of them, such as {run_dir / 's1'}"
        )
    if not path.is_file():
        raise CheckpointError(
            f"{run_dir} is not a run folder (config.json is missing)", "`dqnitro runs` lists all runs"
        )
    try:
        head = json.loads(path.read_text())
        if not seal_holds(head):
            raise CheckpointError(
                f"{path} is damaged (its checksum differs)", "restore it; manifest.json has a copy of its settings"
            )
        config = Config.from_dict(head["config"])
    except ConfigError as e:
        raise CheckpointError(f"{path} was written by another version ({e})") from e
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as e:
        raise CheckpointError(f"{path} is damaged ({type(e).__name__}: {e})") from e
    check_trust(config, trust)
    return config


def load_network(run_dir: pathlib.Path, config: Config, spec: EnvSpec) -> tuple[nn.Module, torch.Tensor | None]:
    """The network of a run with its weights, on the CPU."""
    path = run_dir / "model.safetensors"
    if not path.is_file():
        raise CheckpointError(f"{run_dir} has no model.safetensors yet", "it is written with the first checkpoint")
    head = head_spec(config, spec)
    network = build_network(config, spec)
    weights = checkpoint.load_weights(path)
    try:
        network.load_state_dict(weights)
    except RuntimeError as e:
        raise CheckpointError(f"{path} is damaged or belongs to another network ({str(e).splitlines()[0]})") from e
    return network.eval(), dqn.support(head) if head.categorical else None


def _where(config: Config) -> str:
    """Where the network runs now: on a GPU if the config allows it and there is one, wherever it was trained."""
    return "cuda" if torch.cuda.is_available() and on_gpu(config) else "cpu"


def _policy(run_dir: pathlib.Path, config: Config, spec: EnvSpec, epsilon: float, seed: int) -> Policy:
    return Policy(*load_network(run_dir, config, spec), spec.n_actions, epsilon, seed, _where(config))


def _fresh_games(config: Config, n_envs: int, seed: int) -> Config:
    """Whole games with unclipped rewards and new seeds."""
    return config.replace(
        n_envs=n_envs,
        episodic_life=False,
        clip_rewards=False,
        seed=(config.seed + FRESH_SEED + seed) % 2**31,
        first_fill_steps=config.batch_size,
        replay_capacity=max(config.replay_capacity, 64 * n_envs),
    )


def _fastest_equal(config: Config) -> str:
    """The backend that plays these games in threads: ale-py's own in place of those that play in Python.

    All of them play the same games byte for byte (docs/environments.md), except with another downscaling.
    """
    from dqnitro.envs import env_kind

    slow = config.envs in ("wrappers", "gym-sync", "gym-async") and config.resize == "area"
    return "ale" if slow and env_kind(config.env_id) == "atari" else config.envs


class Played(NamedTuple):
    """The end of a game, and whether our bounds truncated it (a limit of the environment itself is an ordinary end)."""

    end: GameEnd
    truncated: bool


def play_games(
    policy: Any, envs: Envs, bounds: Bounds = UNBOUNDED, on_end: Callable[[Played], None] = lambda _: None
) -> list[Played]:
    """One whole game in each environment, or as much of it as the bounds allow.

    One game each, because the first games to finish would be the short ones. The network is asked only for
    environments whose game is still running; the others step along, since a vector step moves all of them.
    """
    n, per_step = envs.spec.n_envs, envs.spec.frames_per_step
    idle, score, steps = np.zeros(n, np.int64), np.zeros(n), 0
    running = np.ones(n, np.bool_)
    played: list[Played] = []

    def finish(end: GameEnd, truncated: bool) -> None:
        running[end.env] = False
        played.append(Played(end, truncated))
        on_end(played[-1])

    obs = envs.reset()
    while running.any():
        actions = np.zeros(n, np.int64)
        actions[running] = policy(obs[running])
        envs.send(actions)
        step = envs.recv()
        obs, steps = step.obs_t, steps + 1
        score += step.reward_t
        idle = np.where(step.reward_t != 0, 0, idle + per_step)
        for end in step.ends:
            if running[end.env]:
                finish(end, False)
        too_long = bool(bounds.frames) and steps * per_step >= bounds.frames
        for i in np.flatnonzero(running & (too_long | ((idle >= bounds.idle_frames) & (bounds.idle_frames > 0)))):
            finish(GameEnd(int(i), float(score[i]), steps), True)
    return played


MakePolicy = Callable[[EnvSpec, int], Any]  # for these environments, with random numbers of this seed


def score(
    run_dir: pathlib.Path, n_games: int, epsilon: float = 0.01, seed: int = 0, backend: str = "", trust: bool = False,
    *, idle_frames: int = IDLE_FRAMES, on_game: Callable[[int], None] = lambda n: None,
) -> Scored:  # fmt: skip
    """Play `n_games` new games with a run's network; `on_game` is told how many have ended.

    They are played at the same time, `AT_ONCE` at most, in the environment backend of the run or, where that one plays
    in Python, in ale-py's equal one. `trust`: import the module of an environment `module:Id` (see `resume`).
    """
    config = load_config(run_dir, trust)

    def policy(spec: EnvSpec, seed: int) -> Policy:
        return _policy(run_dir, config, spec, epsilon, seed)

    return score_policy(policy, config, n_games, seed, backend, idle_frames=idle_frames, on_game=on_game)


def score_policy(
    make_policy: MakePolicy, config: Config, n_games: int, seed: int = 0, backend: str = "",
    *, idle_frames: int = IDLE_FRAMES, on_game: Callable[[int], None] = lambda n: None,
) -> Scored:  # fmt: skip
    """Play `n_games` new games of a config with any policy (see `score`)."""
    from dqnitro.envs import make_envs

    if n_games < 1:
        raise ConfigError(f"games must be at least 1, got {n_games}")
    config = config.replace(envs=backend or _fastest_equal(config))
    played: list[Played] = []

    def ended(game: Played) -> None:
        played.append(game)
        on_game(len(played))

    for wave in itertools.count():
        n = min(AT_ONCE, n_games - len(played))
        if n <= 0:
            break
        fresh = _fresh_games(config, n, seed)
        envs = make_envs(fresh.replace(seed=(fresh.seed + 7919 * wave) % 2**31))
        policy = None
        try:
            policy = make_policy(envs.spec, seed + wave)
            with _one_thread(config):
                play_games(policy, envs, Bounds(idle_frames), ended)
        finally:
            envs.close()
            if policy is not None:
                policy.close()
    scores = [game.end.score for game in played]
    i = mean_interval(scores)
    return Scored(scores, i.mean, i.low, i.high, sum(game.truncated for game in played))


class Stopped(Exception):
    """A film was given up."""


class _Again(io.RawIOBase):
    """Reads what is being written to a file in memory, at a place of its own."""

    def __init__(self, file: io.BytesIO) -> None:
        self._written, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with self._written.getbuffer() as written:
            begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: written.nbytes}[whence]
        self._at = begin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        with self._written.getbuffer() as written:
            found = bytes(written[self._at : written.nbytes if size < 0 else self._at + size])
        self._at += len(found)
        return found


class VideoWriter:
    """H.264 in an mp4, by PyAV, encoded in a thread while the game goes on.

    Pixels are repeated, because 160 columns are too small to watch. Once `stopped()` says so, the next frame raises
    `Stopped` and no file is left.
    """

    WAITING = 64  # frames that may wait for the encoder: 6 MB

    def __init__(self, path: pathlib.Path, fps: float, stopped: Callable[[], bool] = lambda: False) -> None:
        self._path, self._fps, self._stopped = path, fps, stopped
        self._file = io.BytesIO()  # a disk that is full must not be met inside the encoder, which crashes then
        self._container: Any = None
        self._stream: Any = None
        self._size: tuple[int, ...] = ()  # known with the first frame
        self._reformatter: Any = None  # one for all frames: making it takes longer than using it
        self._pool = ThreadPoolExecutor(1, "video")
        self._waiting: deque[Future[None]] = deque()

    def __call__(self, rgb: np.ndarray) -> None:
        if self._stopped():
            raise Stopped
        if len(self._waiting) >= self.WAITING:
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._encode, np.array(rgb)))

    def _open(self, rgb: np.ndarray) -> None:
        import av
        import av.video.reformatter

        # A console's pixels are twice as wide as high. Doubled both ways they keep their colours in yuv420p; players
        # stretch them once more, which costs less than encoding twice as many.
        console = rgb.shape[1] == 160
        scale = 2 if console else 1
        # The index goes to the front, so that a browser begins before all of the film has come. For that the encoder
        # opens what it has written once more.
        self._container = av.open(
            self._file, "w", format="mp4", options={"movflags": "faststart"}, io_open=lambda *_: _Again(self._file)
        )
        self._reformatter = av.video.reformatter.VideoReformatter()
        self._stream = self._container.add_stream("libx264", rate=round(self._fps))
        self._size = (rgb.shape[1] * scale, rgb.shape[0] * scale)
        self._stream.width, self._stream.height = self._size
        self._stream.codec_context.sample_aspect_ratio = Fraction(2 if console else 1)
        self._stream.pix_fmt = "yuv420p"
        # Slower presets take up to twice as long to save a tenth, and these files are small anyway.
        self._stream.options = {"crf": "23", "preset": "ultrafast"}

    def _encode(self, rgb: np.ndarray) -> None:
        import av

        rgb = np.ascontiguousarray(rgb[: rgb.shape[0] // 2 * 2, : rgb.shape[1] // 2 * 2])  # yuv420p needs even sizes
        if not self._size:
            self._open(rgb)
        frame = av.VideoFrame.from_ndarray(rgb, format="rgb24")
        big = self._reformatter.reformat(frame, *self._size, "yuv420p", interpolation="POINT")
        for packet in self._stream.encode(big):
            self._container.mux(packet)

    def close(self) -> None:
        """Finish the file. It gets its name only when it is complete."""
        stopped = self._stopped()
        self._pool.shutdown(cancel_futures=stopped)
        container: Any = self._container
        self._container = None
        try:
            if container is not None and not stopped:
                for future in self._waiting:
                    future.result()  # raises what the encoder raised
                for packet in self._stream.encode():
                    container.mux(packet)
        except BaseException:
            stopped = True
            raise
        finally:
            if container is not None:
                container.close()
        if container is not None and not stopped:
            with replacing(self._path) as tmp:
                tmp.write_bytes(self._file.getbuffer())


def show(
    run_dir: pathlib.Path, make_screen: Callable[[float], Any], epsilon: float = 0.01, seed: int = 0,
    trust: bool = False, bounds: Bounds = NOT_IDLE,
) -> Played:  # fmt: skip
    """Play one new game of a run on a screen (see `show_policy`)."""
    config = load_config(run_dir, trust)

    def policy(spec: EnvSpec, seed: int) -> Policy:
        return _policy(run_dir, config, spec, epsilon, seed)

    return show_policy(policy, config, make_screen, seed, bounds)


def show_policy(
    make_policy: MakePolicy, config: Config, make_screen: Callable[[float], Any], seed: int = 0,
    bounds: Bounds = NOT_IDLE,
) -> Played:  # fmt: skip
    """Play one new game on a screen: `make_screen(fps)` returns an object to call with each RGB frame and to close.

    Atari games show every console frame, other environments what `render()` returns.
    """
    from dqnitro.envs import make_watched_envs

    screen: Any = None
    envs, fps = make_watched_envs(_fresh_games(config, 1, seed), lambda rgb: screen(rgb))
    try:
        policy = make_policy(envs.spec, seed)
        screen = make_screen(fps)
        with _one_thread(config):
            (played,) = play_games(policy, envs, bounds)
    finally:
        envs.close()
        if screen is not None:
            screen.close()
    return played


def record(
    run_dir: pathlib.Path, path: pathlib.Path, epsilon: float = 0.01, seed: int = 0, trust: bool = False,
    stopped: Callable[[], bool] = lambda: False,
) -> Played:  # fmt: skip
    """Record one new game as an mp4, its first five minutes if it is longer."""
    bounds = Bounds(frames=VIDEO_FRAMES)
    return show(run_dir, lambda fps: VideoWriter(path, fps, stopped), epsilon, seed, trust, bounds)

"""Play with a trained network: scores over new games, and a video of one."""

from __future__ import annotations

import io
import json
import pathlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction
from typing import Any

import numpy as np

from dqnitro.common.files import replacing, seal_holds
from dqnitro.common.intervals import Scored
from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec
from dqnitro.envs.names import check_trust
from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.scoring import (
    EPSILON,
    IDLE_FRAMES,
    NOT_IDLE,
    Bounds,
    MakePolicy,
    Played,
    Policy,
    fresh_games,
    load_network,
    one_thread,
    play_games,
    score_policy,
    where,
)
from dqnitro.seeds.folder import is_seeds
from dqnitro.store.run_folder import BEST, LAST

VIDEO_FRAMES = 18_000  # a video shows at most five minutes of play


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


def weights_file(run_dir: pathlib.Path, best: bool = False) -> pathlib.Path:
    """The newest weights of a run, or those of its best evaluation; CheckpointError if there are none."""
    path = run_dir / (BEST if best else LAST)
    if not path.is_file():
        if best:
            raise CheckpointError(f"{run_dir} has no {BEST}", "a run with --eval-every-steps keeps its best weights")
        raise CheckpointError(f"{run_dir} has no {LAST} yet", "it is written with the first checkpoint")
    return path


def _maker(weights: pathlib.Path, config: Config, epsilon: float) -> MakePolicy:
    def make(spec: EnvSpec, seed: int) -> Policy:
        return Policy(*load_network(weights, config, spec), spec.n_actions, epsilon, seed, where(config))

    return make


def score(
    run_dir: pathlib.Path, n_games: int, epsilon: float = EPSILON, seed: int = 0, backend: str = "",
    trust: bool = False, *, best: bool = False, idle_frames: int = IDLE_FRAMES,
    on_game: Callable[[int], None] = lambda n: None,
) -> Scored:  # fmt: skip
    """Play `n_games` new games with a run's newest or best weights; `on_game` is told how many have ended.

    They are played at the same time, `AT_ONCE` at most, in the environment backend of the run or, where that one plays
    in Python, in ale-py's equal one. `trust`: import the module of an environment `module:Id` (see `resume`).
    """
    config = load_config(run_dir, trust)
    policy = _maker(weights_file(run_dir, best), config, epsilon)
    return score_policy(policy, config, n_games, seed, backend, idle_frames=idle_frames, on_game=on_game)


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
    run_dir: pathlib.Path, make_screen: Callable[[float], Any], epsilon: float = EPSILON, seed: int = 0,
    trust: bool = False, bounds: Bounds = NOT_IDLE, best: bool = False,
) -> Played:  # fmt: skip
    """Play one new game of a run on a screen (see `show_policy`)."""
    config = load_config(run_dir, trust)
    policy = _maker(weights_file(run_dir, best), config, epsilon)
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
    envs, fps = make_watched_envs(fresh_games(config, 1, seed), lambda rgb: screen(rgb))
    try:
        policy = make_policy(envs.spec, seed)
        screen = make_screen(fps)
        with one_thread(config):
            (played,) = play_games(policy, envs, bounds)
    finally:
        envs.close()
        if screen is not None:
            screen.close()
    return played


def record(
    run_dir: pathlib.Path, path: pathlib.Path, epsilon: float = EPSILON, seed: int = 0, trust: bool = False,
    stopped: Callable[[], bool] = lambda: False, best: bool = False,
) -> Played:  # fmt: skip
    """Record one new game as an mp4, its first five minutes if it is longer."""
    bounds = Bounds(frames=VIDEO_FRAMES)
    return show(run_dir, lambda fps: VideoWriter(path, fps, stopped), epsilon, seed, trust, bounds, best)

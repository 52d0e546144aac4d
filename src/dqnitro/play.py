"""Play with a trained network: scores over new games, and a video of one."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from dqnitro import checkpoint, dqn
from dqnitro.config import Config
from dqnitro.envs.base import Envs, EnvSpec, GameEnd
from dqnitro.envs.names import check_trust
from dqnitro.errors import CheckpointError, ConfigError
from dqnitro.files import seal_holds
from dqnitro.learn.learner import build_network, head_spec
from dqnitro.requirements import on_gpu
from dqnitro.seeds.folder import is_seeds

FRESH_SEED = 0x5EED  # so that `play` does not repeat games of the training


class Policy:
    """A trained network that chooses actions, with a little randomness against endless loops."""

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

    @torch.no_grad()
    def __call__(self, obs: np.ndarray) -> np.ndarray:
        out = self._network(torch.from_numpy(obs).to(self._device))
        greedy = dqn.q_values(out, self._atoms).argmax(1).cpu().numpy()
        return dqn.epsilon_greedy(greedy, self._epsilon, self._n_actions, self._rng)


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
    check_trust(config.env_id, trust)
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


def play_games(policy: Any, envs: Envs, n_games: int) -> list[GameEnd]:
    """`n_games` whole games, a fixed number in each environment: counting the first to finish favours short games."""
    share = np.full(envs.spec.n_envs, n_games // envs.spec.n_envs)
    share[: n_games % envs.spec.n_envs] += 1
    ends: list[GameEnd] = []
    obs = envs.reset()
    while share.any():
        envs.send(policy(obs))
        step = envs.recv()
        obs = step.obs_t
        for end in step.ends:
            if share[end.env]:
                share[end.env] -= 1
                ends.append(end)
    return ends


class Scored(NamedTuple):
    """Scores of new games, and their mean with its interval."""

    scores: list[float]
    mean: float
    low: float
    high: float


def score(
    run_dir: pathlib.Path, n_games: int, epsilon: float = 0.01, seed: int = 0, backend: str = "", trust: bool = False
) -> Scored:
    """Play `n_games` new games with a run's network, in the environment backend it trained with unless one is given.

    `trust`: import the module of an environment `module:Id` (see `resume`).
    """
    from dqnitro.envs import make_envs
    from dqnitro.intervals import mean_interval

    config = load_config(run_dir, trust)
    if backend:
        config = config.replace(envs=backend)
    # A GPU evaluates 32 games as fast as 8. On a CPU more environments would only keep playing after their last game.
    at_once = 8 if _where(config) == "cpu" else 32
    envs = make_envs(_fresh_games(config, min(n_games, at_once), seed))
    try:
        policy = _policy(run_dir, config, envs.spec, epsilon, seed)
        scores = [end.score for end in play_games(policy, envs, n_games)]
    finally:
        envs.close()
    i = mean_interval(scores)
    return Scored(scores, i.mean, i.low, i.high)


class VideoWriter:
    """H.264 in an mp4, by PyAV. Pixels are repeated, because 160 columns are too small to watch."""

    def __init__(self, path: pathlib.Path, fps: float) -> None:
        self._path, self._fps = path, fps
        self._tmp = path.with_name(f".{os.getpid()}.{path.name}")
        self._container: Any = None
        self._stream: Any = None
        self._reformatter: Any = None  # one for all frames: making it takes longer than using it

    def __call__(self, rgb: np.ndarray) -> None:
        import av
        import av.video.reformatter

        rgb = rgb[: rgb.shape[0] // 2 * 2, : rgb.shape[1] // 2 * 2]  # yuv420p needs even sizes
        if self._container is None:
            scale_x, scale_y = (4, 2) if rgb.shape[1] == 160 else (1, 1)
            self._container = av.open(str(self._tmp), "w", format="mp4")
            self._reformatter = av.video.reformatter.VideoReformatter()
            self._stream = self._container.add_stream("libx264", rate=round(self._fps))
            self._stream.width, self._stream.height = rgb.shape[1] * scale_x, rgb.shape[0] * scale_y
            self._stream.pix_fmt = "yuv420p"
            # Slower presets take up to twice as long to save a tenth, and these files are small anyway.
            self._stream.options = {"crf": "23", "preset": "ultrafast", "movflags": "+faststart"}
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(rgb), format="rgb24")
        big = self._reformatter.reformat(
            frame, self._stream.width, self._stream.height, "yuv420p", interpolation="POINT"
        )
        for packet in self._stream.encode(big):
            self._container.mux(packet)

    def close(self) -> None:
        """Finish the file. It gets its name only when it is complete."""
        if self._container is None:
            return
        for packet in self._stream.encode():
            self._container.mux(packet)
        self._container.close()
        self._container = None
        self._tmp.replace(self._path)


def show(
    run_dir: pathlib.Path,
    make_screen: Callable[[float], Any],
    epsilon: float = 0.01,
    seed: int = 0,
    trust: bool = False,
) -> GameEnd:
    """Play one new game on a screen: `make_screen(fps)` returns an object to call with each RGB frame and to close.

    Atari games show every console frame, other environments what `render()` returns.
    """
    from dqnitro.envs import make_watched_envs

    config = load_config(run_dir, trust)
    screen: Any = None
    envs, fps = make_watched_envs(_fresh_games(config, 1, seed), lambda rgb: screen(rgb))
    try:
        policy = _policy(run_dir, config, envs.spec, epsilon, seed)
        screen = make_screen(fps)
        (end,) = play_games(policy, envs, 1)
    finally:
        envs.close()
        if screen is not None:
            screen.close()
    return end


def record(
    run_dir: pathlib.Path, path: pathlib.Path, epsilon: float = 0.01, seed: int = 0, trust: bool = False
) -> GameEnd:
    """Record one new game as an mp4."""
    return show(run_dir, lambda fps: VideoWriter(path, fps), epsilon, seed, trust)

"""A trained agent as an object.

agent = dqnitro.load("runs/pong-auto-s1-...")
actions = agent.act(observations)
print(agent.score(games=30))
"""

from __future__ import annotations

import functools
import os
import pathlib
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from dqnitro import dqn, play
from dqnitro.agent import Agent
from dqnitro.common.intervals import Scored
from dqnitro.config import Config
from dqnitro.envs import env_kind, make_envs, make_single_env, of_one_env
from dqnitro.envs.base import EnvSpec, GameEnd
from dqnitro.learn.networks import build_network

if TYPE_CHECKING:
    import gymnasium as gym


class ValueNetwork(nn.Module):
    """Observations (batch, *obs_shape) in, as the environment gives them; values (batch, actions) out."""

    def __init__(self, network: nn.Module, atoms: Tensor | None) -> None:
        super().__init__()
        self.network = network
        self.atoms: Tensor | None
        self.register_buffer("atoms", atoms, persistent=False)

    def forward(self, obs: Tensor) -> Tensor:
        return dqn.q_values(self.network(obs), self.atoms)


class TrainedAgent:
    """A network and what it plays. `network` is a plain torch module: move it, fine-tune it, export it."""

    def __init__(self, config: Config, spec: EnvSpec, network: ValueNetwork) -> None:
        self.config, self.spec, self.network = config, spec, network.eval()

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.spec.obs_shape))
        return f"TrainedAgent({self.config.env_id!r}, observations {shape}, {self.spec.n_actions} actions)"

    def values(self, obs: Any) -> Tensor:
        """What the network expects of every action, (batch, actions), for observations (batch, *obs_shape)."""
        with torch.no_grad():
            return self.network(self._batch(obs)[0])

    def act(self, obs: Any, epsilon: float = 0.0, rng: np.random.Generator | None = None) -> Any:
        """The best action: an int for one observation, an array for a batch. `epsilon`: chance of a random one."""
        with torch.no_grad():
            batch, single = self._batch(obs)
            greedy = self.network(batch).argmax(1).cpu().numpy()
        if epsilon:
            greedy = dqn.epsilon_greedy(greedy, epsilon, self.spec.n_actions, rng or np.random.default_rng())
        return int(greedy[0]) if single else greedy

    def score(self, games: int = 30, epsilon: float = 0.01, seed: int = 0, envs: str = "") -> Scored:
        """Play whole new games with unclipped rewards: their scores, and the mean with its 95% interval."""
        return play.score_policy(self._policy(epsilon), self.config, games, seed, envs)

    def record(self, path: str | os.PathLike[str], epsilon: float = 0.01, seed: int = 0) -> GameEnd:
        """Record one new game as an mp4, its first five minutes if it is longer."""
        file, bounds = pathlib.Path(path), play.Bounds(frames=play.VIDEO_FRAMES)
        made = functools.partial(play.VideoWriter, file)
        with play.torch_while_playing(self.config):
            return play.show_policy(self._policy(epsilon), self.config, made, seed, bounds).end

    def make_env(self, render_mode: str | None = None) -> gym.Env:
        """One environment whose observations are what `act` takes: cropped, stacked or flattened as in training."""
        return make_single_env(self.config, render_mode)

    def _policy(self, epsilon: float) -> play.MakePolicy:
        network, device = self.network, str(next(self.network.parameters()).device)

        def make(spec: EnvSpec, seed: int) -> play.Policy:
            return play.Policy(network.network, network.atoms, spec.n_actions, epsilon, seed, device)

        return make

    def _batch(self, obs: Any) -> tuple[Tensor, bool]:
        """A batch on the network's device, and whether it was a single observation."""
        shape = self.spec.obs_shape
        found = obs if isinstance(obs, Tensor) else torch.as_tensor(np.asarray(obs))
        if found.shape != shape and found.shape[1:] != shape:
            text = f"expected observations of shape {shape} or (batch, {', '.join(map(str, shape))})"
            raise ValueError(f"{text}, got {tuple(found.shape)}; hint: agent.make_env() gives such observations")
        single = found.shape == shape
        device = next(self.network.parameters()).device
        return (found[None] if single else found).to(device, self.obs_dtype), single

    @property
    def obs_dtype(self) -> torch.dtype:
        """What the network takes."""
        return torch.from_numpy(np.zeros(0, self.spec.obs_dtype)).dtype


def load(run_dir: str | os.PathLike[str], *, trust: bool = False, best: bool = False) -> TrainedAgent:
    """The agent of a stored run, on the CPU: as of its newest checkpoint, or of its best evaluation. `trust`: as in
    `resume`.
    """
    path = pathlib.Path(run_dir)
    config = play.load_config(path, trust)
    spec = spec_of(config)
    network, atoms = play.load_network(play.weights_file(path, best), config, spec)
    return TrainedAgent(config, spec, ValueNetwork(network, atoms))


def from_run(agent: Agent) -> TrainedAgent:
    """The agent of a run that is at rest or has ended, as it is now: a copy, on the CPU."""
    config, spec, learner = agent.config, agent.envs.spec, agent.learner
    with torch.random.fork_rng(devices=[]):
        network = build_network(config, spec)
    network.load_state_dict(learner.weights())
    atoms = None if learner.atoms is None else learner.atoms.cpu()
    return TrainedAgent(config, spec, ValueNetwork(network, atoms))


def spec_of(config: Config) -> EnvSpec:
    """What the network of a config sees and chooses from; one environment is made to find out."""
    backend = "wrappers" if env_kind(config.env_id) == "atari" or config.envs == "gym-async" else config.envs
    envs = make_envs(of_one_env(config, backend))
    try:
        return envs.spec
    finally:
        envs.close()

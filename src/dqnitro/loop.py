"""The loop: act, send, learn what is owed, receive, remember. A generator; everything else consumes it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dqnitro.clock import Clock
from dqnitro.config import Config
from dqnitro.envs.base import Envs, GameEnd, Step
from dqnitro.errors import ConfigError, DivergedError
from dqnitro.learn.learner import Learner
from dqnitro.process_setup import keep_freed_memory
from dqnitro.replay.base import Replay, Sample

PHASES = ("act", "env", "sample", "learn", "store")


class Tick(NamedTuple):
    """What one vector step did."""

    steps: int  # decisions so far, over all environments
    updates: int
    epsilon: float
    loss: Tensor | None  # of the last update in this tick; reading it synchronises a GPU
    ends: tuple[GameEnd, ...]


@dataclass
class Phases:
    """Seconds per phase. Two reads of a clock and an addition a phase: under 1 microsecond."""

    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))
    _last: float = 0.0

    def begin(self) -> None:
        self._last = time.perf_counter()

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        self.seconds[phase] += now - self._last
        self._last = now


@dataclass
class Agent:
    """All that a run is at one moment: parts, clock, generators, and the observation to act on next."""

    config: Config
    envs: Envs
    replay: Replay
    learner: Learner
    clock: Clock
    rng_act: np.random.Generator
    rng_replay: np.random.Generator
    obs: np.ndarray
    pending: np.ndarray  # bool: this environment resets in the next tick, whatever its action is
    phases: Phases = field(default_factory=Phases)

    def choose_actions(self) -> np.ndarray:
        n_actions = self.envs.spec.n_actions
        return choose_actions(
            self.rng_act, self.clock.epsilon(), self.pending, n_actions, lambda: self.learner.greedy(self.obs)
        )

    def close(self) -> None:
        self.envs.close()


def choose_actions(
    rng: np.random.Generator, epsilon: float, pending: np.ndarray, n_actions: int, greedy: Callable[[], np.ndarray]
) -> np.ndarray:
    """Epsilon-greedy, one coin per environment that really decides. The network is asked only if somebody is greedy."""
    actions = np.zeros(len(pending), np.int64)
    deciding = np.flatnonzero(~pending)
    explore = rng.random(len(deciding)) < epsilon
    actions[deciding] = rng.integers(0, n_actions, len(deciding))
    if not explore.all():
        follow = deciding[~explore]
        actions[follow] = greedy()[follow]
    return actions


def next_sample(a: Agent) -> Sample:
    """The batch of the update that is owed next, with the target network that it is to see."""
    if a.clock.owes_sync():
        a.learner.sync_target()
        a.clock.count_sync()
    sample = a.replay.sample(a.config.batch_size, a.rng_replay, a.clock.beta())
    a.phases.end("sample")
    return sample


def begin_update(a: Agent) -> Sample | None:
    """Where actions are chosen in the update's pass: make that pass, if an update is owed. `learn_owed` goes on with it.

    The update of a tick learns from what was there before its step, with the weights that choose its actions: nothing that it
    needs is still to come.
    """
    if not (a.learner.acts_in_pass and a.clock.owes_update() and len(a.replay)):
        return None
    sample = next_sample(a)
    a.learner.begin(sample.batch, a.obs)
    a.phases.end("learn")
    return sample


def learn_owed(a: Agent, begun: Sample | None = None) -> tuple[Tensor | None, DivergedError | None]:
    """Every update that is owed; the last one's loss. An update that diverged is returned, not raised.

    Only at rest can the agent be saved, so the tick is finished first.
    """
    clock, loss = a.clock, None
    while clock.owes_update() and len(a.replay):
        sample, begun = begun or next_sample(a), None
        try:
            loss, error = a.learner.update(sample.batch)
        except DivergedError as e:
            return loss, e
        a.replay.update_priorities(sample.ids, error)
        clock.count_update()
        a.phases.end("learn")
    return loss, None


def remember(a: Agent, actions: np.ndarray, step: Step) -> None:
    """Take a finished vector step into the replay and the clock."""
    a.replay.add(actions, step)
    a.obs = step.obs_t
    a.pending = np.zeros_like(a.pending)
    a.pending[[end.env for end in step.ends]] = True
    a.clock.count_steps(int(np.count_nonzero(~step.reset)))
    a.phases.end("store")


def loop(agent: Agent) -> Iterator[Tick]:
    """Endless: the consumer decides when to stop. Between two ticks the agent is at rest and may be saved."""
    a, clock, phases = agent, agent.clock, agent.phases
    while True:
        phases.begin()
        epsilon = clock.epsilon()
        begun = begin_update(a)
        actions = a.choose_actions()
        phases.end("act")
        a.envs.send(actions)
        phases.end("env")
        loss, diverged = learn_owed(a, begun)
        step = a.envs.recv()
        phases.end("env")
        remember(a, actions, step)
        if diverged:
            raise diverged
        yield Tick(clock.steps, clock.updates, epsilon, loss, step.ends)


def resolve_device(name: str, option: str = "--device") -> str:
    """`auto` becomes cuda or cpu; a GPU that is not there is an error now, not a traceback later."""
    has = torch.cuda.is_available()
    if name == "auto":
        return "cuda" if has else "cpu"
    if name.startswith("cuda") and not has:
        raise ConfigError(
            f"{option} {name}: this torch ({torch.__version__}) sees no CUDA device",
            f"use {option} cpu, or `dqnitro env` to see why",
        )
    if name.startswith("cuda:") and name[5:] not in (names := [str(i) for i in range(torch.cuda.device_count())]):
        raise ConfigError(f"{option} {name}: there is no such GPU", f"their numbers are {', '.join(names)}")
    return name


def make_clock(c: Config) -> Clock:
    return Clock(
        c.first_fill_steps, c.steps_per_update, c.target_sync_steps, c.epsilon_start, c.epsilon_end,
        c.epsilon_decay_steps, c.priority_beta, c.priority_beta_steps,
    )  # fmt: skip


def make_generators(seed: int) -> tuple[np.random.Generator, np.random.Generator]:
    """Of the actions, and of the replay's samples."""
    act, sample = (np.random.Generator(np.random.PCG64(s)) for s in np.random.SeedSequence(seed).spawn(2))
    return act, sample


def make_agent(config: Config, envs: Envs | None = None) -> Agent:
    """Build everything a config asks for, ready for its first step. Compiling happens here, before any clock runs.

    `envs` are the config's environments where somebody else plays them; they are closed if the rest cannot be built.
    """
    from dqnitro.envs import make_envs
    from dqnitro.replay import make_replay

    device = resolve_device(config.device)
    resolve_device(config.act_device, "--act-device")
    keep_freed_memory()
    if config.torch_threads:
        torch.set_num_threads(config.torch_threads)
    envs = make_envs(config) if envs is None else envs
    try:
        if "own-kernels" in config.wrappers:
            raise ConfigError(
                f"wrapper own-kernels reads the replay of the runners device and hybrid, not {config.runner}'s",
                "use --without own-kernels",
            )
        learner = Learner(config, envs.spec, device)
        replay = make_replay(config, envs.spec, device)
        learner.warm_up(envs.spec, config.batch_size)
        obs = envs.reset()
        replay.start(obs)
    except BaseException:
        envs.close()
        raise
    pending = np.zeros(config.n_envs, bool)
    return Agent(config, envs, replay, learner, make_clock(config), *make_generators(config.seed), obs, pending)


def get_state(agent: Agent) -> tuple[dict[str, Mapping[str, Any]], dict[str, Any]]:
    """Everything that decides how the run goes on: named groups of arrays, and a small JSON-ready record."""
    if not isinstance(agent, Agent):  # a runner's own kind
        return agent.get_state()
    arrays: dict[str, Mapping[str, Any]] = {
        "learner": agent.learner.get_state(),
        "replay": agent.replay.get_state(),
        "envs": agent.envs.get_state(),
        "agent": {"obs": agent.obs, "pending": agent.pending, "torch_rng": torch.get_rng_state().numpy()},
    }
    record = {
        "clock": agent.clock.get_state(),
        "rng_act": json.loads(json.dumps(agent.rng_act.bit_generator.state)),
        "rng_replay": json.loads(json.dumps(agent.rng_replay.bit_generator.state)),
        "phases": dict(agent.phases.seconds),
    }
    return arrays, record


def set_state(agent: Agent, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
    """The inverse of `get_state`, on an agent made from the same config."""
    if not isinstance(agent, Agent):
        agent.set_state(arrays, record)
        return
    agent.learner.set_state({k: torch.from_numpy(np.array(v)) for k, v in arrays["learner"].items()})
    agent.replay.set_state(arrays["replay"])
    agent.obs = agent.envs.set_state(arrays["envs"])
    agent.pending = np.array(arrays["agent"]["pending"])
    torch.set_rng_state(torch.from_numpy(np.array(arrays["agent"]["torch_rng"])))
    agent.clock.set_state(record["clock"])
    agent.rng_act.bit_generator.state = record["rng_act"]
    agent.rng_replay.bit_generator.state = record["rng_replay"]
    agent.phases.seconds.update(record["phases"])

"""The `inline` runner: everything in this process, one after the other. What the other runners are compared with.

The loop is a generator: act, send, learn what is owed, receive, remember. Everything else consumes it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dqnitro import dqn
from dqnitro.agent import Phases, State, Tick
from dqnitro.clock import Clock
from dqnitro.config import Config
from dqnitro.envs.base import Envs, Step
from dqnitro.envs.failures import env_failure
from dqnitro.errors import ConfigError, DivergedError, EnvFailed
from dqnitro.learn.learner import Learner
from dqnitro.learn.transforms import chosen
from dqnitro.process_setup import keep_freed_memory
from dqnitro.replay.base import Replay, Sample
from dqnitro.requirements import gpu_replay_needs
from dqnitro.run.build import make_clock, make_generators, resolve_device


@dataclass
class InlineAgent:
    """All that a run is at one moment: environments, replay, learner, clock, generators, and the observation to act on
    next.
    """

    config: Config
    envs: Envs
    replay: Replay
    learner: Learner
    clock: Clock
    rng_act: np.random.Generator
    rng_replay: np.random.Generator
    obs: np.ndarray
    pending: np.ndarray  # bool: this environment resets in the next tick, whatever its action is
    doing: np.ndarray | None = (
        None  # actions of a vector step that is under way: a step that failed is repeated with them
    )
    ahead: tuple[Tensor | None, DivergedError | None] | None = None  # what `learn_owed` gave, within a tick
    phases: Phases = field(default_factory=Phases)

    def choose_actions(self) -> np.ndarray:
        n_actions = self.envs.spec.n_actions
        return choose_actions(
            self.rng_act, self.clock.epsilon(), self.pending, n_actions,
            lambda: self.learner.greedy(self.obs, self.rng_act, self.learn_ahead), self.envs.idle,
            self.envs.last_actions,
        )  # fmt: skip

    def learn_ahead(self) -> None:
        """The updates of this tick, started before its actions are known: a GPU learns while the environments play."""
        self.phases.end("act")
        self.ahead = learn_owed(self)

    def get_state(self) -> State:
        """Everything that decides how the run goes on."""
        arrays: dict[str, Mapping[str, Any]] = {
            "learner": self.learner.get_state(),
            "replay": self.replay.get_state(),
            "envs": self.envs.get_state(),
            "agent": {"obs": self.obs, "pending": self.pending, "torch_rng": torch.get_rng_state().numpy()},
        }
        if self.doing is not None:
            arrays["agent"] = {**arrays["agent"], "doing": self.doing}
        record = {
            "clock": self.clock.get_state(),
            "rng_act": json.loads(json.dumps(self.rng_act.bit_generator.state)),
            "rng_replay": json.loads(json.dumps(self.rng_replay.bit_generator.state)),
            "phases": dict(self.phases.seconds),
        }
        return arrays, record

    def set_state(self, arrays: Mapping[str, Mapping[str, Any]], record: Mapping[str, Any]) -> None:
        """The inverse of `get_state`."""
        self.learner.set_state({k: torch.from_numpy(np.array(v)) for k, v in arrays["learner"].items()})
        self.replay.set_state(arrays["replay"])
        self.obs = played(self.envs.set_state, arrays["envs"])
        self.pending = np.array(arrays["agent"]["pending"], bool).reshape(self.config.n_envs)
        doing = arrays["agent"].get("doing")
        self.doing = None if doing is None else np.array(doing, np.int64).reshape(self.config.n_envs)
        torch.set_rng_state(torch.from_numpy(np.array(arrays["agent"]["torch_rng"])))
        self.clock.set_state(record["clock"])
        self.rng_act.bit_generator.state = record["rng_act"]
        self.rng_replay.bit_generator.state = record["rng_replay"]
        self.phases.seconds.update(record["phases"])

    def close(self) -> None:
        self.envs.close()


def played(play: Callable[..., Any], *args: Any) -> Any:
    """Call the environments; an exception of theirs becomes `EnvFailed`."""
    try:
        return play(*args)
    except Exception as e:
        raise env_failure(e) from e


def choose_actions(
    rng: np.random.Generator, epsilon: float, pending: np.ndarray, n_actions: int, greedy: Callable[[], np.ndarray],
    idle: np.ndarray | None = None, last: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Epsilon-greedy, one coin per environment that really decides. The network is asked only if one is greedy.

    Those that are `idle` explore more, and mostly make their `last` action again.
    """
    if idle is None and not pending.any():  # the same with a few calls less
        n = len(pending)
        explore = rng.random(n) < epsilon
        actions = rng.integers(0, n_actions, n)
        return actions if explore.all() else np.where(explore, actions, greedy())
    actions = np.zeros(len(pending), np.int64)
    deciding = np.flatnonzero(~pending)
    chance = epsilon if idle is None else np.where(idle[deciding], max(epsilon, dqn.IDLE_EPSILON), epsilon)
    explore = rng.random(len(deciding)) < chance
    actions[deciding] = rng.integers(0, n_actions, len(deciding))
    if not explore.all():
        follow = deciding[~explore]
        actions[follow] = greedy()[follow]
    if idle is not None and last is not None and idle.any():
        holds = idle & ~pending & (rng.random(len(pending)) < dqn.IDLE_HOLDS)
        actions[holds] = last[holds]
    return actions


def next_sample(a: InlineAgent) -> Sample:
    """The batch of the update that is owed next, with the target network that it is to see."""
    if a.clock.owes_sync():
        a.learner.sync_target()
        a.clock.count_sync()
    sample = a.replay.sample(a.config.batch_size, a.rng_replay, a.clock.beta())
    a.phases.end("sample")
    return sample


def begin_update(a: InlineAgent) -> Sample | None:
    """Where actions are chosen in the update's pass: make that pass, if an update is owed. `learn_owed` goes on with
    it.

    The update of a tick learns from what was there before its step, with the weights that choose its actions: nothing
    that it needs is still to come.
    """
    if not (a.learner.acts_in_pass and a.clock.owes_update() and len(a.replay)):
        return None
    sample = next_sample(a)
    a.learner.begin(sample.batch, a.obs)
    a.phases.end("learn")
    return sample


def learn_owed(a: InlineAgent, begun: Sample | None = None) -> tuple[Tensor | None, DivergedError | None]:
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


def remember(a: InlineAgent, actions: np.ndarray, step: Step) -> None:
    """Take a finished vector step into the replay and the clock."""
    a.doing = None
    a.replay.add(actions, step)
    a.obs = step.obs_t
    a.pending = np.zeros_like(a.pending)
    a.pending[[end.env for end in step.ends]] = True
    a.clock.count_steps(int(np.count_nonzero(~step.reset)))
    a.phases.end("store")


def loop(agent: InlineAgent) -> Iterator[Tick]:
    """Endless: the consumer decides when to stop. Between two ticks the agent is at rest and may be saved."""
    a, clock, phases = agent, agent.clock, agent.phases
    while True:
        phases.begin()
        epsilon = clock.epsilon()
        begun = None
        if a.doing is None:  # else a step that failed, or that was broken off, is repeated: its updates were made
            begun = begin_update(a)
            a.doing = a.choose_actions()
        actions = a.doing
        phases.end("act")
        try:
            played(a.envs.send, actions)
        except EnvFailed:
            learn_owed(a, begun)  # their sample is drawn: the run is saved as of after them
            raise
        phases.end("env")
        ahead, a.ahead = a.ahead, None
        loss, diverged = ahead or learn_owed(a, begun)
        step = played(a.envs.recv)
        phases.end("env")
        remember(a, actions, step)
        if diverged:
            raise diverged
        yield Tick(clock.steps, clock.updates, epsilon, loss, step.ends)


def make_agent(config: Config, envs: Envs | None = None) -> InlineAgent:
    """Build everything a config asks for, ready for its first step. Compiling happens here, before any clock runs.

    `envs` are the config's environments if another process plays them; they are closed if the rest cannot be built.
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
        if fused := [t.name for t in chosen(config.wrappers) if t.reads_ring]:
            raise ConfigError(
                f"wrapper {fused[0]} reads the replay of the runners device and hybrid, not {config.runner}'s",
                f"use --without {fused[0]}",
            )
        learner = Learner(config, envs.spec, device)
        if learner.parts.takes_places and (why := gpu_replay_needs(config)):
            raise ConfigError(f"wrapper gpu-replay: {why}", "use --without gpu-replay")
        parts = learner.parts
        replay = make_replay(
            config, envs.spec, device, parts.channels_last, parts.compiled_sampling, parts.takes_places
        )  # fmt: skip
        learner.warm_up(envs.spec, config.batch_size)
        obs = played(envs.reset)
        replay.start(obs)
    except BaseException:
        envs.close()
        raise
    pending = np.zeros(config.n_envs, bool)
    return InlineAgent(config, envs, replay, learner, make_clock(config), *make_generators(config.seed), obs, pending)

"""One frozen Config describes a run. Units are in the names; values that cannot work are refused here."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dqnitro import own
from dqnitro.errors import ConfigError


def _doc(default: Any, text: str) -> Any:
    """A field with its description, which is shown by `--help` and in docs/training.md."""
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True)
class Config:
    """Everything that decides what a run computes. Two runs with equal configs on one CPU are equal bit for bit."""

    # --- the game
    env_id: str = _doc("pong", "Atari game (pong, breakout, ...) or any Gymnasium id with discrete actions")
    seed: int = _doc(1, "seed of all random generators of the run")

    # --- environments (frames are console frames; a step is one decision, frame_skip frames)
    envs: str = _doc("wrappers", "environment backend: wrappers, gym-sync, gym-async, ale or console")
    n_envs: int = _doc(1, "number of environments; a vector step steps all of them")
    env_threads: int = _doc(0, "emulation threads of ale and console (0: as many as are useful)")
    env_parts: int = _doc(
        0,
        "runner hybrid with envs console: split the environments into this many groups that alternate between "
        "emulation and action selection (0: two if n_envs is even)",
    )
    frame_skip: int = _doc(4, "frames per step")
    max_pool: bool = _doc(True, "observe the maximum of the last two frames of a step (removes flicker)")
    noop_max: int = _doc(30, "start each game with 0 to noop_max-1 no-op frames, drawn at random (0: off)")
    fire_reset: bool = _doc(True, "press FIRE once at the start of each game that has a FIRE action")
    episodic_life: bool = _doc(False, "losing a life ends the return (the game itself continues)")
    clip_rewards: bool = _doc(True, "learn from rewards clipped to -1..1 (scores are never clipped)")
    screen_size: int = _doc(84, "height and width of observations in pixels")
    resize: str = _doc(
        "area", "how screens are downscaled: area or linear (OpenCV), or pillow; ale and console support area only"
    )
    images: str = _doc(
        "grey",
        "images of environments that are not Atari: full (all channels; images under 36 pixels keep their size) or "
        "grey (one channel, always screen_size; boards under 16 pixels are flattened)",
    )
    frame_stack: int = _doc(4, "frames stacked into one observation, so that motion is visible")
    sticky_actions: float = _doc(0.0, "probability, per frame, that the console repeats the previous action")
    max_episode_frames: int = _doc(108_000, "truncate a game after this many frames (108,000: 30 minutes of play)")
    idle_frames: int = _doc(
        0,
        "after this many frames without a reward an environment explores until the next reward or game: it keeps an "
        "action for ten steps on average, and every second one is random. This gets an agent that never serves going "
        "again (0: off)",
    )
    full_actions: bool = _doc(False, "use all 18 joystick actions instead of the game's own set")

    # --- network
    network: str = _doc(
        "nature",
        "network for images: nature (Mnih et al. 2015), small (Mnih et al. 2013, a third of the arithmetic), impala "
        "(Espeholt et al. 2018, residual, six times the arithmetic at width 1) or board (3x3 convolutions, for images "
        "under 36 pixels)",
    )
    impala_width: int = _doc(1, "network impala: its 16, 32 and 32 channels times this")
    impala_norm: str = _doc(
        "none",
        "network impala: none, layer (a LayerNorm in every residual block) or spectral (the weights of its "
        "convolutions divided by their largest singular value)",
    )
    hidden_units: int = _doc(512, "width of the last hidden layer")
    dueling: bool = _doc(False, "separate value and advantage streams")
    categorical: bool = _doc(False, "C51: predict a distribution of returns")
    atoms: int = _doc(51, "number of atoms of the categorical distribution")
    value_min: float = _doc(-10.0, "lowest return of the categorical distribution")
    value_max: float = _doc(10.0, "highest return of the categorical distribution")
    quantiles: int = _doc(0, "QR-DQN: predict this many quantiles of the return, with the quantile Huber loss (0: off)")
    implicit_quantiles: int = _doc(
        0, "IQN: learn from this many quantiles of the return, drawn at random for every sample of a pass (0: off)"
    )
    noisy_sigma: float = _doc(
        0.0, "noisy networks: first size of the noise in the weights of the last layers (0: off; 0.5 is usual)"
    )
    init: str = _doc("torch", "initial weights: torch (PyTorch's defaults) or kaiming (He et al. 2015, biases 0)")

    # --- learning
    learning_rate: float = _doc(1e-4, "Adam's learning rate")
    learning_rate_end: float = _doc(0.0, "Adam's learning rate after learning_rate_decay_steps")
    learning_rate_decay_steps: int = _doc(
        0, "steps over which the learning rate changes linearly, counted from the first update (0: it stays)"
    )
    optimizer: str = _doc("adam", "adam, or module:function of your own (docs/python.md)")
    adam_epsilon: float = _doc(1e-8, "Adam's epsilon")
    gamma: float = _doc(0.99, "discount per step")
    batch_size: int = _doc(32, "transitions per update")
    n_step: int = _doc(1, "rewards summed before bootstrapping")
    double: bool = _doc(
        False, "double DQN: the online network selects the next action, the target network evaluates it"
    )
    munchausen: bool = _doc(
        False,
        "Munchausen targets: a softmax policy instead of the maximum, and a bonus for actions that it was sure of",
    )
    munchausen_temperature: float = _doc(0.03, "temperature of that policy")
    munchausen_scale: float = _doc(0.9, "scale of that bonus")
    munchausen_floor: float = _doc(-1.0, "lowest bonus before it is scaled")
    loss: str = _doc("mse", "loss function: mse or huber")
    grad_clip: float = _doc(0.0, "clip the gradient norm to this value (0: off)")
    target_sync_steps: int = _doc(1_000, "steps between copies of the online network into the target network")

    # --- schedule
    first_fill_steps: int = _doc(10_000, "steps before the first update")
    steps_per_update: float = _doc(1.0, "steps per update (0.5: two updates per step)")
    epsilon_start: float = _doc(1.0, "probability of a random action at step 0")
    epsilon_end: float = _doc(0.02, "probability of a random action after the decay")
    epsilon_decay_steps: int = _doc(100_000, "steps over which epsilon decays linearly")

    # --- replay
    replay: str = _doc("frames", "replay: plain (a Python list) or frames (each frame stored once, preallocated)")
    replay_capacity: int = _doc(100_000, "transitions kept")
    replay_device: str = _doc("auto", "where the replay frames is stored: cpu, cuda, or auto (with the learner)")
    prioritized: bool = _doc(False, "prioritised replay: sample by temporal-difference error")
    priority_alpha: float = _doc(0.6, "exponent of the priorities (0: uniform sampling, 1: proportional to the error)")
    priority_beta: float = _doc(0.4, "importance-sampling correction at the start; grows to 1 over priority_beta_steps")
    priority_beta_steps: int = _doc(100_000, "steps until the importance-sampling correction is complete")

    # --- speed
    runner: str = _doc(
        "inline",
        "what runs where: inline (one process), processes (acting and learning in two processes), device (everything "
        "on one GPU), hybrid (games on the CPU, replay and learner on the GPU), cluster (acting on the nodes of a Ray "
        "cluster)",
    )
    slack_steps: int = _doc(
        0,
        "runner processes: how many steps acting may run ahead of learning, rounded down to whole vector steps "
        "(0: identical to inline; with one-pass-acting identical up to rounding); runner cluster: rounded down to "
        "whole chunks",
    )
    players: int = _doc(
        1,
        "runner cluster: players, each with its share of the environments and random numbers of its own; 2..8: as many "
        "as there are free CPUs, a number that may change during the run",
    )
    most_players: int = _doc(
        0,
        "runner cluster: players may change between --players and this many, by the CPUs that are free "
        "(0: their number does not change)",
    )
    player_changes: str = _doc(
        "",
        "runner cluster: CHUNK:PLAYERS,...: the number of players from each chunk on, whatever is free; --players-log "
        "takes them from a run",
    )
    chunk_vector_steps: int = _doc(
        8, "runner cluster: vector steps that a player makes with one version of the weights"
    )
    player_timeout_s: float = _doc(
        300.0,
        "runner processes: a vector step that takes longer than this many seconds counts as hung, and the player is "
        "started again (0: never)",
    )
    gpus: int = _doc(
        1,
        "runners device and hybrid: train one learner on this many GPUs, each with its share of the environments, of "
        "the replay and of every batch (with device cpu: in this many processes)",
    )
    device: str = _doc("cpu", "where learning runs: cpu, cuda, or auto")
    act_device: str = _doc(
        "same", "where actions are chosen: same (as device), or cpu, cuda, cuda:1 with a copy of the network"
    )
    act_sync_updates: int = _doc(1, "updates between copies of the weights to the network on act_device")
    deterministic: bool = _doc(
        False,
        "on a GPU: only operations that add in a fixed order, so that a run repeats and resumes bit for bit; slower "
        "(on a CPU every run does)",
    )
    torch_threads: int = _doc(0, "threads of one network pass (0: one per core)")
    wrappers: tuple[str, ...] = _doc(
        ("no-grad",), "transforms of the update, in any order; the rungs of the ladder set them"
    )

    # --- when to stop, and what to store
    max_steps: int = _doc(0, "stop after this many steps (0: no limit)")
    max_minutes: float = _doc(0.0, "stop this many minutes after the first step (0: no limit)")
    stop_at_score: float = _doc(math.inf, "stop when the mean score of the last 100 games reaches this")
    checkpoint_every_s: float = _doc(600.0, "seconds between checkpoints (0: only at the end)")
    log_every_s: float = _doc(1.0, "seconds between lines of metrics.jsonl")
    eval_every_steps: int = _doc(
        0,
        "score the agent over fresh games every this many steps, in another process; the run stays the same (0: off)",
    )
    games_per_eval: int = _doc(30, "fresh games of such an evaluation")
    eval_epsilon: float = _doc(0.01, "probability of a random action in those games")

    def __post_init__(self) -> None:
        check(self)

    def replace(self, **changes: Any) -> Config:
        """A copy with some fields changed; an unknown name is an error with the nearest names."""
        for name in changes:
            if name not in FIELDS:
                raise ConfigError(f"unknown setting {name!r}", nearest(name, FIELDS))
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready: infinity becomes null."""
        out = dataclasses.asdict(self)
        out["wrappers"] = list(self.wrappers)
        return {k: None if isinstance(v, float) and math.isinf(v) else v for k, v in out.items()}

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Config:
        """The inverse of to_dict; unknown keys are an error, missing ones take the default."""
        changes = dict(data)
        if changes.get("stop_at_score", 0.0) is None:
            changes["stop_at_score"] = math.inf
        if "wrappers" in changes:
            changes["wrappers"] = tuple(changes["wrappers"])
        return Config().replace(**changes)


FIELDS: dict[str, dataclasses.Field[Any]] = {f.name: f for f in dataclasses.fields(Config)}

CHOICES: dict[str, tuple[str, ...]] = {
    "envs": ("wrappers", "gym-sync", "gym-async", "ale", "console"),
    "replay": ("plain", "frames"),
    "replay_device": ("auto", "cpu", "cuda"),
    "network": ("nature", "small", "impala", "board"),
    "impala_norm": ("none", "layer", "spectral"),
    "init": ("torch", "kaiming"),
    "resize": ("area", "linear", "pillow"),
    "images": ("grey", "full"),
    "loss": ("mse", "huber"),
    "optimizer": ("adam",),
    "runner": ("inline", "processes", "device", "hybrid", "cluster"),
}

# Messages of this many ticks fit into the pipe between the processes (run/processes/remote.py).
MAX_SLACK_TICKS = 64
MAX_ENV_PROCESSES = 512
MOST_PLAYERS = 4096
MAX_NAME = 1000  # characters of env_id, which may name a module
MAX_CHANGES = 1_000_000  # characters of player_changes
_GPU_NUMBER = re.compile(r"cuda:\d{1,3}")
_CHANGE = re.compile(r"(\d{1,15}):(\d{1,15})")


class Range(NamedTuple):
    """The values that a number may have, both ends included unless `over` says that it must be over `low`."""

    low: float
    high: float
    over: bool = False

    def wrong(self, value: float) -> str:
        """What is wrong with a value, as in "n_envs must be at least 1, got 0"; empty if nothing is."""
        if value != value:
            return "is not a number"
        if value < self.low or (self.over and value == self.low):
            return f"must be {'over' if self.over else 'at least'} {shown(self.low)}, got {shown(value)}"
        return f"must be at most {shown(self.high)}, got {shown(value)}" if value > self.high else ""


def shown(value: Any) -> str:
    """A value in an error message: short, whatever it is (Python refuses to print an int of 5,000 digits)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) < 10**15 else f"{'-' if value < 0 else ''}a number of over 15 digits"
    text = f"{value:g}" if isinstance(value, float) else ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_EVER = 10**12  # more steps than any run makes

# Every setting that is a number, and the values that it may have. The upper ends are far above what is useful: they
# refuse slips of the keyboard, and what would end in a crash of a library, in one line. Where 0 has a special meaning,
# the field's description says so.
RANGES: dict[str, Range] = {
    "seed": Range(0, 2**31 - 1),
    "n_envs": Range(1, 2**20), "env_threads": Range(0, 1024), "env_parts": Range(0, 1024),
    "frame_skip": Range(1, 1000), "noop_max": Range(0, 10_000), "screen_size": Range(36, 1024),
    "frame_stack": Range(1, 256), "sticky_actions": Range(0, 1), "max_episode_frames": Range(1, 2**31 - 1),
    "idle_frames": Range(0, 2**31 - 1),
    "hidden_units": Range(1, 2**16), "atoms": Range(2, 10_000), "value_min": Range(-1e12, 1e12),
    "value_max": Range(-1e12, 1e12), "impala_width": Range(1, 16), "quantiles": Range(0, 10_000),
    "implicit_quantiles": Range(0, 10_000), "noisy_sigma": Range(0, 100),
    "munchausen_temperature": Range(0, 1e6, over=True), "munchausen_scale": Range(0, 1),
    "munchausen_floor": Range(-1e6, 0),
    "learning_rate": Range(0, 1000, over=True), "learning_rate_end": Range(0, 1000),
    "learning_rate_decay_steps": Range(0, _EVER), "adam_epsilon": Range(0, 1000), "gamma": Range(0, 1),
    "batch_size": Range(1, 2**20), "n_step": Range(1, 10_000), "grad_clip": Range(0, 1e12),
    "target_sync_steps": Range(1, _EVER),
    "first_fill_steps": Range(0, _EVER), "steps_per_update": Range(0.001, 1e6), "epsilon_start": Range(0, 1),
    "epsilon_end": Range(0, 1), "epsilon_decay_steps": Range(0, _EVER),
    "replay_capacity": Range(1, _EVER), "priority_alpha": Range(0, 1), "priority_beta": Range(0, 1),
    "priority_beta_steps": Range(0, _EVER),
    "slack_steps": Range(0, MAX_SLACK_TICKS * 2**20), "players": Range(1, MOST_PLAYERS),
    "most_players": Range(0, MOST_PLAYERS), "chunk_vector_steps": Range(1, 10_000),
    "act_sync_updates": Range(1, 10**9), "gpus": Range(1, 4096),
    "player_timeout_s": Range(0, 1e9), "torch_threads": Range(0, 1024),
    "max_steps": Range(0, _EVER), "max_minutes": Range(0, 1e8), "stop_at_score": Range(-1e12, math.inf),
    "checkpoint_every_s": Range(0, 1e9), "log_every_s": Range(0, 1e9),
    "eval_every_steps": Range(0, _EVER), "games_per_eval": Range(1, 100_000), "eval_epsilon": Range(0, 1),
}  # fmt: skip


def nearest(name: str, known: Any, what: str = "settings") -> str:
    """A hint: the known names that are similar to this one, or all of them."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.5)
    return f"did you mean {', '.join(close)}?" if close else f"the {what} are {', '.join(known)}"


def _check_type(name: str, value: Any, default: Any) -> None:
    # bool is a subclass of int in Python, so `n_envs=True` would otherwise pass silently.
    want = type(default)
    ok = isinstance(value, want) and (want is bool or not isinstance(value, bool))
    if want is float:
        ok = isinstance(value, int | float) and not isinstance(value, bool)
    if not ok:
        raise ConfigError(f"{name} must be of type {want.__name__}, got {shown(value)} ({type(value).__name__})")
    if isinstance(value, tuple) and not all(isinstance(v, str) for v in value):
        raise ConfigError(f"{name} must be a tuple of names, got {shown(value)}")
    most = MAX_CHANGES if name == "player_changes" else MAX_NAME
    if isinstance(value, str) and (not value.isprintable() or len(value) > most):
        raise ConfigError(f"{name} must be a name of at most {most} characters, got {shown(value)}")


def check(c: Config) -> None:
    """Raise ConfigError for the first setting that cannot work, with a hint at one that can."""
    _check_each_value(c)
    _check_devices(c)
    _check_envs(c)
    _check_learning(c)
    _check_replay(c)
    _check_runner(c)


def _check_each_value(c: Config) -> None:
    """Type, choices and limits of every field by itself."""
    for name, f in FIELDS.items():
        value = getattr(c, name)
        _check_type(name, value, f.default)
        mine = name in own.KINDS
        if name in CHOICES and value not in CHOICES[name] and not (mine and own.is_own(name, str(value))):
            raise ConfigError(
                f"{name} must be one of {', '.join(CHOICES[name])}, got {shown(value)}",
                "one of your own is module:function, or a name that its module has registered" if mine else "",
            )
        if name in RANGES and (what := RANGES[name].wrong(value)):
            raise ConfigError(f"{name} {what}", f"the default is {shown(f.default)}")


def _check_devices(c: Config) -> None:
    if c.device not in ("auto", "cpu", "cuda") and not _GPU_NUMBER.fullmatch(c.device):
        raise ConfigError(f"device must be auto, cpu or cuda, got {shown(c.device)}")
    if c.act_device not in ("same", "cpu", "cuda") and not _GPU_NUMBER.fullmatch(c.act_device):
        raise ConfigError(f"act_device must be same, cpu, cuda or cuda:N, got {shown(c.act_device)}")
    if c.act_sync_updates > 1 and c.act_device == "same":
        raise ConfigError(
            f"act_sync_updates {c.act_sync_updates} needs a second network to act with, but act_device is same",
            "act_device cpu makes one",
        )


def _check_envs(c: Config) -> None:
    if c.resize != "area" and c.envs in ("ale", "console"):
        raise ConfigError(
            f"envs {c.envs} supports resize area only, got {c.resize!r}",
            "set envs to wrappers, gym-sync or gym-async",
        )
    if c.envs == "gym-async" and c.n_envs > MAX_ENV_PROCESSES:
        raise ConfigError(
            f"envs gym-async starts a process per environment, at most {MAX_ENV_PROCESSES}; n_envs is {c.n_envs}",
            "set envs to console or ale, whose environments share threads",
        )


def _check_learning(c: Config) -> None:
    if c.epsilon_end > c.epsilon_start:
        raise ConfigError(
            f"epsilon_end {c.epsilon_end} is over epsilon_start {c.epsilon_start}",
            "epsilon can only decrease",
        )
    if c.value_max <= c.value_min:
        raise ConfigError(f"value_max {c.value_max} must be over value_min {c.value_min}")
    heads = [name for name in ("categorical", "quantiles", "implicit_quantiles") if getattr(c, name)]
    if len(heads) > 1:
        raise ConfigError(f"{heads[0]} and {heads[1]} are two heads for the same thing", "leave out one of them")
    if c.learning_rate_end and not c.learning_rate_decay_steps:
        raise ConfigError(
            f"learning_rate_end {c.learning_rate_end:g} needs learning_rate_decay_steps, which is 0",
            "give learning_rate_decay_steps as well",
        )
    if c.learning_rate_decay_steps and own.is_own("optimizer", c.optimizer):
        raise ConfigError(
            f"learning_rate_decay_steps is for adam, but optimizer is {c.optimizer}",
            "change the rate in your optimiser",
        )
    if 1 in (c.quantiles, c.implicit_quantiles):
        raise ConfigError("one quantile is not a distribution", "at least 2, or 0 to predict the value itself")
    if c.munchausen and c.categorical:
        raise ConfigError("munchausen targets are not defined for a categorical head", "use --quantiles 64 instead")
    if c.munchausen and c.double:
        raise ConfigError(
            "munchausen targets have no maximum whose action the online network could select", "leave out --double"
        )


def _check_replay(c: Config) -> None:
    if c.batch_size > c.first_fill_steps:
        raise ConfigError(
            f"batch_size {c.batch_size} is larger than first_fill_steps {c.first_fill_steps}",
            f"there would be too few transitions for the first update; set first_fill_steps to at least {c.batch_size}",
        )
    if c.first_fill_steps > c.replay_capacity:
        raise ConfigError(
            f"first_fill_steps {c.first_fill_steps} is larger than replay_capacity {c.replay_capacity}",
            "the replay would never be full enough to learn from; lower first_fill_steps or raise replay_capacity",
        )
    slots = c.replay_capacity // c.n_envs
    if slots <= c.n_step + c.frame_stack:
        raise ConfigError(
            f"replay_capacity {c.replay_capacity} leaves only {slots} steps for each of {c.n_envs} environments",
            f"raise it to at least {(c.n_step + c.frame_stack + 1) * c.n_envs}",
        )
    if c.prioritized and c.replay == "plain":
        raise ConfigError("prioritized needs replay frames, got plain", "leave replay at frames")


def _check_runner(c: Config) -> None:
    _check_gpus(c)
    if c.env_parts > 1 and c.runner != "hybrid":
        raise ConfigError(f"env_parts {c.env_parts} needs runner hybrid, got {c.runner}", "leave env_parts at 0")
    if c.slack_steps and c.runner not in ("processes", "cluster"):
        raise ConfigError(
            f"slack_steps {c.slack_steps} needs runner processes or cluster, got {c.runner}", "leave slack_steps at 0"
        )
    if c.runner in ("processes", "cluster") and c.act_device != "same":
        raise ConfigError(
            f"act_device {c.act_device} is for runner inline, got {c.runner}",
            "a player acts on the CPU with its own copy of the network; leave act_device at same",
        )
    _check_players(c)
    if c.slack_steps // c.n_envs > MAX_SLACK_TICKS:
        raise ConfigError(
            f"slack_steps {c.slack_steps} is over {MAX_SLACK_TICKS} steps of each of {c.n_envs} environments",
            f"at most {MAX_SLACK_TICKS * c.n_envs + c.n_envs - 1}; more would only make the acting weights older",
        )


def changes_of_players(text: str) -> list[tuple[int, int]]:
    """What `player_changes` says: chunks, counted from the run's beginning, and how many players there are from each
    on.
    """
    changes = [(int(m[1]), int(m[2])) if (m := _CHANGE.fullmatch(part)) else None for part in text.split(",") if text]
    found = [change for change in changes if change is not None]
    chunks = [chunk for chunk, _ in found]
    if len(found) < len(changes) or chunks != sorted(chunks):
        raise ConfigError(
            f"player_changes must be CHUNK:PLAYERS,... in the order of chunks, got {shown(text)}", "such as 0:2,40:4"
        )
    return found


def numbers_of_players(c: Config) -> list[int]:
    """All that a run may have at some time, the smallest first: those by which its environments can be divided."""
    return [k for k in range(c.players, max(c.players, c.most_players) + 1) if c.n_envs % k == 0]


def _check_players(c: Config) -> None:
    changes = changes_of_players(c.player_changes)
    for name in ("players", "most_players", "player_changes"):
        value, default = getattr(c, name), FIELDS[name].default
        if value != default and c.runner != "cluster":
            raise ConfigError(
                f"{name} {shown(value)} needs runner cluster, got {c.runner}", f"leave {name} at {shown(default)}"
            )
    if 0 < c.most_players < c.players:
        raise ConfigError(
            f"players {c.players} to most_players {c.most_players} is an empty range",
            f"--players {c.most_players}..{c.players}",
        )
    if not numbers_of_players(c):
        most = max(c.players, c.most_players)
        raise ConfigError(
            f"{c.n_envs} environments cannot be divided among {c.players}{f' to {most}' * (most > c.players)} players",
            f"n_envs {-(-c.n_envs // most) * most} can",
        )
    for chunk, players in changes:
        if not 1 <= players <= MOST_PLAYERS or c.n_envs % players:
            raise ConfigError(
                f"{c.n_envs} environments cannot be divided among the {players:,} players from chunk {chunk:,} on",
                "give the settings of the run that player_changes is from",
            )


def _check_gpus(c: Config) -> None:
    if c.gpus > 1 and c.runner not in ("device", "hybrid"):
        raise ConfigError(f"gpus {c.gpus} needs runner device or hybrid, got {c.runner}", "use --runner device")
    for name, what in (("n_envs", "environments"), ("batch_size", "transitions of a batch")):
        n = getattr(c, name)
        if n % c.gpus:
            below = n - n % c.gpus
            raise ConfigError(
                f"{n} {what} cannot be divided among {c.gpus} GPUs",
                f"--{name.replace('_', '-')} {f'{below} or ' * (below > 0)}{below + c.gpus}",
            )

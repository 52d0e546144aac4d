"""Where transitions are kept: `plain` (the reference implementation), `frames` (every frame once), prioritised."""

from __future__ import annotations

from dqnitro import own
from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import ConfigError
from dqnitro.replay.base import Replay, Sample

__all__ = ["Replay", "Sample", "check_memory", "make_replay"]


def check_memory(needed: float, free: float, capacity: int, where: str) -> None:
    """Refuse a replay that does not fit before training, instead of running out of memory in the middle of it."""
    if needed > 0.9 * free:
        fits = int(capacity * 0.9 * free / needed)
        raise ConfigError(
            f"a replay of {capacity:,} transitions needs {needed / 2**30:.1f} GiB of {where} memory, "
            f"{free / 2**30:.1f} GiB are free",
            f"--replay-capacity {fits} fits",
        )


def _free_memory(device: str) -> tuple[float, str]:
    if device.startswith("cuda"):
        import torch

        return float(torch.cuda.mem_get_info(torch.device(device))[0]), "GPU"
    import psutil

    return float(psutil.virtual_memory().available), "main"


def make_replay(
    config: Config, spec: EnvSpec, learner_device: str, channels_last: bool, compiled: bool = False,
    placed: bool = False,
) -> Replay:  # fmt: skip
    """The replay a config asks for; ConfigError if it would not fit.

    `channels_last`: how the learner reads pixels. `compiled`: vectors are put together in compiled code.
    `placed`: it takes samples as places in the ring, which is on its device.
    """
    from dqnitro.replay.frames import FrameReplay, frame_bytes
    from dqnitro.replay.placed import PlacedReplay
    from dqnitro.replay.plain import PlainReplay, plain_bytes
    from dqnitro.replay.prioritized import PrioritizedReplay

    c = config
    if placed and c.replay != "frames":
        raise ConfigError(f"wrapper gpu-replay is made of the replay frames, got {c.replay}", "use --replay frames")
    if own.is_own("replay", c.replay):
        return _own_replay(config, spec)
    plain = c.replay == "plain"
    device = "cpu" if plain else (learner_device if c.replay_device == "auto" else c.replay_device)
    per_transition = (plain_bytes if plain else frame_bytes)(spec)
    free, where = _free_memory(device)
    check_memory(per_transition * c.replay_capacity, free, c.replay_capacity, where)
    if plain:
        return PlainReplay(c.replay_capacity, spec, c.n_step, c.gamma)
    if placed:
        return PlacedReplay(c.replay_capacity, spec, c.n_step, c.gamma, device, c.batch_size)
    # Gathering pixels in the order in which they are read saves the learner a pass over every batch.
    if c.prioritized:
        return PrioritizedReplay(c.replay_capacity, spec, c.n_step, c.gamma, device, c.priority_alpha, channels_last)
    return FrameReplay(c.replay_capacity, spec, c.n_step, c.gamma, device, channels_last, compiled)


def _own_replay(config: Config, spec: EnvSpec) -> Replay:
    """Call the user's function with (config, spec), and look whether all methods are there."""
    made = own.made("replay", config.replay, config, spec)
    missing = [
        name
        for name in ("start", "add", "sample", "update_priorities", "__len__", "get_state", "set_state")
        if not callable(getattr(made, name, None))
    ] + ["bytes_per_transition"] * (not hasattr(made, "bytes_per_transition"))
    if missing:
        raise ConfigError(
            f"replay {config.replay} has no {', '.join(missing)}", "dqnitro.replay.base.Replay says what they do"
        )
    return made

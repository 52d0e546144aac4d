"""How many seeds run in parallel, and how many threads each of them gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dqnitro.config import Config

if TYPE_CHECKING:
    from dqnitro.cluster.nodes import Need

# Cores that a run needs to be worth starting in parallel with others. With hybrid one core plays while another feeds
# the GPU.
CORES_EACH = {"inline": 1, "processes": 2, "hybrid": 2, "device": 1, "cluster": 1}
PROCESS_BYTES = 1 << 30  # torch, the console and the network, in main memory
GPU_BYTES = 3 << 30  # CUDA itself, the networks and the memory of an update, on the GPU
USABLE = 0.8  # of the free memory


@dataclass(frozen=True)
class Share:
    """The part of the machine that one seed gets."""

    at_once: int
    torch_threads: int
    env_threads: int
    why: str  # the reason for `at_once`


@dataclass(frozen=True)
class Room:
    """The resources to divide."""

    cores: int
    memory: float  # free bytes
    gpu_memory: float = 0.0  # bytes; 0: the learners are on the CPU


def find_room(config: Config) -> Room:
    """The resources of this machine."""
    import psutil
    import torch

    from dqnitro.common.host import usable_cores
    from dqnitro.requirements import on_gpu

    uses_gpu = torch.cuda.is_available() and (on_gpu(config) or config.runner == "device")
    gpu_memory = torch.cuda.get_device_properties(0).total_memory if uses_gpu else 0
    return Room(usable_cores(), float(psutil.virtual_memory().available), float(gpu_memory))


def replay_bytes(config: Config) -> float:
    """About the size of a replay of frames; a replay of vectors takes next to nothing."""
    from dqnitro.envs import env_kind

    if env_kind(config.env_id, config.images) == "vector":
        return 0.0
    pixels = config.screen_size**2 * config.replay_capacity
    once = config.replay == "frames" or config.runner in ("hybrid", "device")  # these always keep a ring of frames
    return float(pixels if once else 8 * config.frame_stack * pixels)


def share(config: Config, n_seeds: int, room: Room, at_once: int = 0) -> Share:
    """Divide the machine. Thread counts in the config are kept; `at_once` above 0 is the user's choice."""
    if at_once:
        count, why = min(at_once, n_seeds), "as requested"
    else:
        count, why = _fitting(config, n_seeds, room)
    cores_each = max(1, room.cores // count)
    halves = config.runner == "processes" and config.slack_steps > 0
    torch_threads = config.torch_threads or max(1, (cores_each + 1) // 2 if halves else cores_each)
    return Share(count, torch_threads, config.env_threads or cores_each, why)


def least_need(config: Config) -> Need:
    """The least that one run of this config needs of a node of a cluster. A run on a GPU has that GPU to itself."""
    from dqnitro.cluster.nodes import Need
    from dqnitro.requirements import on_gpu

    gpus = 1 if on_gpu(config) or config.runner in ("device", "hybrid") else 0
    cpus = max(CORES_EACH[config.runner], 1 if gpus else config.torch_threads)
    replay = 0.0 if gpus and config.replay_device != "cpu" else replay_bytes(config)
    return Need(cpus, gpus, int(PROCESS_BYTES + replay))


def _fitting(config: Config, n_seeds: int, room: Room) -> tuple[int, str]:
    need = max(CORES_EACH[config.runner], 1 if room.gpu_memory else config.torch_threads)
    by_cores = max(1, room.cores // need)
    replay = replay_bytes(config)
    on_gpu = room.gpu_memory > 0 and config.replay_device != "cpu"
    by_memory = max(1, int(USABLE * room.memory / (PROCESS_BYTES + (0 if on_gpu else replay))))
    by_gpu = n_seeds
    if room.gpu_memory:
        by_gpu = max(1, int(USABLE * room.gpu_memory / (GPU_BYTES + (replay if on_gpu else 0))))
    count = min(n_seeds, by_cores, by_memory, by_gpu)
    if count == n_seeds:
        return count, "all at once"
    if count == by_cores:
        return count, f"{room.cores} core{'s' if room.cores > 1 else ''}, {need} per seed"
    return count, "more would not fit into memory" + (" of the GPU" if count == by_gpu else "")

"""How many seeds run at a time, and how many threads each of them gets."""

from __future__ import annotations

from dataclasses import dataclass

from dqnitro.config import Config

# Cores that a run needs to be worth starting beside others. With games on the cores and the learner on a card (hybrid) one core plays
# while the other feeds the card.
CORES_EACH = {"inline": 1, "processes": 2, "hybrid": 2, "device": 1}
PROCESS_BYTES = 1 << 30  # torch, the console and the network, in main memory
CARD_BYTES = 3 << 30  # CUDA's own, the networks and what an update needs, on the card
ROOM = 0.8  # of the free memory


@dataclass(frozen=True)
class Share:
    """What one seed gets."""

    at_once: int
    torch_threads: int
    env_threads: int
    why: str  # what decided how many run at a time, in words


@dataclass(frozen=True)
class Room:
    """What is there to be divided."""

    cores: int
    memory: float  # free bytes
    card: float = 0.0  # bytes of the GPU's memory; 0: the learners are on the CPU


def find_room(config: Config) -> Room:
    """This machine."""
    import psutil
    import torch

    from dqnitro.host import usable_cores
    from dqnitro.requirements import on_gpu

    on_card = torch.cuda.is_available() and (on_gpu(config) or config.runner == "device")
    card = torch.cuda.get_device_properties(0).total_memory if on_card else 0
    return Room(usable_cores(), float(psutil.virtual_memory().available), float(card))


def replay_bytes(config: Config) -> float:
    """About what a replay of pictures takes; vectors take next to nothing."""
    from dqnitro.envs import env_kind

    if env_kind(config.env_id) == "vector":
        return 0.0
    pixels = config.screen_size**2 * config.replay_capacity
    once = config.replay == "frames" or config.runner in (
        "hybrid",
        "device",
    )  # those keep a ring of frames whatever it says
    return float(pixels if once else 8 * config.frame_stack * pixels)


def share(config: Config, n_seeds: int, room: Room, at_once: int = 0) -> Share:
    """Divide the machine. Threads that the config names stay as they are; `at_once` over 0 is the user's choice."""
    if at_once:
        count, why = min(at_once, n_seeds), "as was asked for"
    else:
        count, why = _fitting(config, n_seeds, room)
    cores_each = max(1, room.cores // count)
    halves = config.runner == "processes" and config.slack_steps > 0
    torch_threads = config.torch_threads or max(1, (cores_each + 1) // 2 if halves else cores_each)
    return Share(count, torch_threads, config.env_threads or cores_each, why)


def _fitting(config: Config, n_seeds: int, room: Room) -> tuple[int, str]:
    need = max(CORES_EACH[config.runner], 1 if room.card else config.torch_threads)
    by_cores = max(1, room.cores // need)
    replay = replay_bytes(config)
    on_card = room.card > 0 and config.replay_device != "cpu"
    by_memory = max(1, int(ROOM * room.memory / (PROCESS_BYTES + (0 if on_card else replay))))
    by_card = max(1, int(ROOM * room.card / (CARD_BYTES + (replay if on_card else 0)))) if room.card else n_seeds
    count = min(n_seeds, by_cores, by_memory, by_card)
    if count == n_seeds:
        return count, "all at a time"
    if count == by_cores:
        return count, f"{room.cores} core{'s' if room.cores > 1 else ''}, {need} a seed"
    return count, "more would not fit into the memory" + (" of the GPU" if count == by_card else "")

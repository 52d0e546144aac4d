"""What `auto` chooses for players on a cluster: how much one of them plays before it hears of the learner again.

Ray takes CPU time for every chunk (a call, an answer, a version of the weights) and for every byte of it. The first is
shared by all steps of a chunk, so a chunk should be long; but its weights grow older with every step, so it should not
be longer than it has to be.
"""

from __future__ import annotations

from dqnitro.config import Config

ENVS_EACH = 8  # of a player: a pass of the network for 8 costs hardly more than for one
LOST = 0.04  # the share of a step that may be lost to Ray, by what follows; the goal is 5%
LONGEST = 64  # vector steps, whatever Ray costs: the most that a slack may be

# CPU seconds on idle cores, from results/ray-parts-2-cores.json (`python -m dqnitro.lab.cluster.cost`).
CHUNK_S = 0.008  # of Ray for a chunk of one player: the call, weights, and what its processes and threads do besides
STEP_BYTE_S = 1.5e-9  # of Ray for a byte of a chunk, on both sides
STEP_S = {"small": 0.00013, "nature": 0.00026}  # choosing an action and playing it
UPDATE_S = {"small": 0.002, "nature": 0.0068}  # on a CPU


def chunk_for(config: Config, learns_on_cpu: bool) -> int:
    """The vector steps of a chunk: the smallest power of two with which Ray takes no more than its share."""
    chunk = 1
    while chunk < LONGEST and lost_to_ray(config, chunk, learns_on_cpu) > LOST:
        chunk *= 2
    return chunk


def lost_to_ray(config: Config, chunk: int, learns_on_cpu: bool) -> float:
    """The share of a step's CPU time, of players and learner, that Ray is expected to take."""
    size = "small" if config.network in ("small", "board") else "nature"
    learn_s = UPDATE_S[size] / config.steps_per_update if learns_on_cpu else 0.0
    players = max(config.players, config.most_players)
    ray_s = CHUNK_S / (chunk * config.n_envs / players) + STEP_BYTE_S * config.screen_size**2
    return ray_s / (ray_s + STEP_S[size] + learn_s)

"""Predicts a larger cluster from what `cost` measured: `python -m dqnitro.lab.cluster.model FILE`.

The model is a sum and a minimum. A player's chunk takes its CPU time for playing, plus its side of a message; all
players of a node work at the same time, one a core. The learner's process takes, for every chunk, its side of a message
(a part for the call and a part for each byte), and its own work for every step; it hands every version of the weights
over once for all. The network carries every chunk once to the learner, and every version once to each node. The slowest
of players, learner and network decides.

First it predicts, from messages alone, what was measured with one, two and four players: a check of its first half.

Measured, in the file: CPU seconds for a step of playing and of learning, for a call, for a byte. Assumed, by options:
cores of a node, bandwidth, and how much faster a learner on a GPU is. Not in the model: latency (slack hides it),
stragglers (slack evens out less than one chunk), and Ray's scheduler, which no chunk passes through.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from dataclasses import dataclass, replace
from typing import Any

from dqnitro.lab.store import load

SIDES = {"learner": ("learner",), "player": ("player", "ray")}  # of a message; Ray's own processes are on every node


@dataclass(frozen=True)
class Inputs:
    """Seconds of a core, and bytes."""

    play_s: float  # a step: choosing an action and playing it
    learn_s: float  # a step: everything that the learner does for it
    call_learner_s: float  # a chunk, at the learner
    byte_learner_s: float
    call_player_s: float  # a chunk, at the player and in Ray's processes of its node
    byte_player_s: float
    weight_bytes: float
    weight_learner_s: float  # a version of the weights, at the learner
    weight_player_s: float  # and at a node
    step_bytes: float  # a frame, and what goes with it


@dataclass(frozen=True)
class Cluster:
    """What is assumed."""

    nodes: int
    cores: int = 16
    envs_each: int = 8
    chunk: int = 8
    bytes_per_s: float = 1.25e9  # 10 Gbit/s into the learner
    learner_times: float = 1.0  # how much faster than the measured one


@dataclass(frozen=True)
class Predicted:
    """Steps a second that each part would allow, and what comes out."""

    players: float
    learner: float
    network: float
    lost_to_ray: float  # share of a player's and a learner's CPU time

    @property
    def steps_per_s(self) -> float:
        return min(self.players, self.learner, self.network)

    @property
    def bound(self) -> str:
        return min(("players", "learner", "network"), key=lambda name: getattr(self, name))


def predict(i: Inputs, c: Cluster) -> Predicted:
    steps = c.envs_each * c.chunk  # of a chunk
    size = steps * i.step_bytes
    n = c.nodes * c.cores
    message_player = i.call_player_s + size * i.byte_player_s + i.weight_player_s / c.cores
    message_learner = i.call_learner_s + size * i.byte_learner_s + i.weight_learner_s / n
    players = n * steps / (steps * i.play_s + message_player)
    learner = steps / (steps * i.learn_s / c.learner_times + message_learner)
    chunks_per_byte = size + i.weight_bytes / c.cores  # the weights go to a node once for all its players
    network = c.bytes_per_s / chunks_per_byte * steps
    whole = steps * (i.play_s + i.learn_s / c.learner_times) + message_player + message_learner
    return Predicted(players, learner, network, (message_player + message_learner) / whole)


def inputs_of(result: dict[str, Any], run: dict[str, Any]) -> Inputs:
    """Messages as they were measured apart, and one of the measured runs."""
    fits, steps, per_step = result["fits"], run["envs_each"] * run["chunk_vector_steps"], run["cpu_s_per_step"]
    call, byte, weights = (
        {who: sum(fits[f"{kind}_{part}"][unit] for part in parts) for who, parts in SIDES.items()}
        for kind, unit in (("answers", "per_call_s"), ("answers", "per_byte_s"), ("weights", "per_byte_s"))
    )
    size, weight_bytes = steps * run["step_bytes"], run["weight_bytes"]
    message = call["player"] + byte["player"] * size + weights["player"] * weight_bytes / run["players"]
    play = max(1e-9, per_step["players"] + per_step["ray"] - message / steps)
    return Inputs(
        play, max(1e-9, per_step["without"] - play), call["learner"], byte["learner"], call["player"], byte["player"],
        weight_bytes, weights["learner"] * weight_bytes, weights["player"] * weight_bytes, run["step_bytes"],
    )  # fmt: skip


def checked(result: dict[str, Any]) -> list[str]:
    """What is lost to Ray in each measured run, predicted and measured."""
    lines = ["| game | players | chunk | lost to Ray, measured | predicted |", "| --- | --: | --: | --: | --: |"]
    for run in result["runs"]:
        c = Cluster(1, run["players"], run["envs_each"], run["chunk_vector_steps"])
        told = predict(inputs_of(result, run), c).lost_to_ray
        lines.append(f"| {run['game']} | {run['players']} | {c.chunk} | {run['lost_to_ray']:.1%} | {told:.1%} |")
    return lines


def table(i: Inputs, base: Cluster) -> list[str]:
    lines = [
        "predicted, not measured",
        "",
        "| nodes | chunk | steps/s | bound by | lost to Ray |",
        "| --: | --: | --: | --- | --: |",
    ]
    for chunk in (base.chunk, 4 * base.chunk):
        for nodes in (1, 2, 4, 8, 16, 64):
            p = predict(i, replace(base, nodes=nodes, chunk=chunk))
            lines.append(f"| {nodes} | {chunk} | {p.steps_per_s:,.0f} | {p.bound} | {p.lost_to_ray:.1%} |")
    return lines


def main() -> int:
    p = argparse.ArgumentParser("model", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("file", type=pathlib.Path)
    p.add_argument("--cores", type=int, default=16, help="of a node; one player each")
    p.add_argument("--envs-each", type=int, default=8)
    p.add_argument("--game", help="of the measured runs (default: the first)")
    p.add_argument("--chunk", type=int, default=0, help="vector steps (default: as measured)")
    p.add_argument("--gbit", type=float, default=10.0, help="into the learner's machine")
    p.add_argument("--learner-times", type=float, default=1.0, help="how much faster the learner is than measured")
    a = p.parse_args()
    result = load(a.file)
    print("\n".join(checked(result)))
    game = a.game or result["runs"][0]["game"]
    run = max((r for r in result["runs"] if r["game"] == game), key=lambda r: r["players"])
    i = inputs_of(result, run)
    print(f"\n{game}: {i}\n")
    chunk = a.chunk or run["chunk_vector_steps"]
    print("\n".join(table(i, Cluster(1, a.cores, a.envs_each, chunk, a.gbit * 1.25e8, a.learner_times))))
    return 0


if __name__ == "__main__":
    sys.exit(main())

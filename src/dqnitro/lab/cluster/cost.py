"""What Ray costs: `python -m dqnitro.lab.cluster.cost --out FILE`. `model` predicts larger clusters from it.

Three learners take turns over the same chunks: one whose players are Ray actors on this machine, one whose players are
plain processes without Ray, and their reference, whose players live in its own process. So what Ray costs is told apart
from what any second process costs: it chooses actions with a network of its own, and works at the same time as the
learner, whose caches and memory it shares. A turn begins and ends with all chunks played that were permitted.

Counted is CPU time of all processes that belong to a learner, so that other programs on the machine do not count. What
Ray's processes, and its threads in others, use while nobody plays is measured first and subtracted for the time that a
turn took: on a busy machine it would count many times. It is stored beside.

Ray's own part is counted piece by piece as well (`ray_cpu`): its processes, its threads in the learner's process, the
learner's calls into it, and all that the players' processes do besides playing. Turns begin when Ray's processes have
come to rest: starting one takes over a second of CPU time, which a run of some seconds would not be a fair share of.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import pathlib
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import psutil

from dqnitro.agent import Tick
from dqnitro.cluster.connect import LOCAL, connect
from dqnitro.config import Config
from dqnitro.lab.cluster.piped_players import PipedHosts
from dqnitro.lab.cluster.ray_cpu import TimedHosts
from dqnitro.lab.interleave import compare
from dqnitro.lab.store import header, save
from dqnitro.planning import Wish, planned
from dqnitro.run.cluster import ticks
from dqnitro.run.cluster.actors import RayHosts
from dqnitro.run.cluster.crew import Crew
from dqnitro.run.cluster.hosts import Hosts
from dqnitro.run.cluster.player import Order, Permit, Player, Position
from dqnitro.run.inline import make_agent

SIZES = (1_000, 100_000, 1_000_000, 8_000_000)  # bytes of an answer
IDLE_S = 10.0
REST_CPUS, REST_S, LONGEST_REST_S = 0.1, 3.0, 60.0  # Ray's processes are at rest if they use less for so long
NUMBERS_BYTES = 32  # of a step: action, reward, flags, score


class HereHosts:
    """Players in the learner's own process: what the runner costs without Ray."""

    def start(self, order: Order, instead: Any = None) -> Any:
        return Player(order)

    def hello(self, player: Player) -> Any:
        return player.spec

    def begin(self, player: Player, at: Position) -> Any:
        return player.begin(at)

    def play(self, player: Player, permit: Permit, weights: Any) -> Any:
        return player.play(permit, weights)

    def put(self, weights: np.ndarray) -> Any:
        return weights

    def get(self, answer: Any, seconds: float) -> Any:
        return answer

    def has(self, answer: Any) -> bool:
        return True

    def sharing(self, player: Player) -> int:
        return 1

    def together(self, one: Player, other: Player) -> bool:
        return one is other

    def prepare(self, order: Order) -> None: ...

    def better(self, player: Player, order: Order) -> Any:
        return None

    def room(self) -> int:
        return 1

    def grow(self, players: int, order: Order) -> bool:
        return True

    def again(self, players: Sequence[Player], orders: Sequence[Order]) -> list[Any]:
        for player in players:
            player.close()
        return [Player(order) for order in orders]

    def leave(self, player: Player) -> None:
        player.close()

    def end(self, player: Player) -> None:
        player.close()

    def close(self) -> None: ...


class Settling:
    """Passes everything on to hosts, and can wait until the players have played all that they were permitted."""

    def __init__(self, hosts: Any) -> None:
        self._hosts = hosts
        self._last: dict[int, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hosts, name)

    def play(self, player: Any, permit: Permit, weights: Any) -> Any:
        answer = self._last[id(player)] = self._hosts.play(player, permit, weights)
        return answer

    def settle(self) -> None:
        while not all(self._hosts.has(answer) for answer in self._last.values()):
            time.sleep(0.01)


class Used:
    """CPU seconds of this process and of those that it started."""

    def __init__(self, players: Callable[[], Iterable[int]], others: Callable[[], Iterable[int]] = tuple) -> None:
        self._players, self._others = players, others

    def read(self) -> dict[str, float]:
        """Of the learner, of the players' processes, and of Ray's own, but not of `others`."""
        playing, others = set(self._players()), set(self._others())
        out = {"learner": time.process_time(), "players": 0.0, "ray": 0.0}
        for p in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if p.pid not in others:
                    t = p.cpu_times()
                    out["players" if p.pid in playing else "ray"] += t.user + t.system
        return out

    def over(self, work: Callable[[], Any], settle: Callable[[], Any] = lambda: None) -> dict[str, float]:
        """Of what `work` takes; the others' processes may need longer until all is settled."""
        before, began = self.read(), time.monotonic()
        work()
        learner = time.process_time()
        settle()
        wall, after = time.monotonic() - began, self.read() | {"learner": learner}
        return {k: after[k] - before[k] for k in after} | {"wall": wall}


def idle_cpus(read: Callable[[], dict[str, float]]) -> dict[str, float]:
    """What is used while nothing is asked of anybody, in cores; `read` gives the CPU seconds so far."""
    before, began = read(), time.monotonic()
    time.sleep(IDLE_S)
    after, took = read(), time.monotonic() - began
    return {k: (after[k] - before[k]) / took for k in after}


def config_of(game: str, recipe: str, chunk: int, players: int, envs_each: int, slack_chunks: int = 1) -> Config:
    """A game as a recipe plays it on a CPU, with a small replay that fills at once. Chunk 0: the recipe's own."""
    changes = {"runner": "cluster", "players": players, "n_envs": players * envs_each, "device": "cpu"}
    changes |= {"chunk_vector_steps": chunk} if chunk else {}
    config = planned(Wish(game, recipe, changes=changes)).config
    slack = slack_chunks * config.n_envs * config.chunk_vector_steps
    return config.replace(
        slack_steps=slack, torch_threads=1, env_threads=1, first_fill_steps=500, replay_capacity=10_000,
        epsilon_decay_steps=500, max_steps=0,
    )  # fmt: skip


def go_on(it: Any, config: Config, vector_steps: int) -> int:
    """So many vector steps, rounded up to whole chunks; the steps made."""
    chunks = -(-vector_steps // config.chunk_vector_steps)
    steps: list[Tick] = list(itertools.islice(it, chunks * config.chunk_vector_steps))
    return len(steps) * config.n_envs


HERE, PLAIN, RAY = "in the learner's process", "in processes of their own", "on Ray"


class Contender:
    """A learner with its players, and what it has used."""

    def __init__(
        self, config: Config, hosts: Any, used: Used, parts: Sequence[str],
        of_ray: Callable[[], dict[str, float]] = dict,
    ) -> None:  # fmt: skip
        self.hosts, self.used, self.config = Settling(hosts), used, config
        self.crew = Crew(config, cast(Hosts, self.hosts))
        self.agent = make_agent(config, self.crew)
        self._loop = ticks(self.agent, self.crew)
        self.steps, self.wall_s, self.rates = 0, 0.0, list[float]()
        self.spent = dict.fromkeys(parts, 0.0)
        self.idle = self.spent
        self.read_ray = of_ray  # CPU seconds of Ray so far, in pieces
        self.of_ray = dict.fromkeys(of_ray(), 0.0)  # those of the turns

    def warm(self) -> None:
        while self.agent.clock.updates < 5:
            go_on(self._loop, self.config, 1)
        self.hosts.settle()

    def turn(self, vector_steps: int) -> None:
        made, before = list[int](), self.read_ray()
        whole = self.used.over(lambda: made.append(go_on(self._loop, self.config, vector_steps)), self.hosts.settle)
        after = self.read_ray()
        self.of_ray = {k: v + after[k] - before[k] for k, v in self.of_ray.items()}
        cost = {k: max(0.0, whole[k] - idle * whole["wall"]) for k, idle in self.idle.items() if k in self.spent}
        self.rates.append(made[0] / sum(cost.values()))
        self.spent = {k: v + cost[k] for k, v in self.spent.items()}
        self.steps, self.wall_s = self.steps + made[0], self.wall_s + whole["wall"]

    @property
    def s_per_step(self) -> dict[str, float]:
        return {k: v / self.steps for k, v in self.spent.items()}


def compared(config: Config, recipe: str, rounds: int, vector_steps: int) -> dict[str, Any]:
    """Steps per CPU second of the three, in turns."""
    plain, ray = PipedHosts(), TimedHosts(connect(LOCAL), 1.0 / config.players)
    of_ray = Used(ray.processes, plain.processes)
    contenders = {
        HERE: Contender(config, HereHosts(), Used(tuple), ["learner"]),
        PLAIN: Contender(config, plain, Used(plain.processes), ["learner", "players"]),
        RAY: Contender(
            config, ray, of_ray, ["learner", "players", "ray"],
            lambda: {**ray.read(), "processes": of_ray.read()["ray"]},
        ),
    }  # fmt: skip
    for contender in contenders.values():
        contender.warm()
    there = contenders[RAY]
    _wait_for_the_spare(ray, there.crew)
    _wait_for_rest(of_ray)
    idle_pieces = idle_cpus(there.read_ray)
    there.idle = idle_cpus(there.used.read)
    for contender in (contenders[HERE], contenders[PLAIN]):
        contender.idle = {"learner": there.idle["learner"], "players": 0.0}
    names = list(contenders)
    for r in range(rounds):
        for name in names[r % 3 :] + names[: r % 3]:
            contenders[name].turn(vector_steps)
    for contender in contenders.values():
        contender.agent.close()
    s, spec = {name: c.s_per_step for name, c in contenders.items()}, contenders[HERE].crew.spec
    whole = {name: sum(parts.values()) for name, parts in s.items()}
    rates = {name: c.rates for name, c in contenders.items()}
    pieces = {k: v / there.steps for k, v in there.of_ray.items()}
    idle_s = sum(idle_pieces.values()) * there.wall_s / there.steps
    return {
        "game": config.env_id, "recipe": recipe, "chunk_vector_steps": config.chunk_vector_steps,
        "players": config.players, "slack_chunks": config.slack_steps // (config.n_envs * config.chunk_vector_steps),
        "envs_each": config.n_envs // config.players, "steps": there.steps, "step_bytes": frame_bytes(spec),
        "weight_bytes": 4 * sum(p.numel() for p in there.agent.learner.online.parameters()),
        "lost_to_ray": 1 - whole[PLAIN] / whole[RAY], "lost_to_processes": 1 - whole[HERE] / whole[PLAIN],
        "load": os.getloadavg()[0], "cpu_s_per_step": s[RAY] | {"without": whole[HERE]},
        "plain_cpu_s_per_step": s[PLAIN], "of_ray": pieces, "of_ray_idle_cpus": idle_pieces,
        "share_of_ray": sum(pieces.values()) / (whole[RAY] + idle_s),
        "share_of_ray_not_idle": (sum(pieces.values()) - idle_s) / whole[RAY],
        "rates": rates, "idle_cpus": there.idle, "wall_s": {name: c.wall_s for name, c in contenders.items()},
        "table": compare(rates, PLAIN),
    }  # fmt: skip


def frame_bytes(spec: Any) -> int:
    """What travels for a step: a frame, and some numbers."""
    return spec.newest(np.zeros((1, *spec.obs_shape), spec.obs_dtype)).nbytes + NUMBERS_BYTES


def _wait_for_the_spare(hosts: RayHosts, crew: Crew) -> None:
    end = time.monotonic() + 120
    while time.monotonic() < end and all(hosts.processes().values()):
        hosts.prepare(crew.orders[0])
        time.sleep(0.2)


def _wait_for_rest(used: Used) -> None:
    end = time.monotonic() + LONGEST_REST_S
    while time.monotonic() < end and used.over(lambda: time.sleep(REST_S))["ray"] > REST_CPUS * REST_S:
        pass


class Echo:
    """An actor that answers with as many bytes as it is asked for."""

    def answer(self, n: int) -> np.ndarray:
        return np.zeros(n, np.uint8)

    def take(self, *arrays: np.ndarray) -> int:
        return sum(int(a.nbytes) for a in arrays)

    def pid(self) -> int:
        import os

        return os.getpid()


def messages(calls: int) -> dict[str, Any]:
    """CPU seconds of a call and its answer, by the answer's size, and of weights that are handed over."""
    with connect(LOCAL) as cluster:
        ray = cluster.ray
        actor = ray.remote(num_cpus=0)(Echo).remote()
        pid = ray.get(actor.pid.remote())
        used = Used(lambda: [pid])
        time.sleep(2)
        rate = idle_cpus(used.read)

        def costs(work: Callable[[], Any]) -> dict[str, float]:
            work()
            whole = used.over(lambda: [work() for _ in range(calls)])
            cost = {k: max(0.0, whole[k] - rate[k] * whole["wall"]) / calls for k in rate}
            return {"learner": cost["learner"], "player": cost["players"], "ray": cost["ray"]}

        rows = [{"bytes": n, **costs(lambda n=n: ray.get(actor.answer.remote(n)))} for n in SIZES]
        out: dict[str, Any] = {"answers": rows}
        for n in (100_000, 7_000_000):

            def hand_over(n: int = n) -> None:
                ray.get(actor.take.remote(ray.put(np.zeros(n, np.uint8))))

            out.setdefault("weights", []).append({"bytes": n, **costs(hand_over)})
    return out


def fit(rows: Sequence[dict[str, Any]], who: str) -> dict[str, float]:
    """Seconds per call and per byte: least squares, both at least 0."""
    x, y = np.array([r["bytes"] for r in rows], float), np.array([r[who] for r in rows])
    slope = max(0.0, float(np.polyfit(x, y, 1)[0]))
    return {"per_call_s": max(0.0, float(np.median(y - slope * x))), "per_byte_s": slope}


def title_of(run: Mapping[str, Any]) -> str:
    players = f"{run['players']} player{'s' * (run['players'] > 1)}"
    return f"{run['game']}, {run['recipe']}, {players}, chunks of {run['chunk_vector_steps']}"


def main() -> int:
    p = argparse.ArgumentParser("cost", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--vector-steps", type=int, default=256, help="of each turn, rounded up to whole chunks")
    p.add_argument("--calls", type=int, default=100, help="of each size of a message")
    p.add_argument(
        "--runs",
        nargs="+",
        default=["pong:auto:1:0", "pong:auto:2:0", "pong:auto:4:0", "breakout:auto:2:0"],
        metavar="GAME:RECIPE:PLAYERS:CHUNK",
        help="what is compared; chunk 0: the one that the recipe chooses",
    )
    p.add_argument("--envs-each", type=int, default=8)
    p.add_argument(
        "--slack-chunks", type=int, default=1,
        help="0: players and learner take turns, so that they do not take caches and memory from each other",
    )  # fmt: skip
    p.add_argument("--out", type=pathlib.Path, required=True)
    args = p.parse_args()
    found = messages(args.calls)
    fits = {f"{kind}_{who}": fit(found[kind], who) for kind in found for who in ("learner", "player", "ray")}
    runs = []
    for words in args.runs:
        game, recipe, players, chunk = words.split(":")
        config = config_of(game, recipe, int(chunk), int(players), args.envs_each, args.slack_chunks)
        runs.append(compared(config, recipe, args.rounds, args.vector_steps))
        r = runs[-1]
        own = f"{r['share_of_ray_not_idle']:.1%} of a step is Ray's own ({r['share_of_ray']:.1%} with what it idles)"
        lost = f"{r['lost_to_processes']:.1%} of whole runs is lost to processes, {r['lost_to_ray']:.1%} to Ray"
        print(f"{words}: chunks of {r['chunk_vector_steps']}, {own}; {lost}", flush=True)
    table = {f"{name}, {title_of(r)}": row for r in runs for name, row in r["table"].items()}
    protocol = str(__doc__).split("\n\n", 1)[1].strip().replace("\n", " ")
    result = header("cluster", "pong", unit="steps per CPU second", protocol=protocol, rounds=args.rounds, table=table)
    words = {"command": shlex.join(["python", "-m", "dqnitro.lab.cluster.cost", *sys.argv[1:]])}
    save(args.out, result | words | {"runs": runs, "messages": found, "fits": fits})
    for name, row in table.items():
        print(f"{name:<45} {row['rate']:8.1f} steps/CPU s   {row['ratio']:.3f}x [{row['low']:.3f}, {row['high']:.3f}]")
    for name, f in fits.items():
        print(f"{name:<20} {f['per_call_s'] * 1e3:.3f} ms a call, {f['per_byte_s'] * 1e9:.3f} ns a byte")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Many games under one protocol, in numbers that can be compared: `dqnitro atari`.

STATE/atari.json    recipe, protocol and settings: a folder belongs to one set of them
STATE/GAME/         the seeds of a game, like those of `train --seeds` (`seeds/folder.py`)

The same command goes on where it stopped: finished runs are not repeated, others are resumed; more minutes, seeds or
games may be asked for later.
"""

from __future__ import annotations

import json
import math
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dqnitro import protocol, published
from dqnitro.common import aggregates
from dqnitro.common.files import write_json
from dqnitro.common.intervals import Interval, mean_interval
from dqnitro.config import Config, nearest
from dqnitro.envs import possible_scores
from dqnitro.errors import ConfigError
from dqnitro.lab.points import score_points
from dqnitro.lab.store import header, kept
from dqnitro.planning import Wish, planned
from dqnitro.scoring import EPSILON
from dqnitro.seeds.allocation import Share, find_room, share
from dqnitro.seeds.folder import SeedsFolder, is_seeds
from dqnitro.seeds.summary import seed_facts
from dqnitro.store.evaluations import best_of, read_all

FILE = "atari.json"
# The 26 games that are usual for agents that learn from little (Kaiser et al. 2020).
ATARI26 = (
    "alien", "amidar", "assault", "asterix", "bank_heist", "battle_zone", "boxing", "breakout", "chopper_command",
    "crazy_climber", "demon_attack", "freeway", "frostbite", "gopher", "hero", "jamesbond", "kangaroo", "krull",
    "kung_fu_master", "ms_pacman", "pong", "private_eye", "qbert", "road_runner", "seaquest", "up_n_down",
)  # fmt: skip
SETS: dict[str, tuple[str, ...]] = {
    "atari5": tuple(aggregates.ATARI5), "atari26": ATARI26, "atari57": tuple(published.games()),
}  # fmt: skip
# Published agents in tables and charts; those with curves are compared at as many frames, wherever a run ends.
BESIDE = ("DQN", "Rainbow", "IQN Impala")
IN_ALL = (
    "DQN", "DQN (Adam, MSE)", "Rainbow", "IQN", "DQN Impala", "Rainbow Impala", "IQN Impala",
    "Cleanba IMPALA, 1 A100, 10 CPU", "Cleanba PPO (Sync), 1 A100, 10 CPU",
)  # fmt: skip


def games_named(text: str) -> list[str]:
    """The games of a list such as `pong,atari5`, each once, in order."""
    from dqnitro.envs.names import atari_game, atari_games

    out: list[str] = []
    for word in (w.strip() for w in text.split(",") if w.strip()):
        game = atari_game(word)
        if word not in SETS and game is None:
            raise ConfigError(f"unknown game {word!r}", nearest(word, [*SETS, *atari_games()], "sets and games"))
        out += SETS.get(word) or [game or word]
    if not out:
        raise ConfigError("no game was given", "`dqnitro atari atari5`, or games separated by commas")
    return list(dict.fromkeys(out))


@dataclass(frozen=True)
class Asked:
    """What a command asks for."""

    games: Sequence[str]
    seeds: Sequence[int] = (1,)
    minutes: float = 10.0  # of training, for each run
    recipe: str = "auto"
    protocol: str = "machado"
    without: Sequence[str] = ()
    also: Sequence[str] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)
    fresh_games: int = 100
    fresh_envs: str = "ale"  # what plays them: ale-py's own emulator, whatever trained the agent

    def plan(self, game: str) -> tuple[Config, tuple[str, ...]]:
        """The config of a game, without a score that would end the run early, and its rungs."""
        rules = protocol.settings(self.protocol)
        if wrong := sorted(set(rules) & set(self.changes)):
            raise ConfigError(f"{', '.join(wrong)}: the protocol {self.protocol} decides", "choose another --protocol")
        limits = {"max_minutes": self.minutes, "stop_at_score": math.inf}
        made = planned(Wish(game, self.recipe, self.without, self.also, {**rules, **self.changes, **limits}))
        return made.config, made.rungs

    def kept(self) -> dict[str, Any]:
        """What must stay the same in a folder."""
        return {
            "recipe": self.recipe, "protocol": self.protocol, "without": list(self.without), "also": list(self.also),
            "changes": dict(self.changes),
        }  # fmt: skip


class Job(NamedTuple):
    """One run."""

    game: str
    seed: int
    folder: SeedsFolder

    @property
    def run_dir(self) -> pathlib.Path:
        return self.folder.run_dir(self.seed)

    @property
    def files(self) -> tuple[pathlib.Path, pathlib.Path]:
        """All that its process writes."""
        return self.run_dir, self.folder.log(self.seed)


Sharing = Callable[[Config, int, int], Share]


def on_this_machine(config: Config, n_runs: int, at_once: int) -> Share:
    return share(config, n_runs, find_room(config), at_once)


def open_folder(
    path: pathlib.Path, asked: Asked, at_once: int = 0, sharing: Sharing = on_this_machine
) -> tuple[dict[str, SeedsFolder], Share]:
    """The seeds' folder of every game, made or read, and how the place is shared among the runs."""
    _check(path, asked)
    plans = {game: asked.plan(game) for game in asked.games}
    first = next(iter(plans.values()))[0]
    mine = sharing(first, len(plans) * len(asked.seeds), at_once)
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / FILE, asked.kept())
    threads = {"torch_threads": mine.torch_threads, "env_threads": mine.env_threads}
    out = {}
    for game, (config, rungs) in plans.items():
        folder = path / game
        if is_seeds(folder):
            read = SeedsFolder.read(folder)
            seeds = tuple(sorted({*read.seeds, *asked.seeds}))
            out[game] = read.changed({"max_minutes": asked.minutes}, mine.at_once).with_seeds(seeds)
        else:
            config = config.replace(**{k: getattr(config, k) or v for k, v in threads.items()})
            out[game] = SeedsFolder.create(
                folder, config.replace(seed=asked.seeds[0]), asked.seeds, asked.recipe, rungs, mine.at_once
            )
    return out, mine


def _check(path: pathlib.Path, asked: Asked) -> None:
    before = kept(path / FILE)
    if before is not None and before != json.loads(json.dumps(asked.kept())):
        raise ConfigError(f"{path} was begun with other options ({json.dumps(before)[:200]})", "give another --state")


def jobs_of(folders: Mapping[str, SeedsFolder], seeds: Sequence[int], fresh_games: int) -> list[Job]:
    """The runs that are not done: the first seed of every game, then the second, ... An early end leaves something for
    each game.
    """
    every = [Job(game, seed, folder) for seed in seeds for game, folder in folders.items()]
    return [j for j in every if not is_done(j, fresh_games)]


def is_done(job: Job, fresh_games: int) -> bool:
    """Trained to its end, and its fresh games played."""
    played = job.folder.summary(job.seed).get("evaluation")
    return job.folder.is_done(job.seed) and (not fresh_games or bool(played))


# ---- what came out


class Run(NamedTuple):
    """A run in numbers."""

    game: str
    facts: dict[str, Any]
    frames: int
    training: float | None  # mean score of the last 100 training games
    fresh: dict[str, Any] | None  # scores of fresh games
    best: dict[str, Any] | None = None  # of the evaluations during training

    @property
    def score(self) -> float | None:
        return self.training if self.fresh is None else float(self.fresh["mean"])


def read_run(folder: SeedsFolder, game: str, seed: int, code: int | None = None, why: str = "") -> Run:
    facts = seed_facts(folder, seed, code, why)
    frames = int(facts["steps"] or 0) * folder.config.frame_skip
    best = best_of(read_all(folder.run_dir(seed)))
    return Run(game, facts, frames, facts["mean_score"], facts["evaluation"], best.facts() if best else None)


def row_of(game: str, runs: Sequence[Run]) -> dict[str, Any]:
    """A game: scores with intervals, human-normalised, its frames, and published scores beside them."""
    frames = [r.frames for r in runs if r.frames]
    seconds = [r.facts["wall_s"] for r in runs if r.facts["wall_s"]]
    millions = sum(frames) / len(frames) / 1e6 if frames else 0.0
    fresh, training = _fresh(game, runs), _over_seeds(game, (r.training for r in runs))
    score = fresh or training
    return {
        "game": game,
        "runs": [
            {
                "seed": r.facts["seed"], "state": r.facts["state"], "why": r.facts["why"], "frames": r.frames,
                "steps": r.facts["steps"], "wall_s": r.facts["wall_s"], "training": r.training, "fresh": r.fresh,
                "run_dir": r.facts["run_dir"], "best": r.best,
            }
            for r in runs
        ],
        "training": training, "fresh": fresh,
        "human_normalized": None if score is None else published.human_normalized(game, score.mean),
        "frames": sum(frames) / len(frames) if frames else None,
        "minutes": sum(seconds) / len(seconds) / 60 if seconds else None,
        "frames_per_s": sum(frames) / sum(seconds) if frames and seconds else None,
        "published": {name: _beside(name, game, millions) for name in IN_ALL},
    }  # fmt: skip


def _over_seeds(game: str, values: Iterable[float | None]) -> Interval | None:
    known = [v for v in values if v is not None]
    return mean_interval(known, within=possible_scores(game)) if known else None


def _fresh(game: str, runs: Sequence[Run]) -> Interval | None:
    """Over seeds; of a single one over its games."""
    played = [r.fresh for r in runs if r.fresh]
    if len(played) == 1:
        e = played[0]
        return Interval(e["mean"], e["low"], e["high"], len(e["scores"]))
    return _over_seeds(game, (e["mean"] for e in played))


def _beside(name: str, game: str, millions: float) -> dict[str, float | None]:
    agent = published.agents()[name]
    same = agent.on_curve(millions, game) if agent.curves else agent.at(millions, game)
    return {"at": same, "end": agent.last(game), "minutes": agent.minutes.get(game)}


def in_all(scores: Mapping[str, Sequence[float]], over_games: bool = True) -> dict[str, Any] | None:
    """The aggregates of human-normalised scores by game; `over_games`: with the interval that resamples games, too."""
    per_game = {game: values for game, values in scores.items() if values}
    if not per_game:
        return None
    lists = list(per_game.values())
    several = any(len(v) > 1 for v in lists)

    def spread(statistic: aggregates.Statistic) -> dict[str, Any]:
        return {
            "value": statistic(lists),
            "seeds": aggregates.bootstrap(lists, statistic) if several else None,
            "games": aggregates.bootstrap(lists, statistic, games=True) if over_games and len(lists) > 1 else None,
        }

    return {
        "n": len(lists), "median": spread(aggregates.median), "iqm": spread(aggregates.iqm),
        "mean": aggregates.mean(lists), "above_human": aggregates.above_human(lists),
        "atari5": aggregates.atari5({g: sum(v) / len(v) for g, v in per_game.items()}),
    }  # fmt: skip


def normalized(runs: Iterable[Run], which: str) -> dict[str, list[float]]:
    """Human-normalised scores by game, of `fresh` or `training` games."""
    out: dict[str, list[float]] = {}
    for r in runs:
        score = r.training if which == "training" else r.fresh["mean"] if r.fresh else None
        value = None if score is None else published.human_normalized(r.game, float(score))
        if value is not None:
            out.setdefault(r.game, []).append(value)
    return out


def published_in_all(games: Sequence[str], millions: float, rules: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The same aggregates of published agents over the same games, at the nearest published frames and at their end."""
    out = []
    for name in IN_ALL:
        agent = published.agents()[name]
        near = min(agent.scores, key=lambda m: abs(m - millions))
        points = [near] if near == max(agent.scores) else [near, max(agent.scores)]
        for point in points:
            found = {
                g: [x for s in agent.scores[point][g] if (x := published.human_normalized(g, s)) is not None]
                for g in games
                if g in agent.scores[point]
            }
            minutes = [agent.minutes[g] for g in found if g in agent.minutes]
            out.append({
                "agent": name, "family": agent.family, "millions": point, "in_all": in_all(found, over_games=False),
                "minutes": sum(minutes) / len(minutes) if minutes else None, "source": agent.source,
                "protocol": agent.protocol,
                "differences": published.differences(dict(rules), agent.protocol),
            })  # fmt: skip
    return out


def make_result(
    path: pathlib.Path, asked: Asked, folders: Mapping[str, SeedsFolder], mine: Share,
    ended: Mapping[tuple[str, int], tuple[int | None, str]], interrupted: str | None,
) -> dict[str, Any]:  # fmt: skip
    """What is known so far, in the format of lab/store.py. `ended`: exit codes and last words of processes."""
    runs = {
        game: [read_run(folder, game, seed, *ended.get((game, seed), (None, ""))) for seed in asked.seeds]
        for game, folder in folders.items()
    }
    rows = [row_of(game, mine_) for game, mine_ in runs.items()]
    every = [r for game in runs.values() for r in game]
    frames = [r.frames for r in every if r.frames]
    millions = sum(frames) / len(frames) / 1e6 if frames else 0.0
    config = next(iter(folders.values())).config
    rules = {
        which: protocol.of(config, f"{which} games", n, epsilon, backend).to_dict()
        for which, n, epsilon, backend in (
            ("fresh", asked.fresh_games, EPSILON, asked.fresh_envs), ("training", 100, config.epsilon_end, config.envs),
        )
    }  # fmt: skip
    name = next((name for name, games in SETS.items() if list(games) == list(asked.games)), ",".join(asked.games))
    head = header(
        "atari", name if len(asked.games) > 1 else asked.games[0], minutes=asked.minutes, seeds=list(asked.seeds),
        recipe=asked.recipe, games=list(asked.games), state=str(path), at_once=mine.at_once,
        torch_threads=mine.torch_threads, env_threads=mine.env_threads, protocol=rules["fresh"],
    )  # fmt: skip
    return head | {
        "protocols": rules, "rows": rows,
        "in_all": {which: in_all(normalized(every, which)) for which in ("fresh", "training")},
        "published": published_in_all(asked.games, millions, rules["fresh"]),
        "reference": published.reference_source(),
        "curves": _curves(folders, asked.seeds), "published_curves": _published_curves(asked.games),
        "done": sum(is_done(Job(g, s, f), asked.fresh_games) for g, f in folders.items() for s in asked.seeds),
        "of": len(every), "interrupted": interrupted,
    }  # fmt: skip


def _curves(folders: Mapping[str, SeedsFolder], seeds: Sequence[int]) -> list[dict[str, Any]]:
    out = []
    for game, folder in folders.items():
        for seed in seeds:
            points = [p | {"frames": p["steps"] * folder.config.frame_skip} for p in score_points(folder.run_dir(seed))]
            if points:
                out.append({"game": game, "seed": seed, "points": points})
    return out


def _published_curves(games: Sequence[str]) -> dict[str, dict[str, list[list[float]]]]:
    """By game and agent: frames and scores."""
    out: dict[str, dict[str, list[list[float]]]] = {}
    for game in games:
        for name in BESIDE:
            agent = published.agents()[name]
            if values := agent.curves.get(game):
                frames = [1e6 * m for m in agent.curve_millions[: len(values)]]
                out.setdefault(game, {})[name] = [frames, list(values)]
    return out


def default_state(asked: Asked, name: str) -> pathlib.Path:
    """atari/atari5-auto-machado"""
    return pathlib.Path("atari") / f"{name}-{asked.recipe}-{asked.protocol}"

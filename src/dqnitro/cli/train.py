"""`dqnitro train`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

from dqnitro.cli.replicas import ranks_of
from dqnitro.cli.terminal.flags import Parser, add_config_flags, amount, config_changes, count, note
from dqnitro.cli.terminal.live import json_line, make_sinks, speed_text
from dqnitro.cli.terminal.training import afterwards, check_resume, planned, truncated_text, write_page
from dqnitro.cli.terminal.wall_clock import Compiling, WallClock, clock_text
from dqnitro.cli.terminal.wording import duration, evaluation_text, fresh_text, mean_of_text
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.report.formatting import plural
from dqnitro.seeds.folder import MOST_SEEDS, is_seeds
from dqnitro.storage.by_url import is_url, plain_path

DESCRIPTION = """\
Train an agent until it is solved, a limit is reached, or Ctrl-C (which saves first).

Examples
  dqnitro train pong                                   the fastest recipe for this machine
  dqnitro train pong --recipe baseline --seed 3        the textbook DQN
  dqnitro train breakout --minutes 30 --n-envs 16      limits and settings
  dqnitro train pong --without bfloat16 --json         leave out one rung; the result as JSON
  dqnitro train CartPole-v1 --steps 50_000             any Gymnasium id with discrete actions
  dqnitro train my_package:MyEnv-v0 --stop-at 200      your own environment
  dqnitro train --resume runs/pong-auto-s1-...         continue from the last checkpoint; of --seeds, too
  dqnitro train pong --seeds 8                         seeds 1 to 8: medians, ranges, intervals
  nohup dqnitro train pong > pong.log 2>&1 &           without a terminal: one line a minute
  dqnitro train pong --json-lines --log-every 5 | ...  for machines: a JSON object every 5 s
  dqnitro train pong --gpus 8                          one learner on 8 GPUs (several machines: torchrun)
  dqnitro train pong --seeds 32 --on auto              the seeds over the Ray cluster of this machine
  dqnitro train pong --runner cluster --players 2..8 --on auto   one run, played on all nodes

Exit codes: 0 done, 2 bad input, 3 loss diverged, 4 the player process died, 5 your code failed, 6 a rank was lost,
7 ranks differ, 129 SIGHUP, 130 Ctrl-C, 143 SIGTERM. All but 2, 6 and 7 save first; after these, and where a network,
loss, optimiser or replay of your own failed, the last checkpoint stays. A failed seed does not stop the others.
"""


def make_parser() -> Parser:
    p = Parser("train", "GAME|ENV_ID [options]", DESCRIPTION)
    p.add_argument("game", nargs="?", help="Atari game or Gymnasium id")
    p.add_argument("--recipe", help="auto, fast, baseline, classic, strong (default: auto)")
    p.add_argument("--without", action="append", default=[], metavar="RUNG", help="leave a rung of the recipe out")
    p.add_argument("--also", action="append", default=[], metavar="RUNG", help="add a rung to the recipe")
    p.add_argument("--resume", metavar="RUN", help="continue a stored run")
    p.add_argument("--trust", action="store_true", help="with --resume: import the run's own modules")
    p.add_argument(
        "--run-dir", metavar="DIR",
        help="where the run is stored (default: runs/GAME-RECIPE-...); with --seeds also a URL: s3://...",
    )  # fmt: skip
    p.add_argument(
        "--seeds",
        type=count(1, MOST_SEEDS),
        metavar="N",
        help="train N seeds, counted from --seed, each in its own process",
    )
    p.add_argument(
        "--at-once",
        type=count(),
        metavar="N",
        help="with --seeds: how many run in parallel (default: as many as fit)",
    )
    p.add_argument(
        "--on",
        metavar="CLUSTER",
        help="with --seeds or --runner cluster: the Ray cluster: ray (started on this machine), "
        "auto, or ray://HOST:PORT",
    )
    p.add_argument(
        "--players-log", metavar="RUN",
        help="with --runner cluster: change the number of players at the same chunks as RUN",
    )  # fmt: skip
    p.add_argument(
        "--restarts",
        type=count(0, 1000),
        metavar="N",
        help="with --gpus: go on up to N times when a rank is lost (default: 0)",
    )
    p.add_argument("--no-video", action="store_true", help="do not record a video of a game at the end")
    p.add_argument(
        "--eval-games",
        type=count(0),
        default=30,
        metavar="N",
        help="once solved, score the agent over N fresh games (default: 30)",
    )
    p.add_argument(
        "--log-every", type=amount(0.001), metavar="S",
        help="seconds between lines of progress where there is no terminal, and with --json-lines (default: 60)",
    )  # fmt: skip
    p.add_argument("--quiet", action="store_true", help="show no progress, only the result")
    p.add_argument("--json", action="store_true", help="print the result as JSON")
    p.add_argument(
        "--json-lines", action="store_true", help="print start, progress and result as JSON, one object a line"
    )
    add_config_flags(p)
    return p


def main(argv: list[str]) -> int:
    args = make_parser().parse(argv)
    if args.json and args.json_lines:
        raise ConfigError("--json and --json-lines were both given", "--json-lines ends with the result, too")
    args.run_dir, args.resume = (text and plain_path(text) for text in (args.run_dir, args.resume))
    if args.resume:
        check_resume(args)
    if args.players_log is not None:
        if args.player_changes:
            raise ConfigError("--players-log and --player-changes say the same thing", "leave one of them out")
        args.player_changes = recorded_changes(pathlib.Path(args.players_log))
    args.recipe = args.recipe or "auto"
    if (code := _as_ranks(args, argv)) is not None:
        return code
    if args.seeds is not None or (args.resume and (is_url(args.resume) or is_seeds(pathlib.Path(args.resume)))):
        from dqnitro.cli.seeds import train_seeds

        return train_seeds(args)
    if args.run_dir and is_url(args.run_dir):
        raise ConfigError(
            f"--run-dir {args.run_dir}: only runs of --seeds are stored at a URL", "`--seeds 1` is one run"
        )
    if args.on is not None:
        from dqnitro.cluster.connect import ADDRESS, check_address

        os.environ[ADDRESS] = check_address(args.on)
    if args.at_once is not None:
        raise ConfigError("--at-once needs --seeds", "`dqnitro train pong --seeds 8 --at-once 2`")
    clock, compiling = WallClock(), Compiling()
    result = _resume(args, clock, compiling) if args.resume else _start(args, clock, compiling)
    clock.mark("saving")
    clock.split(
        "saving", {"start-up": result.startup_s, "first fill": result.fill_s, "training": result.loop_s - result.fill_s}
    )
    try:
        facts, page = _after(result, args, clock, compiling)
    except KeyboardInterrupt:
        note(f"interrupted after the training, which is saved; hint: `dqnitro play {result.run_dir} --games 30`")
        return 130
    if args.json_lines:
        print(json_line("result", **facts, page=page), flush=True)
    elif args.json:
        json.dump(facts | {"page": page}, sys.stdout, indent=1)
        print()
    else:
        print(_summary(facts, page))
    return result.exit_code


def recorded_changes(path: pathlib.Path) -> str:
    """The setting `player_changes` with which a run has its players when this one had them."""
    from dqnitro.store.read_run import player_changes

    changes = player_changes(path / "metrics.jsonl" if path.is_dir() else path)
    if not changes or changes[0][0] != 0:
        raise ConfigError(
            f"--players-log {path}: no record of players from the beginning of a run on",
            "it is the folder of a run with --runner cluster, or its metrics.jsonl",
        )
    return ",".join(f"{chunk}:{players}" for chunk, players in changes)


def _as_ranks(args: argparse.Namespace, argv: list[str]) -> int | None:
    """What this process does where there are several ranks; None: it trains, alone or as rank 0."""
    from dqnitro.cli.replicas import follow_rank_0, launch, ranks_wanted
    from dqnitro.distributed.world import checked_size, place

    here, wanted = place(), ranks_wanted(args)
    if args.seeds is not None and wanted > 1:
        raise ConfigError("--gpus is for one run, --seeds for several", "leave one of them out")
    if here is None:
        if args.restarts and wanted == 1:
            raise ConfigError("--restarts needs --gpus", "`dqnitro train pong --gpus 8 --restarts 3`")
        return launch(args, argv, wanted) if wanted > 1 else None
    args.gpus = checked_size(args.gpus, here)
    if here.restarts and not args.resume and args.run_dir and _has_checkpoint(args.run_dir):
        args.game, args.resume, args.run_dir, args.recipe = None, args.run_dir, None, None
        args.trust = True  # what this command began it may go on with
        for name in set(config_changes(args)) - {*LIMITS_ON_RESUME}:
            setattr(args, name, None)
    return follow_rank_0(args, here) if here.rank else None


LIMITS_ON_RESUME = ("gpus", "max_steps", "max_minutes", "stop_at_score", "checkpoint_every_s", "log_every_s")


def _has_checkpoint(run_dir: str) -> bool:
    from dqnitro.store.checkpoint import complete

    return bool(complete(pathlib.Path(run_dir) / "checkpoints"))


def _after(
    result: Any, args: argparse.Namespace, clock: WallClock, compiling: Compiling
) -> tuple[dict[str, Any], str | None]:
    """What follows training, its page included; then the wall clock is added to summary.json."""
    from dqnitro.store.run_folder import RunFolder

    facts = result.to_dict()
    if result.exit_code == 0:
        facts |= afterwards(result, args.eval_games, not args.no_video, args.quiet, mark=clock.mark)
    page = write_page(result.run_dir)
    clock.mark("page")
    facts["clock"] = {"seconds": clock.seconds, "compiling_s": compiling.seconds}
    RunFolder(result.run_dir).add_to_summary({"clock": facts["clock"]})
    return facts, page


def _compile_early(args: argparse.Namespace) -> None:
    """On many cores, which will play: the first start on a machine compiles the console while torch is imported."""
    from dqnitro.common.host import usable_cores
    from dqnitro.envs.names import atari_game
    from dqnitro.recipes.settings import MANY_CORES

    console = args.envs == "console" or (args.envs is None and args.recipe != "baseline" and args.runner != "device")
    if not console or usable_cores() < MANY_CORES or not args.game or atari_game(args.game) is None:
        return
    from dqnitro.atari.jit import compile_early

    if compile_early.begin():
        note("compiling the console, once on this machine: about half a minute; the rest is prepared meanwhile")


def _start(args: argparse.Namespace, clock: WallClock, compiling: Compiling) -> Any:
    _compile_early(args)
    config, rungs = planned(args)
    _check_cluster(args, config)
    from dqnitro.learn.transforms import chosen
    from dqnitro.session import train
    from dqnitro.store.run_folder import new_run_dir

    run_dir = pathlib.Path(args.run_dir) if args.run_dir else new_run_dir(config, args.recipe, pathlib.Path("runs"))
    note(f"{config.env_id}, recipe {args.recipe}" + (f" ({', '.join(rungs)})" if rungs else "") + f" -> {run_dir}")
    for transform in chosen(config.wrappers):
        if transform.start_up:
            note(transform.start_up)
    if args.json_lines:
        head = {"env_id": config.env_id, "recipe": args.recipe, "rungs": rungs, "run_dir": run_dir}
        print(json_line("start", **head, config=config.to_dict()), flush=True)
    clock.mark("imports")
    with (
        ranks_of(config, run_dir),
        _shown(config, f"{config.env_id} · {args.recipe}", args, run_dir, compiling) as sinks,
    ):
        return train(config, run_dir, recipe=args.recipe, rungs=rungs, sinks=sinks)


@contextlib.contextmanager
def _shown(
    config: Config, title: str, args: argparse.Namespace, run_dir: pathlib.Path, compiling: Compiling
) -> Iterator[list[Any]]:
    """The sinks that show the run; closed here as well, since a run that cannot start does not close them."""
    from dqnitro.cli.terminal.estimate import estimate
    from dqnitro.events import close_all

    sinks = make_sinks(config, title, args, estimate(config, run_dir.parent))

    def say(text: str) -> None:
        for sink in sinks:
            sink.say(text)

    try:
        with compiling.watched(say):
            yield sinks
    finally:
        close_all(sinks)


def _resume(args: argparse.Namespace, clock: WallClock, compiling: Compiling) -> Any:
    from dqnitro.play import load_config
    from dqnitro.session import resume

    run_dir = pathlib.Path(args.resume)
    config = load_config(run_dir, args.trust)
    _check_cluster(args, config)
    note(f"{config.env_id}: resuming {run_dir}")
    changes = config_changes(args)
    if args.json_lines:
        print(json_line("start", env_id=config.env_id, run_dir=run_dir, resumed=True), flush=True)
    clock.mark("imports")
    config = config.replace(**changes)
    with (
        ranks_of(config, run_dir),
        _shown(config, f"{config.env_id} · resumed", args, run_dir, compiling) as sinks,
    ):
        return resume(run_dir, sinks=sinks, trust=args.trust, **changes)


def _check_cluster(args: argparse.Namespace, config: Config) -> None:
    if args.on is not None and config.runner != "cluster":
        raise ConfigError(
            f"--on {args.on} needs --seeds, or --runner cluster, which plays one run there",
            "`dqnitro train pong --seeds 8 --on auto`, `dqnitro train pong --runner cluster --players 4 --on auto`",
        )


ENDED = {
    "solved": "solved in",
    "steps": "stopped by --steps after",
    "minutes": "stopped by --minutes after",
    "callback": "stopped by a callback after",
    "SIGINT": "stopped by Ctrl-C after",
    "SIGTERM": "stopped by SIGTERM after",
    "SIGHUP": "stopped by SIGHUP after",
}


def _summary(f: dict[str, Any], page: str | None) -> str:
    rows = [f"{f['env_id']}: {ENDED[f['ended']]} {duration(f['wall_s'])} (plus {duration(f['startup_s'])} start-up)"]
    score = "no game finished" if f["mean_score"] is None else f"{f['mean_score']:.2f}, {mean_of_text(f['games'])}"
    rows.append(f"  score   {score}")
    if e := f.get("evaluation"):
        rows.append(f"  fresh   {fresh_text(e)}")
        if e.get("truncated"):
            rows.append(f"          {truncated_text(e['truncated'])}")
    told = f.get("evaluations") or {}
    rows += [f"  {name:<7} {evaluation_text(told[name])}" for name in ("best", "last") if name in told]
    rows.append(
        f"  speed   {speed_text(f['steps_per_s'], f['frames_per_s'])}   {f['samples_per_s']:,.0f} samples learned/s; "
        f"{plural(f['steps'], 'step')}, {plural(f['updates'], 'update')}"
    )
    shares = ", ".join(f"{k} {v:.1%}" for k, v in sorted(f["share"].items(), key=lambda kv: -kv[1]))
    rows.append(f"  time    {shares}")
    if clock := f.get("clock"):
        rows.append(f"  clock   {clock_text(clock['seconds'], clock['compiling_s'])}")
    rows.append(f"  memory  {f['bytes_per_transition']:,.0f} bytes per transition")
    rows.append(f"  files   {f['run_dir']}")
    if v := f.get("video"):
        cut = ", truncated" if v.get("truncated") else ""
        rows.append(f"  video   {v['path']} (score {v['score']:g}{cut})")
    if page:
        rows.append(f"  page    {page}")
    rows.append(f"  resume  dqnitro train --resume {f['run_dir']}{' --trust' if ':' in f['env_id'] else ''}")
    return "\n".join(rows)

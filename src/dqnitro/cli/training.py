"""What `train`, `train --seeds` and the process of one seed share: the config that was asked for, and what follows
training.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from dqnitro.cli.flags import config_changes, note
from dqnitro.cli.wording import duration
from dqnitro.config import Config
from dqnitro.errors import ConfigError


def planned(args: argparse.Namespace) -> tuple[Config, tuple[str, ...]]:
    """The config that was asked for, and its rungs."""
    from dqnitro import recipes
    from dqnitro.ladder import fitted

    if not args.game:
        raise ConfigError("no game was given", "`dqnitro train pong`, or `--resume RUN`")
    plan = recipes.plan(args.recipe, args.game, args.device)
    config = plan.config(tuple(args.without), tuple(args.also)).replace(**config_changes(args))
    config, rungs, why = fitted(config, plan.climbed(tuple(args.without), tuple(args.also)))
    if why:
        note(why)
    check_runner(config)
    return config, rungs


def check_runner(config: Config) -> None:
    """Refuse a GPU runner where there is no GPU, before anything is built."""
    from dqnitro.requirements import runner_needs

    if config.runner in ("device", "hybrid") and (why := runner_needs(config.runner, config)):
        raise ConfigError(f"--runner {config.runner}: {why}", "leave it out; recipe auto chooses one that runs here")


def check_resume(args: argparse.Namespace) -> None:
    if args.game:
        raise ConfigError(f"--resume already names the game, got {args.game!r} as well", "give only one of them")
    if args.without or args.also or args.run_dir:
        raise ConfigError("--without, --also and --run-dir cannot be used with --resume", "start a new run instead")


def afterwards(result: Any, eval_games: int, film: bool) -> dict[str, Any]:
    """If solved, the score over fresh games; after any run that ended properly, a video of one game."""
    from dqnitro.play import record, score
    from dqnitro.run_folder import RunFolder

    facts: dict[str, Any] = {}
    run_dir: pathlib.Path = result.run_dir
    if result.ended == "solved" and eval_games:
        note(f"solved in {duration(result.wall_s)}; playing {eval_games} fresh games")
        facts["evaluation"] = score(run_dir, eval_games)._asdict()
    if film:
        video = run_dir / "game.mp4"
        try:
            end = record(run_dir, video)
            facts["video"] = {"path": str(video), "score": end.score, "steps": end.steps}
        except Exception as e:  # optional: an environment may be unable to render
            note(f"no video: {e}")
    RunFolder(run_dir).add_to_summary(facts)
    return facts


def write_page(run_dir: pathlib.Path) -> str | None:
    from dqnitro.report import write_run_page

    return str(write_run_page(run_dir))

"""One of several seeds, in its own process: `python -m dqnitro.cli.one_seed FOLDER SEED`. `train --seeds` starts it."""

from __future__ import annotations

import pathlib
import shlex
import sys
from typing import Any

from dqnitro.cli.terminal.flags import Parser, amount, count
from dqnitro.cli.terminal.training import afterwards, write_page
from dqnitro.process_setup import sleep_while_gpu_works
from dqnitro.seeds.folder import SeedsFolder
from dqnitro.seeds.launcher import stop_with_parent

NAME = "one_seed"


def command(folder: pathlib.Path, seed: int, *options: str) -> list[str]:
    """The command that starts this process."""
    return [sys.executable, "-m", f"dqnitro.cli.{NAME}", str(folder), str(seed), *options]


def main(argv: list[str]) -> int:
    p = Parser(NAME, "FOLDER SEED [options]", "One seed of `dqnitro train --seeds`: started or continued.")
    p.add_argument("folder")
    p.add_argument("seed", type=count(0, 2**31 - 1))
    p.add_argument("--minutes", type=amount(), default=0.0)
    p.add_argument("--eval-games", type=count(0), default=30)
    p.add_argument("--eval-always", action="store_true")
    p.add_argument("--eval-envs", default="")
    p.add_argument("--no-video", action="store_true")
    p.add_argument("--trust", action="store_true")
    p.add_argument("--marks", default="")
    args = p.parse(argv)
    stop_with_parent()
    sleep_while_gpu_works()
    folder = SeedsFolder.read(pathlib.Path(args.folder))
    # Results store the command that a user would type to repeat them.
    sys.argv = ["dqnitro", *shlex.split(folder.command)[1:]] if folder.command else sys.argv
    result = _run(folder, args.seed, args.minutes, args.trust, args.marks)
    if result.exit_code == 0:
        afterwards(result, args.eval_games, not args.no_video, always=args.eval_always, envs=args.eval_envs)
    write_page(result.run_dir)
    return result.exit_code


def _run(folder: SeedsFolder, seed: int, minutes: float, trust: bool, marks: str) -> Any:
    """`marks`: of a search, whose trials are stopped where they fall behind."""
    from dqnitro.session import LIMITS, resume, train

    config = folder.config.replace(seed=seed, max_minutes=minutes)
    callbacks = []
    if marks:
        from dqnitro.lab.search_runs import Looks, Marks

        callbacks = [Looks(Marks.of(marks))]
    if folder.resumable(seed):
        limits = {name: getattr(config, name) for name in LIMITS}
        return resume(folder.run_dir(seed), trust=trust, callbacks=callbacks, **limits)
    folder.clear_unbegun(seed)
    return train(config, folder.run_dir(seed), recipe=folder.recipe, rungs=folder.rungs, callbacks=callbacks)


if __name__ == "__main__":
    from dqnitro.cli import run_command

    sys.exit(run_command(NAME, sys.argv[1:]))

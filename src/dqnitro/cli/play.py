"""`dqnitro play`."""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from dqnitro.cli.terminal.flags import Parser, amount, count, note, out_file
from dqnitro.cli.terminal.training import truncated_text
from dqnitro.cli.terminal.wording import fresh_text
from dqnitro.errors import ConfigError

DESCRIPTION = """\
Let a trained agent play: watch it, record a video, or score it over fresh games.

Examples
  dqnitro play runs/pong-auto-s1-...                    record one game as game.mp4 in the run's folder
  dqnitro play runs/pong-auto-s1-... --watch            watch it in this terminal
  dqnitro play runs/pong-auto-s1-... --games 30         mean score over 30 fresh games, with its interval
  dqnitro play runs/pong-auto-s1-... --games 100 --json
  dqnitro play runs/pong-auto-s1-... --games 100 --envs ale    the same games in ale-py's emulator
  dqnitro play runs/pong-auto-s1-... --video pong.mp4 --seed 5
  dqnitro play pong-agent --games 30                    an agent that `dqnitro export` wrote

Exit codes: 0 done, 2 bad input.
"""


def _parser() -> Parser:
    p = Parser("play", "RUN [options]", DESCRIPTION)
    p.add_argument("run", help="the folder of a run or of an exported agent, or pong: the agent of the package")
    p.add_argument("--games", type=count(0), default=0, metavar="N", help="score over N fresh games")
    p.add_argument(
        "--envs", metavar="BACKEND", default="", help="with --games: the environment backend (ale, console, ...)"
    )
    p.add_argument(
        "--idle-frames", type=count(0), default=7_200, metavar="N",
        help="with --games: truncate a game after N frames without a reward (default: 7200, two minutes; 0: never)",
    )  # fmt: skip
    p.add_argument("--watch", action="store_true", help="show one game in this terminal, in colour")
    p.add_argument(
        "--video", type=out_file, metavar="FILE", help="record one game (default without --games: RUN/game.mp4)"
    )
    p.add_argument(
        "--epsilon", type=amount(0, 1), default=0.01, metavar="X", help="chance of a random action (default: 0.01)"
    )
    p.add_argument("--seed", type=count(0, 2**31 - 1), default=0, metavar="N", help="which fresh games (default: 0)")
    p.add_argument(
        "--best", action="store_true", help="the weights of the run's best evaluation (train --eval-every-steps)"
    )
    p.add_argument("--trust", action="store_true", help="import the module of the run's environment (module:Id)")
    p.add_argument("--json", action="store_true", help="print the result as JSON")
    return p


def main(argv: list[str]) -> int:
    args = _parser().parse(argv)
    if args.envs and not args.games:
        raise ConfigError("--envs can only be used for scoring", "add --games N")
    from dqnitro.agents import BOX, find

    run = find(args.run)
    in_box = run.parent == BOX
    if in_box and sys.stdout.isatty() and not (args.games or args.video or args.json):
        args.watch = True
    if args.watch and not sys.stdout.isatty():
        raise ConfigError("--watch needs a terminal", "--video FILE records instead")
    from dqnitro.cli.terminal.progress import Progress
    from dqnitro.play import load_config, record, score, show, weights_file

    load_config(run, args.trust)  # report a wrong folder before anything heavy is loaded
    weights = weights_file(run, args.best)
    facts: dict[str, Any] = {"run": str(run), "weights": weights.name, "epsilon": args.epsilon, "seed": args.seed}
    if args.envs:
        facts["envs"] = args.envs
    if args.games:
        with Progress("fresh games", args.games) as progress:
            scored = score(
                run, args.games, args.epsilon, args.seed, args.envs, args.trust,
                best=args.best, idle_frames=args.idle_frames, on_game=progress,
            )  # fmt: skip
        facts["evaluation"] = scored._asdict()
    if args.watch:
        from dqnitro.cli.terminal.terminal_screen import TerminalScreen

        end = show(run, TerminalScreen, args.epsilon, args.seed, args.trust, best=args.best).end
        facts["watched"] = {"score": end.score, "steps": end.steps}
    if args.video or not (args.games or args.watch):
        path = pathlib.Path(args.video or (f"{run.name}.mp4" if in_box else run / "game.mp4"))
        if not path.parent.is_dir():
            raise ConfigError(f"the folder of {path} does not exist")
        note(f"recording one game to {path}")
        with Progress("video of a game"):
            end, truncated = record(run, path, args.epsilon, args.seed, args.trust, best=args.best)
        facts["video"] = {"path": str(path), "score": end.score, "steps": end.steps, "truncated": truncated}
    if args.json:
        json.dump(facts, sys.stdout, indent=1)
        print()
    else:
        _print(facts, args.idle_frames)
    return 0


def _print(facts: dict[str, Any], idle_frames: int) -> None:
    if e := facts.get("evaluation"):
        print(f"score {fresh_text(e)}")
        print(f"  lowest {min(e['scores']):g}, highest {max(e['scores']):g}")
        if e["truncated"]:
            print(f"  {truncated_text(e['truncated'], idle_frames)}")
    if w := facts.get("watched"):
        print(f"score {w['score']:g} in {w['steps']:,} steps")
    if v := facts.get("video"):
        cut = ", truncated" if v["truncated"] else ""
        print(f"video {v['path']}: score {v['score']:g} in {v['steps']:,} steps{cut}")

"""`dqnitro export`."""

from __future__ import annotations

import json
import pathlib
import sys

from dqnitro.cli.terminal.flags import Parser, count, note
from dqnitro.common.signals import orderly

DESCRIPTION = """\
Write a trained agent into a folder that can be taken away: weights (safetensors), settings, scores with their
protocol, a video, a model card, and the network as a program that plain torch (model.pt2) and onnxruntime (model.onnx)
load without DQNitro.

Examples
  dqnitro export runs/pong-auto-s1-... --out pong-agent
  dqnitro export runs/pong-auto-s1-... --out pong-agent --games 100 --envs ale
  dqnitro export pong --out pong-agent                     the agent that comes with the package
  dqnitro export runs/pong-auto-s1-... --out pong-agent --push NAME/dqn-pong
  dqnitro play pong-agent --watch

Exit codes: 0 done, 2 bad input.
"""


def main(argv: list[str]) -> int:
    p = Parser("export", "RUN --out FOLDER [options]", DESCRIPTION)
    p.add_argument("run", help="the folder of a run, or a game whose agent comes with the package")
    p.add_argument("--out", required=True, metavar="FOLDER", help="a new folder")
    p.add_argument("--games", type=count(0), default=30, metavar="N", help="score over N fresh games (default: 30)")
    p.add_argument("--envs", metavar="BACKEND", default="", help="the environment backend of those games (ale, ...)")
    p.add_argument("--no-video", action="store_true", help="do not record a game")
    p.add_argument("--no-onnx", action="store_true", help="do not write model.onnx")
    p.add_argument("--push", metavar="NAME/REPO", default="", help="also upload it to the Hugging Face hub")
    p.add_argument("--best", action="store_true", help="the weights of the run's best evaluation")
    p.add_argument("--trust", action="store_true", help="import the module of the run's environment (module:Id)")
    p.add_argument("--json", action="store_true", help="print what was written as JSON")
    args = p.parse(argv)
    from dqnitro.agents import find
    from dqnitro.export import Wanted, check_push, export, push

    if args.push:
        check_push(args.push)
    wanted = Wanted(args.games, args.envs, not args.no_video, not args.no_onnx, args.trust, note, args.best)
    with orderly():
        made = export(find(args.run), pathlib.Path(args.out), wanted)
    at = push(made.folder, args.push) if args.push else None
    if args.json:
        facts = {"folder": str(made.folder), "files": list(made.files), "left_out": made.left_out, **made.facts}
        json.dump(facts | ({"pushed": at} if at else {}), sys.stdout, indent=1)
        print()
        return 0
    print(f"{made.folder}: {', '.join(made.files)}")
    if scores := made.facts.get("scores"):
        print(f"score {scores['mean']:.2f} over {len(scores['scores'])} fresh games")
    for name, why in made.left_out.items():
        print(f"no {name}: {why}")
    if at:
        print(f"uploaded to {at}")
    return 0

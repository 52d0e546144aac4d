"""Puts the agent of a run into the package, so that `dqnitro play GAME` has something to show:
`python docs/make_agent.py RUN --games 100 --envs ale`.

Only what playing and exporting need: settings, weights, and a record of scores and training. `dqnitro export GAME`
makes the rest (programs, model card, video) out of it.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile

from dqnitro.agents import BOX
from dqnitro.envs import atari_game
from dqnitro.export import FACTS, SETTINGS, WEIGHTS, Wanted, export

MOST_BYTES = 2_000_000  # of an agent: the repository and every installation carry it


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("run", type=pathlib.Path)
    p.add_argument("--games", type=int, default=100, help="fresh games to score (default: 100)")
    p.add_argument("--envs", default="ale", help="the environment backend that plays them (default: ale)")
    p.add_argument("--out", type=pathlib.Path, default=BOX, help="a folder for it (default: that of the package)")
    args = p.parse_args()
    with tempfile.TemporaryDirectory() as tmp:
        folder = pathlib.Path(tmp) / "agent"
        wanted = Wanted(games=args.games, envs=args.envs, video=False, onnx=False, best=False)
        made = export(args.run, folder, wanted)
        files = [folder / name for name in (SETTINGS, WEIGHTS, FACTS)]
        if (size := sum(f.stat().st_size for f in files)) > MOST_BYTES:
            sys.exit(f"{args.run}: {size:,} bytes, at most {MOST_BYTES:,}. hint: train with a smaller --hidden-units")
        game = atari_game(made.facts["env_id"])
        if game is None:
            sys.exit(f"{made.facts['env_id']} is not an Atari game: `dqnitro play NAME` knows games only")
        to = args.out / game
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        for file in files:
            shutil.copyfile(file, to / file.name)
    print(f"{to}: {size:,} bytes, score {made.facts['scores']['mean']:.2f} over {args.games} fresh games")


if __name__ == "__main__":
    main()

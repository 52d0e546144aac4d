"""`dqnitro games`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from typing import Any

from dqnitro.cli.terminal.flags import Parser, count
from dqnitro.cli.terminal.tables import show_table
from dqnitro.errors import ConfigError
from dqnitro.report.formatting import plural

DESCRIPTION = """\
List the Atari games, or check that our console plays them exactly as ale-py does.

Examples
  dqnitro games                                    all games: cartridge, picture, actions, lives
  dqnitro games --check                            compare every game with ale-py, frame by frame
  dqnitro games --check --games pong,breakout --frames 10000 --seed 7
  dqnitro games --check --device cuda              the consoles on a GPU, eight games at a time
  dqnitro games --check --json                     the comparison as JSON

--check compares RAM, screen, reward, lives and end of game on every frame, from power-on and across new games. It exits
with 1 if anything differs. With --device cuda it compares what two environments of `AtariVec` return on a GPU for every
frame: the picture in colour and of full size, reward, lives, terminated and truncated.
"""


def main(argv: list[str]) -> int:
    p = Parser("games", "[options]", DESCRIPTION)
    p.add_argument("--check", action="store_true", help="play every game in ale-py as well and compare everything")
    p.add_argument("--games", metavar="A,B", help="only these games (default: all)")
    p.add_argument(
        "--frames", type=count(), default=3000, metavar="N", help="frames per game for --check (default: 3000)"
    )
    p.add_argument(
        "--seed", type=count(0, 2**31 - 1), default=0, metavar="S", help="seed of the random actions (default: 0)"
    )
    p.add_argument("--device", default="cpu", metavar="DEVICE", help="where --check plays: cpu, cuda, cuda:N")
    p.add_argument("--json", action="store_true", help="print as JSON")
    args = p.parse(argv)
    names = _chosen(args.games)
    return _check(names, args) if args.check else _list(names, args.json)


def _chosen(text: str | None) -> list[str]:
    from dqnitro.atari.games import game_table

    if not text:
        return list(game_table.NAMES)
    try:
        return [game_table.game(name.strip()).name for name in text.split(",") if name.strip()]
    except KeyError as e:
        what, _, hint = str(e.args[0]).partition(" hint: ")
        raise ConfigError(what.rstrip("."), hint) from e


def facts(name: str) -> dict[str, Any]:
    """What the list says about a game."""
    from dqnitro.atari.games import game_table, roms

    game, rom = game_table.GAMES[name], roms.load(name)
    return {
        "game": name,
        "atari_57": name in game_table.ATARI_57,
        "cartridge": rom.cartridge,
        "height": rom.height,
        "standard": "PAL" if rom.pal else "NTSC",
        "actions": len(game.actions),
        "lives": game.lives.first or None,
    }


def _list(names: list[str], as_json: bool) -> int:
    rows = [facts(name) for name in names]
    if as_json:
        json.dump(rows, sys.stdout, indent=1)
        print()
        return 0
    show_table(
        [("game", "left"), ("set", "left"), ("cartridge", "left"), ("picture", "left"), ("actions", "right"),
         ("lives", "right")],
        [(r["game"], "Atari-57" if r["atari_57"] else "", r["cartridge"], f"160x{r['height']} {r['standard']}",
          str(r["actions"]), str(r["lives"] or "-")) for r in rows],
    )  # fmt: skip
    print(plural(len(rows), "game"))
    return 0


def _check(names: list[str], args: Any) -> int:
    from dqnitro.cli.terminal.progress import Progress

    compared, results = _compared(names, args), []
    with Progress("comparing games (the first use here compiles the console for half a minute)", len(names)) as bar:
        bar(0, names[0])
        for k, result in enumerate(compared):
            results.append(result)
            bar(k + 1, "" if k + 1 == len(names) else names[k + 1])
    different = [r for r in results if not r.equal]
    if args.json:
        data = {"frames": args.frames, "seed": args.seed, "different": len(different)}
        json.dump(data | {"games": [r.as_dict() for r in results]}, sys.stdout, indent=1)
        print()
    else:
        _print(results)
    return 1 if different else 0


def _compared(names: list[str], args: Any) -> Iterator[Any]:
    """The results one by one, from the cores or from a GPU."""
    from dqnitro.atari import compare_with_ale

    if args.device == "cpu":
        return compare_with_ale.check(names, args.frames, args.seed)
    from dqnitro.atari.cuda.build import CudaUnavailable, require

    if not re.fullmatch(r"cuda(:\d+)?", args.device):
        raise ConfigError(f"--device is cpu, cuda or cuda:N, got {args.device!r}", "--device cuda")
    try:
        require(int(args.device.partition(":")[2] or 0))
    except CudaUnavailable as error:
        raise ConfigError(f"--device {args.device}: {error}") from None
    return compare_with_ale.check_vectors(names, args.frames, args.seed, args.device)


def _print(results: list[Any]) -> None:
    show_table(
        [("game", "left"), ("frames", "right"), ("games", "right"), ("rewards", "right"),
         ("compared with ale-py", "left")],
        [(r.game, f"{r.frames:,}", str(r.games_started), str(r.rewards),
          "equal" if r.equal else f"DIFFERENT: {r.difference}") for r in results],
    )  # fmt: skip
    bad = sum(not r.equal for r in results)
    frames = sum(r.frames for r in results)
    said = plural(bad, "game differs", "games differ") if bad else "no difference"
    print(f"{plural(len(results), 'game')}, {plural(frames, 'frame')}: {said}")

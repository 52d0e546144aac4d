"""What `train`, `train --seeds` and the process of one seed share: the config that was asked for, and what follows
training.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from dqnitro.cli.terminal.flags import config_changes, note
from dqnitro.cli.terminal.wording import duration
from dqnitro.config import Config
from dqnitro.errors import ConfigError


def planned(args: argparse.Namespace) -> tuple[Config, tuple[str, ...]]:
    """The config that was asked for, and its rungs."""
    from dqnitro.planning import Wish
    from dqnitro.planning import planned as plan

    if not args.game:
        raise ConfigError("no game was given", "`dqnitro train pong`, or `--resume RUN`")
    made = plan(Wish(args.game, args.recipe or "auto", args.without, args.also, config_changes(args)))
    for text in made.notes:
        note(text)
    return made.config, made.rungs


def check_resume(args: argparse.Namespace) -> None:
    if args.game:
        raise ConfigError(f"--resume already names the game, got {args.game!r} as well", "give only one of them")
    given = [f"--{name.replace('_', '-')}" for name in ("recipe", "without", "also", "run_dir") if getattr(args, name)]
    if given:
        raise ConfigError(f"{' and '.join(given)} cannot be used with --resume", "start a new run instead")


def afterwards(
    result: Any, eval_games: int, film: bool, quiet: bool = False, always: bool = False, envs: str = "",
    mark: Callable[[str], None] = lambda name: None,
) -> dict[str, Any]:  # fmt: skip
    """If solved, or `always`, the score over fresh games, played by the environment backend `envs`; after any run that
    ended properly a video: of the first of those games while they are played, or of a game of its own.
    """
    from dqnitro import protocol
    from dqnitro.cli.terminal.progress import Progress
    from dqnitro.envs import atari_game
    from dqnitro.play import score
    from dqnitro.scoring import EPSILON, ignore
    from dqnitro.store.run_folder import RunFolder

    facts: dict[str, Any] = {}
    run_dir: pathlib.Path = result.run_dir
    evaluated = result.evaluations.get("last", {}).get("steps") == result.steps  # during training, by the same games
    games = eval_games if always or (result.ended == "solved" and not evaluated) else 0
    if games:
        done = "solved in" if result.ended == "solved" else "trained for"
        note(f"{done} {duration(result.wall_s)}; playing {games} fresh games")
    follows = bool(games) and atari_game(result.config.env_id) is not None
    with contextlib.ExitStack() as stack:
        filming = stack.enter_context(Filming(run_dir, follows)) if film else None
        stack.enter_context(quick_turns())
        if games:
            told = filming.on_action if filming is not None and follows else ignore
            with Progress("fresh games", games, quiet=quiet) as progress:
                scored = score(run_dir, games, backend=envs, trust=True, on_game=progress, on_action=told)
            mark("fresh games")
            rules = protocol.of(result.config, "fresh games", games, EPSILON, envs)
            facts["evaluation"] = scored._asdict() | {"protocol": rules.to_dict()}
        if filming is not None:
            with Progress("video of a game", quiet=quiet):
                filming.wait()
            facts |= filming.facts()
            mark("video")
    RunFolder(run_dir).add_to_summary(facts)
    return facts


@contextlib.contextmanager
def quick_turns() -> Iterator[None]:
    """Threads of Python take turns every half millisecond: games, film and encoder each need it for less than that."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(5e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


class Filming:
    """A video of one game, recorded in a thread; leaving the block early gives it up. If it `follows` a game, it shows
    the one whose actions it is told.
    """

    def __init__(self, run_dir: pathlib.Path, follows: bool = False) -> None:
        self._run_dir, self.path, self._follows = run_dir, run_dir / "game.mp4", follows
        self._actions: queue.SimpleQueue[int | None] = queue.SimpleQueue()
        self._given_up = threading.Event()
        self._thread = threading.Thread(target=self._film, name="film", daemon=True)
        self._played: Any = None
        self._error: Exception | None = None

    def _film(self) -> None:
        from dqnitro.play import record

        actions = iter(self._actions.get, None) if self._follows else None
        try:
            self._played = record(self._run_dir, self.path, trust=True, stopped=self._given_up.is_set, actions=actions)
        except Exception as e:  # optional: an environment may be unable to render
            self._error = e

    def on_action(self, action: int) -> None:
        self._actions.put(action)

    def wait(self) -> None:
        while self._thread.is_alive():
            self._thread.join(0.2)  # a join without a limit could not be interrupted everywhere

    def facts(self) -> dict[str, Any]:
        if self._played is None:
            note(f"no video: {self._error}")
            return {}
        end, truncated = self._played
        return {"video": {"path": str(self.path), "score": end.score, "steps": end.steps, "truncated": truncated}}

    def __enter__(self) -> Filming:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._thread.is_alive():
            self._given_up.set()
            self._actions.put(None)
            self._thread.join(2.0)


def truncated_text(games: int, idle_frames: int = 7_200) -> str:
    """How many fresh games were truncated, and why."""
    return f"{games} of them truncated, after {idle_frames:,} frames without a reward"


def write_page(run_dir: pathlib.Path) -> str | None:
    from dqnitro.report import write_run_page

    return str(write_run_page(run_dir))

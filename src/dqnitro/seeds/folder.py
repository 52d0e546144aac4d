"""The folder of several seeds: `seeds.json` holds the request, `s1`, `s2`, ... are runs like any other.

runs/pong-auto-s1-8-.../seeds.json   config, seeds, recipe, rungs, machine, command
                        summary.json all seeds together, and the process that works on them
                        s1/ s2/ ...  the runs
                        s1.log ...   output of their processes
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dqnitro.config import RANGES, Config, Range
from dqnitro.errors import CheckpointError, ConfigError

FILE = "seeds.json"
MOST_SEEDS = 10_000


def seed_range(first: int, count: int) -> range:
    """`count` seeds starting with `first`; ConfigError if that is not possible."""
    if what := Range(1, MOST_SEEDS).wrong(count):
        raise ConfigError(f"--seeds {what}", "3 or more give an interval")
    if what := RANGES["seed"].wrong(first):
        raise ConfigError(f"seed {what}")
    if RANGES["seed"].wrong(first + count - 1):
        raise ConfigError(
            f"seeds {first} to {first + count - 1} exceed {RANGES['seed'].high}", "start with a smaller --seed"
        )
    return range(first, first + count)


def is_seeds(path: pathlib.Path) -> bool:
    return (path / FILE).is_file()


@dataclass(frozen=True)
class SeedsFolder:
    """The request and its place on disk."""

    path: pathlib.Path
    config: Config  # of the first seed
    seeds: tuple[int, ...]
    recipe: str
    rungs: tuple[str, ...]
    at_once: int
    command: str = ""
    most: int = 0  # at a time, as the user said; 0: as many as there is room for

    @staticmethod
    def create(
        path: pathlib.Path, config: Config, seeds: Sequence[int], recipe: str, rungs: Sequence[str], at_once: int,
        most: int = 0,
    ) -> SeedsFolder:  # fmt: skip
        from dqnitro.common.files import now_text, sealed, short, write_json
        from dqnitro.common.host import provenance

        origin = provenance()
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise ConfigError(
                    f"{path} is not empty", f"continue it with --resume {path}, or give a new name with --run-dir"
                )
            path.mkdir(parents=True, exist_ok=True)
            write_json(
                path / FILE,
                sealed({
                    "recipe": recipe, "rungs": list(rungs), "seeds": list(seeds), "at_once": at_once, "most": most,
                    "config": config.to_dict(), "started": now_text(), **origin,
                }),
            )  # fmt: skip
        except OSError as e:
            raise ConfigError(
                f"cannot write the folder {short(path)} ({e.strerror})", "give another one with --run-dir"
            ) from e
        return SeedsFolder(path, config, tuple(seeds), recipe, tuple(rungs), at_once, origin["command"], most)

    @staticmethod
    def read(path: pathlib.Path) -> SeedsFolder:
        """CheckpointError if seeds.json is damaged."""
        from dqnitro.common.files import seal_holds

        try:
            data = json.loads((path / FILE).read_text())
            if not seal_holds(data):
                raise CheckpointError(f"{path / FILE} is damaged (its checksum differs)")
            seeds = tuple(int(s) for s in data["seeds"])
            rungs, at_once = tuple(str(r) for r in data["rungs"]), max(1, int(data["at_once"]))
            config = Config.from_dict(data["config"])
            recipe, command, most = str(data["recipe"]), str(data.get("command", "")), int(data.get("most", 0))
            return SeedsFolder(path, config, seeds, recipe, rungs, at_once, command, most)
        except ConfigError as e:
            raise CheckpointError(f"{path / FILE} was written by another version ({e})") from e
        except (OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as e:
            raise CheckpointError(f"{path / FILE} is damaged ({type(e).__name__}: {e})") from e

    def changed(self, changes: dict[str, Any], at_once: int, most: int = 0) -> SeedsFolder:
        """With other limits, also on disk: seeds that have not started will use them."""
        from dqnitro.common.files import sealed, write_json
        from dqnitro.session import LIMITS

        for name in changes:
            if name not in LIMITS:
                raise ConfigError(f"{name} cannot be changed on resume", f"these can: {', '.join(LIMITS)}")
        new = dataclasses.replace(self, config=self.config.replace(**changes), at_once=at_once, most=most)
        data = json.loads((self.path / FILE).read_text())
        write_json(self.path / FILE, sealed(data | {"config": new.config.to_dict(), "at_once": at_once, "most": most}))
        return new

    def with_seeds(self, seeds: Sequence[int]) -> SeedsFolder:
        """With further seeds, also on disk."""
        from dqnitro.common.files import sealed, write_json

        if tuple(seeds) == self.seeds:
            return self
        data = json.loads((self.path / FILE).read_text())
        write_json(self.path / FILE, sealed(data | {"seeds": list(seeds)}))
        return dataclasses.replace(self, seeds=tuple(seeds))

    def run_dir(self, seed: int) -> pathlib.Path:
        return self.path / f"s{seed}"

    def log(self, seed: int) -> pathlib.Path:
        return self.path / f"s{seed}.log"

    def summary(self, seed: int) -> dict[str, Any]:
        """The newest summary that the process of a seed wrote; empty if it has not started."""
        from dqnitro.store.run_folder import RunFolder

        return RunFolder(self.run_dir(seed)).read_summary()

    def resumable(self, seed: int) -> bool:
        from dqnitro.store.checkpoint import complete

        return bool(complete(self.run_dir(seed) / "checkpoints"))

    def is_done(self, seed: int, more_minutes: bool = False) -> bool:
        """Has this seed reached its end? With `more_minutes` the time it has used does not count.

        A loss that diverged would do so again, since nothing but limits may change.
        """
        s, c = self.summary(seed), self.config
        state, score = s.get("state"), s.get("mean_score")
        if state == "diverged":
            return True
        if state not in ("solved", "steps", "minutes") or not self.resumable(seed):
            return False
        solved = state == "solved" and score is not None and score >= c.stop_at_score
        enough_steps = bool(c.max_steps) and (s.get("steps") or 0) >= c.max_steps
        enough_time = bool(c.max_minutes) and (s.get("wall_s") or 0.0) >= c.max_minutes * 60
        return solved or enough_steps or (enough_time and not more_minutes)

    def minutes_left(self, seed: int) -> float:
        """The part of the config's time limit that this seed has not used; 0: there is no limit."""
        limit = self.config.max_minutes
        if not limit or not self.resumable(seed):
            return limit
        return max(limit - (self.summary(seed).get("wall_s") or self._saved_wall_s(seed)) / 60, 1e-3)

    def _saved_wall_s(self, seed: int) -> float:
        """From the newest checkpoint: a process that was killed left no summary."""
        from dqnitro.store.checkpoint import complete, read_manifest

        tally = read_manifest(complete(self.run_dir(seed) / "checkpoints")[-1]).get("tally", {})
        return float(tally.get("wall_s", 0.0))

    def clear_unbegun(self, seed: int) -> None:
        """Delete a run that was killed before its first checkpoint: it has to start again."""
        from dqnitro.store.run_folder import RunFolder

        folder = RunFolder(self.run_dir(seed))
        if not (folder.path / "config.json").is_file():
            return
        folder.lock()  # CheckpointError if a process is at work there, which has saved nothing yet
        try:
            if not self.resumable(seed):
                shutil.rmtree(folder.path)
        finally:
            folder.unlock()

    def discard_if_empty(self) -> bool:
        """If no seed could start, delete the folder; returns whether it did."""
        from dqnitro.common.files import LOCK

        if any((self.run_dir(s) / "config.json").is_file() for s in self.seeds):
            return False
        for path in (*(self.path / name for name in (FILE, "summary.json", LOCK)), *(self.log(s) for s in self.seeds)):
            path.unlink(missing_ok=True)
        for folder in (self.path, self.path.parent):
            try:
                folder.rmdir()
            except OSError:  # others use it
                break
        return True

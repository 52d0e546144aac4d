"""`dqnitro sweep SETTING=VALUES ...`: a search over several settings and games."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dqnitro.cli import one_seed
from dqnitro.cli.terminal.flags import config_changes, note
from dqnitro.cli.terminal.following import follow, last_line
from dqnitro.cli.terminal.launching import Job, Place, place, state_at
from dqnitro.cli.terminal.tables import Reports, finish, say_where, show_table
from dqnitro.common.files import check_writable, file_stem
from dqnitro.errors import ConfigError
from dqnitro.report.formatting import plural
from dqnitro.seeds.folder import SeedsFolder, seed_range
from dqnitro.storage.by_url import is_url

if TYPE_CHECKING:
    from dqnitro.cli.terminal.launching import AnyTeam
    from dqnitro.config import Config
    from dqnitro.lab.search import Asked
    from dqnitro.lab.search_runs import Runs, Trial
    from dqnitro.storage.home import Home


def search_main(args: Any) -> int:
    """Several settings and games at once."""
    from dqnitro.lab.search import Asked, parse_dimension, search
    from dqnitro.lab.search_runs import FILE, planned

    if bad := [v for v in args.values if "=" not in v]:
        raise ConfigError(f"{bad[0]!r} is not SETTING=VALUES", "in a search every setting has its values behind it")
    changes = config_changes(args)
    seeds = seed_range(changes.pop("seed", 1), args.seeds or 1)
    games = [g.strip() for g in args.game.split(",") if g.strip()]
    space = [parse_dimension(text) for text in (args.setting, *args.values)]
    asked = Asked(games, space, args.trials, args.recipe, tuple(seeds), changes)
    name = file_stem(f"search-{'-'.join(games)}-{args.recipe}-{'-'.join(d.field for d in space)}"[:120])
    with_folders = args.on is not None or args.at_once or _is_place(args.state)
    usual = pathlib.Path("sweeps") / (name if with_folders else f"{name}.journal")
    state = pathlib.Path(args.state) if args.state and not with_folders else usual
    out = pathlib.Path(args.out) if args.out else state.with_name(f"{state.stem}.json")
    check_writable(out)
    if with_folders:
        base = planned(asked)
        with state_at(args.state, usual, FILE) as (folder, home):
            return _search_in(folder, asked, base, args, home, out)
    say_where(args, args.recipe, games[0] if games else "")
    with Reports("sweep", args) as progress:
        result = search(asked, state, progress.say)
    return finish(result, out, args.json, show_search)


def _is_place(text: str | None) -> bool:
    """Whether a state is a folder, or at a URL, and not the file of a search in one process."""
    return bool(text) and (is_url(text) or pathlib.Path(text).is_dir())


def _search_in(state: pathlib.Path, asked: Asked, base: Config, args: Any, home: Home, out: pathlib.Path) -> int:
    """Several trials at a time: every run is a process with a folder, here or on a cluster."""
    from dqnitro.lab.search_runs import FILE, Runs, folder_names
    from dqnitro.seeds.allocation import least_need

    with place(args.on) as here:
        home.fetch(home.names(folder_names(state, asked)))
        mine = here.share(base, asked.trials, args.at_once)
        work = Work(Runs(state, asked, base, mine), home)
        at_once = min(mine.at_once, work.runs.at_once)
        work.add()
        note(
            f"{plural(asked.trials, 'trial')}, {work.ended} done, {at_once} at a time ({mine.why}); each knows the "
            f"results of those up to {work.runs.at_once} before it -> {home.url or state}"
        )
        config = base.replace(torch_threads=base.torch_threads or work.runs.torch_threads)
        need = least_need(config) if work.jobs and args.on else None
        at = here if need else Place(None)  # nothing to do needs no node
        most = min(args.at_once or work.runs.at_once, work.runs.at_once)
        team = at.team(work.jobs, at_once, config.torch_threads, need, state / FILE, config, home, most)
        with Reports("sweep", args) as progress:

            def look(ended: Sequence[Any]) -> None:
                if ended:
                    team.waiting.extend(work.look(ended, team))
                    under_way = plural(len(team.running), "run")
                    progress.say(f"{work.ended} of {plural(asked.trials, 'trial')} ended, {under_way} under way")

            stopped, _ = follow(team, look, lambda i: work.jobs[i].name)
    result = home.named(work.runs.result(stopped, home.url or str(state)))
    code = finish(result, out, args.json, show_search)
    return code or (max(1, work.failed[0]) if work.failed else 0)


class Work:
    """The runs of a search as jobs: of every trial one at a time, the next when it has ended."""

    def __init__(self, runs: Runs, home: Home) -> None:
        self.runs, self._home = runs, home
        self.jobs: dict[int, Job] = {}
        self.failed: list[int] = []  # exit codes of runs that ended for a reason that is not their settings
        self._trial: dict[int, int] = {}  # by job, while it is under way

    @property
    def ended(self) -> int:
        return sum(t.state != "RUNNING" for t in self.runs.trials())

    def add(self) -> list[int]:
        """Jobs for the runs that can start now."""
        self.runs.propose()
        self._home.keep(self._home.names(self.runs.files))
        self.runs.files.clear()
        new = []
        for trial in self.runs.trials():
            if trial.next is not None and trial.number not in self._trial.values():
                i = len(self.jobs)
                self.jobs[i], self._trial[i] = _job(self.runs, trial), trial.number
                new.append(i)
        return new

    def look(self, ended: Sequence[Any], team: AnyTeam) -> list[int]:
        """Take in what these have come to; returns the jobs that follow."""
        self._home.fetch(self._home.names(p for m in ended for p in (self.jobs[m.seed].folder, self.jobs[m.seed].log)))
        for m in ended:
            number, job = self._trial.pop(m.seed), self.jobs[m.seed]
            if not m.code or team.stopping or self.runs.trial(number).state != "RUNNING":
                continue
            words = last_line(m, job.log) or f"exit code {m.code}"
            note(f"{job.name}: {words}")
            if m.code == ConfigError.exit_code and not m.why and not (job.folder / "checkpoints").exists():
                self.runs.refuse(number, words)
            else:
                self.failed.append(m.code)
        return [] if team.stopping or self.failed else self.add()


def _job(runs: Runs, trial: Trial) -> Job:
    assert trial.next is not None
    game, seed = trial.next
    folder, marks = SeedsFolder.read(runs.folder(trial.number, game)), runs.marks(trial).text()

    def command() -> list[str]:
        minutes = repr(float(folder.minutes_left(seed)))
        options = ("--minutes", minutes, "--eval-games", "0", "--no-video", "--trust", "--marks", marks)
        return one_seed.command(folder.path.resolve(), seed, *options)

    return Job(command, folder.log(seed), folder.run_dir(seed), f"trial {trial.number}, {game}, seed {seed}")


def show_search(result: dict[str, Any]) -> None:
    fields = list(result["space"])
    columns = (("trial", "right"), *((f, "right") for f in fields), (result["unit"], "right"), ("state", "left"))
    lines = []
    for r in result["rows"]:
        values = [r["settings"].get(f) for f in fields]
        told = [f"{v:.3g}" if isinstance(v, float) else str(v) for v in values]
        state = r["state"] + " (recipe)" * (r["settings"] == result["own"])
        lines.append([str(r["trial"]), *told, "-" if r["points"] is None else f"{r['points']:.3g}", state])
    show_table(columns, lines)
    for r in result["rows"]:
        if r["why"]:
            print(f"trial {r['trial']}: {r['why']}")
    tried = f"{len(lines)} of {plural(result['trials'], 'trial')}"
    print(f"\n{tried}, recipe {result['recipe']}, games {', '.join(result['games'])}")

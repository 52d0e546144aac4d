"""`dqnitro atari`: many games under one protocol, and a table beside published results."""

from __future__ import annotations

import argparse
import pathlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from dqnitro.cli import one_seed
from dqnitro.cli.terminal import launching
from dqnitro.cli.terminal import tables as t
from dqnitro.cli.terminal.flags import Parser, add_config_flags, amount, config_changes, count, note
from dqnitro.cli.terminal.following import follow, last_line
from dqnitro.cli.terminal.launching import Place, add_on_flag, place, state_at
from dqnitro.cli.terminal.live import LOG_EVERY_S, Block
from dqnitro.cli.terminal.wording import duration
from dqnitro.protocol import NAMED
from dqnitro.report.formatting import plural
from dqnitro.seeds.folder import FILE as SEEDS
from dqnitro.seeds.folder import MOST_SEEDS, seed_range
from dqnitro.storage.home import Home

if TYPE_CHECKING:
    from dqnitro.cli.terminal.launching import AnyTeam
    from dqnitro.lab.atari import Asked, Job
    from dqnitro.seeds.allocation import Share

DESCRIPTION = """\
Train many games under one protocol, and show the scores beside published ones: human-normalised, as medians and
interquartile means with intervals, and the Atari-5 estimate of the median of 57 games.

Examples
  dqnitro atari atari5 --minutes 10 --out atari5.json    five games that predict the median of 57
  dqnitro atari breakout,qbert --minutes 5 --seeds 3     any games, several seeds
  dqnitro atari atari57 --recipe strong --at-once 1      all games of the literature, one after the other
  dqnitro atari atari57 --on auto                        runs spread over a Ray cluster (docs/cluster.md)
  dqnitro report atari5.json                             its page: curves game by game, published ones under them

Sets: atari5, atari26 (the games of the benchmark of 100,000 steps), atari57. Minutes are of training, for each run.
Ctrl-C saves all runs; the same command continues them, also with more minutes, seeds or games.
Exit codes: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM; otherwise that of the first run that failed.
"""
SHOW_EVERY_S = 1.0
RESULT = "atari-result.json"
COLUMNS = (
    ("game", "left"), ("training", "right"), ("fresh games", "right"), ("human = 1", "right"), ("frames", "right"),
    ("minutes", "right"), ("frames/s", "right"),
)  # fmt: skip
IN_ALL = (
    ("in all", "left"), ("frames", "right"), ("games", "right"), ("median", "right"), ("IQM", "right"),
    ("above human", "right"), ("Atari-5", "right"), ("minutes a game", "right"),
)  # fmt: skip


def make_parser() -> Parser:
    p = Parser("atari", "[GAMES|atari5|atari26|atari57] [options]", DESCRIPTION)
    p.add_argument("games", nargs="?", default="atari5", help="a set, or games separated by commas (default: atari5)")
    p.add_argument(
        "--minutes", type=amount(0.001, 1e6), default=10.0, metavar="M", help="of training for each run (default: 10)"
    )
    p.add_argument("--seeds", type=count(1, MOST_SEEDS), default=1, metavar="N", help="runs of each game (default: 1)")
    p.add_argument("--recipe", default="auto", help="auto, fast, baseline, classic, strong (default: auto)")
    p.add_argument("--protocol", choices=tuple(NAMED), default="machado", help="the rules (default: machado)")
    p.add_argument("--without", action="append", default=[], metavar="RUNG", help="leave a rung of the recipe out")
    p.add_argument("--also", action="append", default=[], metavar="RUNG", help="add a rung to the recipe")
    p.add_argument(
        "--at-once", type=count(0, 1000), default=0, metavar="N",
        help="runs at the same time, which share cores and GPU (default: as many as fit)",
    )  # fmt: skip
    p.add_argument(
        "--fresh-games", type=count(0, 10**6), default=100, metavar="N",
        help="score each agent over N fresh games after its training (default: 100)",
    )  # fmt: skip
    p.add_argument(
        "--fresh-envs", choices=("ale", "console", "wrappers"), default="ale",
        help="the environment backend that plays them (default: ale, even if another one played the training)",
    )  # fmt: skip
    p.add_argument("--video", action="store_true", help="record a game of every agent")
    add_on_flag(p, "play the runs")
    p.add_argument(
        "--state", metavar="PATH",
        help="where runs are kept and resumed: a folder, or a URL: s3://... (default: atari/GAMES-RECIPE-...)",
    )  # fmt: skip
    t.add_result_flags(p, "write the result as JSON (default: STATE/atari-result.json)")
    add_config_flags(p, leave_out=("max_minutes", "stop_at_score"))
    return p


def main(argv: list[str]) -> int:
    args = make_parser().parse(argv)
    from dqnitro.lab.atari import FILE, Asked, default_state, games_named

    changes = config_changes(args)
    seeds = seed_range(changes.pop("seed", 1), args.seeds)
    asked = Asked(
        games_named(args.games), tuple(seeds), args.minutes, args.recipe, args.protocol, args.without, args.also,
        changes, args.fresh_games, args.fresh_envs,
    )  # fmt: skip
    name = args.games.replace(",", "-")
    with state_at(args.state, default_state(asked, name if len(name) < 60 else "games"), FILE) as (path, home):
        return _run(args, asked, path, home)


def _run(args: argparse.Namespace, asked: Asked, path: pathlib.Path, home: Home) -> int:
    """Train what is not done in this folder, and show what there is."""
    from dqnitro.lab.atari import FILE, jobs_of, make_result, open_folder

    with place(args.on) as here:
        home.fetch(asked.games)
        folders, mine = open_folder(path, asked, args.at_once, here.share)
        home.keep(home.names([path / FILE, *(f.path / SEEDS for f in folders.values())]))
        todo = jobs_of(folders, asked.seeds, asked.fresh_games)
        rounds = -(-len(todo) // mine.at_once)
        note(
            f"{_n(asked.games, 'game')}, {_n(asked.seeds, 'seed')}, protocol {asked.protocol}, recipe {asked.recipe}: "
            f"{_n(todo, 'run')} to do, {mine.at_once} at a time ({mine.why}), each with {mine.torch_threads} torch and "
            f"{mine.env_threads} console threads; about {duration(rounds * args.minutes * 60)}, then fresh games -> "
            f"{home.url or path}"
        )
        team = _team(here, path, todo, asked, mine, args, home)
        with home.followed(home.names(p for j in todo for p in j.files)), Block(args.quiet) as block:
            show = Display(block, todo, args)

            def look(ended: Sequence[Any]) -> None:
                if ended:
                    home.fetch(home.names(p for m in ended for p in todo[m.seed].files))
                show.look(team, ended)

            stopped, wall_s = follow(team, look, lambda i: _name(todo[i]))
    ended = {(j.game, j.seed): _end(team, i, j) for i, j in enumerate(todo)}
    result = home.named(make_result(path, asked, folders, mine, ended, stopped) | {"wall_s": wall_s})
    out = pathlib.Path(args.out) if args.out else path / RESULT
    code = t.finish(result, out, args.json, show_result, home.named(str(out)))
    _page(out, path, args, home)
    home.keep([RESULT, "page.html"])
    if result["done"] < result["of"]:
        note(
            f"not done: {result['of'] - result['done']} of {plural(int(result['of']), 'run')}; the same command goes on"
        )
    failed = [c for i in team.members if (c := team.members[i].code) and not stopped]
    return code or (max(1, failed[0]) if failed else 0)


def _n(of: Sequence[Any], what: str) -> str:
    return f"{len(of)} {what}{'' if len(of) == 1 else 's'}"


def _name(job: Job) -> str:
    return f"{job.game} seed {job.seed}"


def _end(team: AnyTeam, i: int, job: Job) -> tuple[int | None, str]:
    member = team.members.get(i)
    code = member.code if member else None
    return code, last_line(member, job.folder.log(job.seed)) if code else ""


def _team(
    here: Place, path: pathlib.Path, todo: Sequence[Job], asked: Asked, mine: Share, args: argparse.Namespace,
    home: Home,
) -> AnyTeam:  # fmt: skip
    from dqnitro.lab.atari import FILE
    from dqnitro.seeds.allocation import least_need

    options = ["--eval-games", str(asked.fresh_games), "--eval-always", "--eval-envs", asked.fresh_envs]
    options += [] if args.video else ["--no-video"]

    def command(job: Job) -> list[str]:
        minutes = repr(float(job.folder.minutes_left(job.seed)))
        return one_seed.command(job.folder.path.resolve(), job.seed, "--minutes", minutes, *options)

    jobs = {
        i: launching.Job(partial(command, job), job.folder.log(job.seed), job.run_dir, _name(job))
        for i, job in enumerate(todo)
    }
    need = least_need(todo[0].folder.config) if here.cluster is not None and todo else None
    if need is None:
        here = Place(None)  # without a cluster, or with nothing to do there
    config = todo[0].folder.config if todo else None
    return here.team(jobs, mine.at_once, mine.torch_threads, need, path / FILE, config, home, args.at_once)


@dataclass
class Display:
    """How the runs are shown: the live block on a terminal; elsewhere a line for each run that has ended, and one every
    so often for those under way.
    """

    block: Block
    jobs: Sequence[Job]
    args: argparse.Namespace
    begun: float = field(default_factory=time.monotonic)
    shown: float = 0.0
    logged: float = field(default_factory=time.monotonic)

    def look(self, team: AnyTeam, ended: Sequence[Any]) -> None:
        now = time.monotonic()
        if not self.block.live and not self.args.quiet:
            for member in ended:
                note(ended_line(self.jobs[member.seed], member))
            every = LOG_EVERY_S if self.args.log_every is None else self.args.log_every
            if now - self.logged >= every:
                self.logged = now
                note(" | ".join(self._lines(team, now)))
        elif self.block.live and now - self.shown >= SHOW_EVERY_S:
            self.shown = now
            self.block.show(self._lines(team, now))

    def _lines(self, team: AnyTeam, now: float) -> list[str]:
        n = len(self.jobs)
        done = n - len(team.waiting) - len(team.running)
        head = f"{done} of {plural(n, 'run')} ended   {duration(now - self.begun)}"
        return [head, *(running_line(self.jobs[i]) for i in team.running)]


def running_line(job: Job) -> str:
    from dqnitro.seeds.summary import last_progress
    from dqnitro.session import ENDINGS

    p = last_progress(job.run_dir / "metrics.jsonl")
    if not p:
        return f"{_name(job)}: starting"
    score = "no game yet" if p.get("mean_score") is None else f"score {p['mean_score']:,.1f}"
    if job.folder.summary(job.seed).get("state") in ENDINGS:
        return f"{_name(job)}: {score}, trained; playing fresh games"
    frames = p["steps"] * job.folder.config.frame_skip
    return (
        f"{_name(job)}: {score}, {millions(frames)} frames, {p['frames_per_s']:,.0f} frames/s, {duration(p['wall_s'])}"
    )


def ended_line(job: Job, member: Any) -> str:
    from dqnitro.lab.atari import read_run

    code: int | None = member.code
    run = read_run(job.folder, job.game, job.seed, code)
    fresh = f", {run.fresh['mean']:,.1f} over {len(run.fresh['scores'])} fresh games" if run.fresh else ""
    score = "no game" if run.training is None else f"score {run.training:,.1f}"
    wall_s = run.facts["wall_s"] or 0.0
    words = last_line(member, job.folder.log(job.seed)) if code else ""
    why = f"; {words}" if words else ""
    return f"{_name(job)}: {run.facts['state']}, {score}{fresh}, {millions(run.frames)} frames, {duration(wall_s)}{why}"


def millions(frames: float | None) -> str:
    """12.5 M, or 3,400 k below a million."""
    if frames is None:
        return "-"
    return f"{frames / 1e6:,.1f} M" if frames >= 1e6 else f"{frames / 1e3:,.0f} k"


def _page(out: pathlib.Path, state: pathlib.Path, args: argparse.Namespace, home: Home) -> None:
    from dqnitro.report.html import write_page
    from dqnitro.report.lab_page import render_lab
    from dqnitro.report.read_result import read_sources

    page = state / "page.html"
    _, results = read_sources([out])
    write_page(page, render_lab([], results, page))
    if not args.json:
        print(f"page {home.named(str(page))}")


# ---- the table


def show_result(result: dict[str, Any]) -> None:
    from dqnitro.lab.atari import BESIDE

    beside = [(f"{name} then", "right") for name in BESIDE] + [(f"{name} 200 M", "right") for name in BESIDE[1:]]
    t.show_table((*COLUMNS, *beside), [cells(row, BESIDE) for row in result["rows"]])
    print()
    t.show_table(IN_ALL, in_all_rows(result))
    print()
    for line in remarks(result):
        print(line)


def score_text(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def interval_text(i: Any) -> str:
    if i is None:
        return "-"
    return score_text(i.mean) + (f" [{score_text(i.low)}, {score_text(i.high)}]" if i.n > 1 else "")


def cells(row: Mapping[str, Any], beside: Sequence[str]) -> list[str]:
    known, hns = row["published"], row["human_normalized"]
    return [
        row["game"], interval_text(row["training"]), interval_text(row["fresh"]),
        "-" if hns is None else f"{hns:.2f}", millions(row["frames"]),
        "-" if row["minutes"] is None else f"{row['minutes']:.1f}",
        "-" if row["frames_per_s"] is None else f"{row['frames_per_s']:,.0f}",
        *(score_text(known[name]["at"]) for name in beside), *(score_text(known[name]["end"]) for name in beside[1:]),
    ]  # fmt: skip


def in_all_rows(result: Mapping[str, Any]) -> list[list[str]]:
    """Ours by fresh and by training games, then the published ones over the same games."""
    frames = [row["frames"] for row in result["rows"] if row["frames"]]
    minutes = [row["minutes"] for row in result["rows"] if row["minutes"]]
    mine = millions(sum(frames) / len(frames)) if frames else "-"
    taken = f"{sum(minutes) / len(minutes):.1f}" if minutes else "-"
    out = [
        _in_all(f"here, {which} games", mine, found, taken)
        for which in ("fresh", "training")
        if (found := result["in_all"][which])
    ]
    for p in result["published"]:
        if p["in_all"]:
            mark = " *" if p["differences"] else ""
            spent = "-" if p["minutes"] is None else f"{p['minutes']:.0f}"
            out.append(_in_all(f"{p['agent']}{mark}", f"{p['millions']} M", p["in_all"], spent))
    return out


def _in_all(name: str, frames: str, a: Mapping[str, Any], minutes: str) -> list[str]:
    five = "-" if a["atari5"] is None else f"{a['atari5']:.0f}"
    return [
        name, frames, str(a["n"]), _spread(a["median"]), _spread(a["iqm"]), f"{a['above_human']} of {a['n']}", five,
        minutes,
    ]  # fmt: skip


def _spread(s: Mapping[str, Any]) -> str:
    i = s["seeds"]
    return f"{s['value']:.2f}" + (f" [{i.low:.2f}, {i.high:.2f}]" if i is not None else "")


def remarks(result: Mapping[str, Any]) -> list[str]:
    """What a reader has to know before comparing."""
    p = result["protocol"]
    lives = "told" if p["lives_told"] else "not told"
    out = [
        f"protocol {p['name']}: sticky actions {p['sticky_actions']:g}, lives {lives}, "
        f"no-op starts {'up to ' + str(p['noop_max'] - 1) if p['noop_max'] > 1 else 'none'}, FIRE at the start "
        f"{'pressed' if p['fire_reset'] else 'not pressed'}; fresh games with epsilon {p['epsilon']:g}, played by "
        f"{p['backend']}; training: mean of the last 100 games",
        "human = 1: (score - random) / (human - random), of fresh games where they were played; [..]: 95% intervals, "
        "in the rows over all games by the stratified bootstrap over seeds",
        "published: mean while training, epsilon 0.01; `then`: at as many frames as here; in all: at the nearest "
        "frames that were published, and at their end",
    ]
    for text in dict.fromkeys("; ".join(x["differences"]) for x in result["published"] if x["differences"]):
        names = dict.fromkeys(x["family"] for x in result["published"] if "; ".join(x["differences"]) == text)
        out.append(f"* another protocol ({', '.join(names)}): {text}")
    for row in result["rows"]:
        out += [f"{row['game']}, seed {r['seed']}: {r['why']}" for r in row["runs"] if r["why"]]
    return out

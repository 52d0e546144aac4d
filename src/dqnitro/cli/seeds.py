"""`dqnitro train --seeds N`: several seeds of one config, their live display and their summary."""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from dqnitro.cli import one_seed
from dqnitro.cli.terminal.flags import config_changes, note
from dqnitro.cli.terminal.following import follow, last_line
from dqnitro.cli.terminal.launching import Job, Place, place
from dqnitro.cli.terminal.live import LOG_EVERY_S, Block, json_line
from dqnitro.cli.terminal.training import planned
from dqnitro.cli.terminal.wording import duration
from dqnitro.errors import ConfigError
from dqnitro.report.formatting import plural
from dqnitro.seeds.folder import FILE, SeedsFolder, seed_range
from dqnitro.seeds.summary import all_facts, last_progress, seed_facts
from dqnitro.storage.by_url import is_url
from dqnitro.storage.home import Home, home_at

if TYPE_CHECKING:
    from dqnitro.cli.terminal.launching import AnyTeam
    from dqnitro.config import Config
    from dqnitro.store.run_folder import RunFolder

SHOW_EVERY_S = 1.0
TOP = (FILE, "summary.json", "page.html")  # of the whole folder
STATES = {
    "solved": "solved", "steps": "at --steps", "minutes": "at --minutes", "stopped": "stopped", "diverged": "diverged",
    "crashed": "crashed", "failed": "failed", "waiting": "waiting", "running": "running",
}  # fmt: skip


def train_seeds(args: argparse.Namespace) -> int:
    """Start or continue the seeds of a folder; returns the exit code."""
    plan = None if args.resume else planned(args)  # what is wrong with it is said before a cluster starts
    if plan is not None and plan[0].runner == "cluster":
        raise ConfigError(
            "--seeds cannot be used with --runner cluster: each seed would want the cluster for itself",
            "leave out --runner cluster; --on CLUSTER runs whole seeds on its nodes",
        )
    url = next((text for text in (args.run_dir, args.resume) if text and is_url(text)), None)
    with home_at(url, FILE, bool(args.resume)) as home:
        try:
            folder, team, stopped, wall_s = _trained(args, plan, home)
            return _finish(folder, team, stopped, wall_s, args, home)
        finally:
            home.keep(TOP)


def _trained(
    args: argparse.Namespace, plan: tuple[Config, Sequence[str]] | None, home: Home
) -> tuple[SeedsFolder, AnyTeam, str | None, float]:
    """Run the seeds that are not done; returns the signal that stopped them, if any, and the seconds it took."""
    with place(args.on) as here, contextlib.ExitStack() as held:
        if plan is None:
            folder, more_minutes, owner = _resumed(args, here, home, held)
        else:
            folder, more_minutes = _created(args, *plan, here, home), False
            owner = _owned(folder.path, held)
        home.keep([FILE])
        todo = [s for s in folder.seeds if not folder.is_done(s, more_minutes)]
        options = ["--eval-games", str(args.eval_games), *(["--no-video"] if args.no_video else [])]
        # A seed that a cluster lost resumes within the command that named its environment.
        options += ["--trust"] if args.trust or plan is not None else []
        team = _team(here, folder, todo, options, more_minutes, home)
        with home.followed(_tops(folder)), Block(args.quiet) as block:
            show = Display(block, LOG_EVERY_S if args.log_every is None else args.log_every, args.json_lines)
            return folder, team, *_follow(team, folder, owner, show, home)


def _owned(path: pathlib.Path, held: contextlib.ExitStack) -> RunFolder:
    """The folder, locked until `held` ends: one command at a time starts seeds in it."""
    from dqnitro.store.run_folder import RunFolder

    owner = RunFolder(path)
    owner.lock()
    held.callback(owner.unlock)
    return owner


def _tops(folder: SeedsFolder) -> list[str]:
    """The runs of a folder and their logs, as names in it."""
    return [path.name for s in folder.seeds for path in (folder.run_dir(s), folder.log(s))]


@dataclass
class Display:
    """How the seeds are shown: the live block on a terminal; elsewhere, and as JSON lines, every `log_every_s`."""

    block: Block
    log_every_s: float
    json_lines: bool
    begun: float = field(default_factory=time.monotonic)
    shown: float = 0.0  # when the block was last drawn
    logged: float = field(default_factory=time.monotonic)

    def look(self, folder: SeedsFolder, team: AnyTeam, ended: Sequence[Any]) -> None:
        """Show what is due."""
        now = time.monotonic()
        plainly = not self.block.live and not self.block.quiet and not self.json_lines
        if plainly:
            for member in ended:
                note(_line(_facts(folder, team, member.seed)))
        if self.block.live and now - self.shown >= SHOW_EVERY_S:
            self.shown = now
            self.block.show(block_lines(folder, team, now - self.begun))
        if now - self.logged >= self.log_every_s:
            self.logged = now
            if self.json_lines:
                rows = [_now(folder, team, seed) for seed in folder.seeds]
                print(json_line("progress", wall_s=now - self.begun, seeds=rows), flush=True)
            elif plainly:
                note(log_line(folder, team, now - self.begun))


def _team(
    here: Place, folder: SeedsFolder, todo: Sequence[int], options: Sequence[str], more_minutes: bool, home: Home
) -> AnyTeam:
    """The processes of these seeds. A new folder goes if no node can take them."""
    from dqnitro.seeds.allocation import least_need

    def command(seed: int) -> list[str]:
        minutes = folder.config.max_minutes if more_minutes else folder.minutes_left(seed)
        return one_seed.command(folder.path.resolve(), seed, "--minutes", repr(float(minutes)), *options)

    jobs = {s: Job(partial(command, s), folder.log(s), folder.run_dir(s), f"seed {s}") for s in todo}
    try:
        need = None if here.cluster is None else least_need(folder.config)
        threads, request = folder.config.torch_threads, folder.path / FILE
        return here.team(jobs, folder.at_once, threads, need, request, folder.config, home, folder.most)
    except BaseException:
        folder.discard_if_empty()
        raise


def _created(args: argparse.Namespace, config: Config, rungs: Sequence[str], here: Place, home: Home) -> SeedsFolder:
    seeds = seed_range(config.seed, args.seeds)
    from dqnitro.store.run_folder import new_run_dir

    mine = here.share(config, len(seeds), args.at_once or 0)
    config = config.replace(torch_threads=mine.torch_threads, env_threads=mine.env_threads)
    root, label = pathlib.Path("runs"), f"s{seeds[0]}-{seeds[-1]}"
    path = home.path or (pathlib.Path(args.run_dir) if args.run_dir else new_run_dir(config, args.recipe, root, label))
    folder = SeedsFolder.create(path, config, seeds, args.recipe, rungs, mine.at_once, args.at_once or 0)
    note(
        f"{config.env_id}, recipe {args.recipe}, seeds {seeds[0]} to {seeds[-1]}, {mine.at_once} in parallel "
        f"({mine.why}), "
        f"each with {mine.torch_threads} torch and {mine.env_threads} console threads -> {home.url or path}"
    )
    return folder


def _resumed(
    args: argparse.Namespace, here: Place, home: Home, held: contextlib.ExitStack
) -> tuple[SeedsFolder, bool, RunFolder]:
    """The folder; whether `--minutes` was given: then the time counts from the resume; and the folder's lock."""
    if args.seeds is not None:
        raise ConfigError(
            "--seeds cannot be used with --resume", "the folder already names its seeds; start a new one for more"
        )
    from dqnitro.envs.names import check_trust

    path, changes = home.path or pathlib.Path(args.resume), config_changes(args)
    owner = _owned(path, held)
    folder = SeedsFolder.read(path)
    home.fetch(_tops(folder))
    check_trust(folder.config, args.trust)
    most = args.at_once or folder.most
    room = here.carries(folder.config) if here.cluster is not None else most or folder.at_once
    folder = folder.changed(changes, max(1, min(room, most or room, len(folder.seeds))), most)
    told = f"{plural(len(folder.seeds), 'seed')}, {folder.at_once} in parallel"
    note(f"{folder.config.env_id}: resuming {args.resume}, {told}")
    return folder, "max_minutes" in changes, owner


def _follow(
    team: AnyTeam, folder: SeedsFolder, owner: RunFolder, show: Display, home: Home
) -> tuple[str | None, float]:
    """Wait until all seeds have ended; returns the signal that stopped them, if any, and the seconds it took."""

    def look(ended: Sequence[Any]) -> None:
        if ended:  # how they did
            home.fetch([path.name for m in ended for path in (folder.run_dir(m.seed), folder.log(m.seed))])
        show.look(folder, team, ended)

    owner.write_summary("running", env_id=folder.config.env_id)
    return follow(team, look, lambda seed: f"seed {seed}", "seed")


def _facts(folder: SeedsFolder, team: AnyTeam, seed: int) -> dict[str, Any]:
    member = team.members.get(seed)
    code = member.code if member else None
    why = last_line(member, folder.log(seed)) if code else ""
    found = seed_facts(folder, seed, code, why)
    if found["state"] in ("solved", "steps", "minutes", "stopped", "waiting"):
        found["why"] = None  # its last line is not an error
    return found


def _now(folder: SeedsFolder, team: AnyTeam, seed: int) -> dict[str, Any]:
    """The facts of a seed; of a running one the newest numbers that its process wrote."""
    found = _facts(folder, team, seed)
    if seed in team.running:
        p = last_progress(folder.run_dir(seed) / "metrics.jsonl")
        found |= {
            "state": "running" if p else "starting",
            **{k: p.get(k) for k in ("mean_score", "steps", "steps_per_s", "wall_s")},
        }
    return found


def _head(folder: SeedsFolder, rows: Sequence[Mapping[str, Any]], seconds: float) -> str:
    counts = {s: sum(r["state"] == s for r in rows) for s in ("solved", "running", "starting", "waiting")}
    told = ", ".join(f"{n} {s}" for s, n in counts.items() if n)
    return f"{folder.config.env_id} · {folder.recipe} · {plural(len(rows), 'seed')}   {duration(seconds)}   {told}"


def block_lines(folder: SeedsFolder, team: AnyTeam, seconds: float) -> list[str]:
    """The live display: one line per seed."""
    rows = [_now(folder, team, seed) for seed in folder.seeds]
    return [_head(folder, rows, seconds), *(f"  {_line(r)}" for r in rows)]


def log_line(folder: SeedsFolder, team: AnyTeam, seconds: float) -> str:
    """All seeds in one line of a log: how many are where, their scores and their speed together."""
    rows = [_now(folder, team, seed) for seed in folder.seeds]
    scores = [r["mean_score"] for r in rows if r.get("mean_score") is not None]
    speed = sum(r.get("steps_per_s") or 0.0 for r in rows if r["state"] == "running")
    told = f"   scores {min(scores):.1f} to {max(scores):.1f}" if scores else ""
    return _head(folder, rows, seconds) + told + (f"   {speed:,.0f} steps/s together" if speed else "")


def _line(r: Mapping[str, Any]) -> str:
    parts = [f"seed {r['seed']:<4} {STATES.get(r['state'], r['state']):<12}"]
    if r["steps"]:
        score = "no game yet" if r["mean_score"] is None else f"score {r['mean_score']:.1f}"
        parts += [
            f"{score:<12}",
            f"{r['steps']:>11,} steps",
            f"{r['steps_per_s'] or 0:>8,.0f} steps/s",
            duration(r["wall_s"] or 0.0),
        ]
    if r.get("why"):
        parts.append(r["why"])
    return "  ".join(parts).rstrip()


def _finish(
    folder: SeedsFolder, team: AnyTeam, stopped: str | None, wall_s: float, args: argparse.Namespace, home: Home
) -> int:
    from dqnitro.session import EXIT_CODES
    from dqnitro.store.run_folder import RunFolder

    runs = [_facts(folder, team, s) for s in folder.seeds]
    failed = [r for r in runs if r["exit_code"] and r["state"] not in ("stopped", "waiting")]
    if failed and not stopped and len({r["why"] for r in failed}) == 1 and folder.discard_if_empty():
        # No seed could start, all for the same reason: report it as a single run would.
        print(f"dqnitro train: {failed[0]['why']}", file=sys.stderr)
        return _code(failed)
    ended, at_once = stopped or ("failed" if failed else "done"), max(folder.at_once, team.peak)
    facts = home.named(all_facts(folder, runs) | {"ended": ended, "whole_wall_s": wall_s, "at_once": at_once})
    RunFolder(folder.path).write_summary("stopped" if stopped else facts["ended"], **facts)
    page = home.named(_page(folder))
    if args.json_lines:
        print(json_line("result", **facts, page=page), flush=True)
    elif args.json:
        json.dump(facts | {"page": page}, sys.stdout, indent=1)
        print()
    else:
        print("\n".join(summary_lines(facts, page, args.on)))
    return EXIT_CODES[stopped] if stopped else _code(failed)


def _code(failed: Sequence[Mapping[str, Any]]) -> int:
    """The exit code of the first seed that failed; a seed killed by a signal counts as an unexpected failure."""
    return 0 if not failed else max(1, failed[0]["exit_code"])


def _page(folder: SeedsFolder) -> str | None:
    from dqnitro.report.html import write_page
    from dqnitro.report.lab_page import render_lab
    from dqnitro.store.read_run import read_run, run_folders

    runs = [read_run(p) for p in run_folders(folder.path)]
    if not runs:
        return None
    page = folder.path / "page.html"
    write_page(page, render_lab(runs, [], page))
    return str(page)


def summary_lines(f: Mapping[str, Any], page: str | None, on: str | None = None) -> list[str]:
    """The summary printed at the end."""
    n, states = len(f["runs"]), [r["state"] for r in f["runs"]]
    told = ", ".join(f"{states.count(s)} {STATES.get(s, s)}" for s in dict.fromkeys(states))
    rows = [
        f"{f['env_id']}: {plural(n, 'seed')}, {told}, after {duration(f['whole_wall_s'])} ({f['at_once']} in parallel)"
    ]
    rows += [f"  {_line(r)}" for r in f["runs"]]
    for word, key, say in (
        ("score", "score", lambda x: f"{x:.2f}"),
        ("fresh", "fresh_score", lambda x: f"{x:.2f}"),
        ("to solve", "seconds_to_solve", duration),
        ("steps", "steps_to_solve", lambda x: f"{x:,.0f}"),
        ("steps/s", "steps_per_s", lambda x: f"{x:,.0f}"),
    ):
        if f[key]:
            rows.append(f"  {word:<8} {spread_text(f[key], say)}" + (" to solve" if word == "steps" else ""))
    rows.append(f"  files    {f['run_dir']}")
    if page:
        rows.append(f"  page     {page}")
    trust, on = " --trust" if ":" in f["env_id"] else "", f" --on {on}" if on else ""
    rows.append(f"  resume   dqnitro train --resume {f['run_dir']}{trust}{on}")
    return rows


def spread_text(s: Mapping[str, Any], say: Any) -> str:
    """median 17.2, range 16.9 to 17.6, mean 17.2 [17.0, 17.4], or why there is no median."""
    some = "" if s["n"] == s["of"] else f" ({s['n']} of {s['of']} seeds)"
    median = "no median (too few seeds reached it)" if s["median"] is None else f"median {say(s['median'])}"
    text = f"{median}, range {say(s['min'])} to {say(s['max'])}{some}"
    i = s["interval"]
    return text + (f", mean {say(i['mean'])} [{say(i['low'])}, {say(i['high'])}]" if i and i["n"] > 1 else "")

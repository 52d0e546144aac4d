"""`dqnitro train --gpus N`: N processes of this machine, one for each GPU, and what each of them does as a rank.

The process of the command starts the ranks with torchrun's variables and watches them; rank 0 has the terminal. If a
rank is lost, all are stopped, and with `--restarts` the run goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from dqnitro.cli.terminal.flags import note
from dqnitro.common.files import temporary_folder
from dqnitro.common.ports import free_port
from dqnitro.common.signals import ALWAYS, NUMBERS, signal_name
from dqnitro.config import Config
from dqnitro.distributed import world
from dqnitro.errors import ConfigError, RankLost, UserError

GRACE_S = 5.0  # for ranks that end by themselves after another has; then they are killed
POLL_S = 0.05


def ranks_wanted(args: argparse.Namespace) -> int:
    """How many ranks this command asks for: by `--gpus`, or because the run that it resumes has them."""
    if args.gpus is not None or not args.resume:
        return args.gpus or 1
    from dqnitro.store.checkpoint import complete, read_manifest

    try:
        found = complete(pathlib.Path(args.resume) / "checkpoints")
        gpus = read_manifest(found[-1])["config"].get("gpus", 1) if found else 1
    except (UserError, LookupError, AttributeError, OSError):  # `resume` says what is wrong
        return 1
    return gpus if isinstance(gpus, int) and gpus > 1 else 1


# ---- the process of the command


class Crew:
    """The processes of all ranks of this machine."""

    def __init__(self, command: Sequence[str], size: int, folder: pathlib.Path) -> None:
        common = {
            **os.environ, "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()), world.OURS: str(folder), "GLOO_SOCKET_IFNAME": "lo",
        }  # fmt: skip
        if sys.platform == "darwin":
            common["GLOO_SOCKET_IFNAME"] = "lo0"
        self.logs = [folder / f"rank{rank}.log" for rank in range(size)]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.given_up: dict[int, str] = {}  # ranks that were ended because they had been stopped
        for rank in range(size):
            # Sessions of their own: Ctrl-C in a terminal must reach rank 0 once, through this process. Standard input
            # closes when this process is gone, however it went.
            log = None if rank == 0 else self.logs[rank].open("wb")
            self.processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "dqnitro", *command], stdin=subprocess.PIPE, stdout=log, stderr=log,
                    env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}, start_new_session=True,
                )
            )  # fmt: skip
            if log is not None:
                log.close()

    def wait(self, told: list[int]) -> dict[int, int]:
        """Until all have ended; the codes of those that ended by themselves. `told`: signals for rank 0, which decides
        for all.
        """
        from dqnitro.run.processes.watchdog import HeldUp

        deadline = float("inf")
        ended: dict[int, int] = {}
        held = {rank: HeldUp(p.pid) for rank, p in enumerate(self.processes)}
        while len(ended) < len(self.processes):
            while told:
                self.processes[0].send_signal(told.pop(0))
                self.processes[0].send_signal(signal.SIGCONT)
            ended |= {rank: p.returncode for rank, p in enumerate(self.processes) if p.poll() is not None}
            for rank in held.keys() - ended.keys():
                if why := held[rank].waited(POLL_S):
                    self.given_up[rank] = why
                    self.processes[rank].kill()
            if any(ended.values()):
                deadline = min(deadline, time.monotonic() + GRACE_S)
            if time.monotonic() > deadline:
                self.kill()
                break
            time.sleep(POLL_S)
        return ended

    def kill(self) -> None:
        for p in self.processes:
            if p.poll() is None:
                p.kill()
                p.wait()

    def last_words(self, rank: int) -> str:
        from dqnitro.seeds.launcher import last_words

        return last_words(self.logs[rank]) if rank else ""


def lost_rank(codes: dict[int, int]) -> int | None:
    """The rank whose loss ended the others: one that was killed, or else failed, or else is still there and silent."""
    if 1 <= codes.get(0, 0) != RankLost.exit_code or not any(codes.values()):
        return None  # rank 0 has ended the run, and has said why
    return min((rank for rank, code in codes.items() if code), key=lambda rank: _order(codes[rank]))


def _order(code: int) -> int:
    return 0 if code < 0 else 2 if code == RankLost.exit_code else 1


def how_it_ended(code: int, words: str, given_up: str = "") -> str:
    if given_up or code >= 0:
        return given_up or words or f"exit code {code}"
    aborted = -code == signal.SIGABRT and words  # which it did itself, and has said why
    return f"killed by {signal_name(-code)}" + (f": {words}" if aborted else "")


@contextlib.contextmanager
def _noted_signals() -> Iterator[list[int]]:
    """Signals that have come to this process, for rank 0."""
    told: list[int] = []
    heard = [n for n in NUMBERS if n in ALWAYS or signal.getsignal(n) != signal.SIG_IGN]  # `nohup` ignores one
    old = {n: signal.signal(n, lambda number, _: told.append(number)) for n in heard}
    try:
        yield told
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def launch(args: argparse.Namespace, argv: Sequence[str], size: int) -> int:
    """Start all ranks, again if one is lost and `--restarts` allows it; the exit code."""
    _config(args)  # what cannot work is said before anything is started
    _check_new(args)
    command, left = ["train", *argv], args.restarts or 0
    with temporary_folder("dqnitro-ranks-") as folder, _noted_signals() as told:
        while True:
            crew = Crew(command, size, folder)
            try:
                codes = crew.wait(told)
            finally:
                crew.kill()
            rank = lost_rank(codes)
            if rank is None:
                return codes.get(0, RankLost.exit_code)
            how = how_it_ended(codes[rank], crew.last_words(rank), crew.given_up.get(rank, ""))
            again = left > 0 and not told
            note(_told(rank, size, how, _run_dir(folder, args), again))
            if not again:
                return RankLost.exit_code
            left -= 1
            command = _restarted(args, argv, _run_dir(folder, args), size)


def _check_new(args: argparse.Namespace) -> None:
    """The folder of a new run is empty, so that all that is in it later comes from the ranks."""
    path = pathlib.Path(args.run_dir) if args.run_dir and not args.resume else None
    if path is not None and path.is_dir() and any(path.iterdir()):
        raise ConfigError(f"{path} is not empty", f"--resume {path} continues that run; --run-dir takes a new name")


def _run_dir(folder: pathlib.Path, args: argparse.Namespace) -> pathlib.Path | None:
    """The folder of the run, which rank 0 has written down."""
    if args.resume:
        return pathlib.Path(args.resume)
    try:
        return pathlib.Path((folder / "run_dir").read_text())
    except OSError:
        return None


def _steps_saved(run: pathlib.Path | None) -> int | None:
    from dqnitro.store.checkpoint import complete

    found = complete(run / "checkpoints") if run else []
    return int(found[-1].name.partition(".")[0]) if found else None


def _told(rank: int, size: int, how: str, run: pathlib.Path | None, again: bool) -> str:
    saved = _steps_saved(run)
    where = "there is no checkpoint yet" if saved is None else f"the last checkpoint is of step {saved:,}"
    hint = f"; hint: dqnitro train --resume {run}" * (saved is not None)
    then = "starting again" if again else "all ranks have stopped"
    return f"dqnitro train: rank {rank} of {size} was lost ({how}); {where}; {then}{'' if again else hint}"


KEPT = ("no_video", "quiet", "json", "json_lines")  # options of a command that also fit its continuation


def _restarted(args: argparse.Namespace, argv: Sequence[str], run: pathlib.Path | None, size: int) -> list[str]:
    """The command that goes on with a run, or starts it again where it had saved nothing."""
    if _steps_saved(run) is None:
        if run is not None and not args.resume:
            shutil.rmtree(run, ignore_errors=True)
        return ["train", *argv]
    kept = [f"--{name.replace('_', '-')}" for name in KEPT if getattr(args, name)]
    kept += ["--trust"] * (args.trust or not args.resume)  # what this command began it may go on with
    log = ["--log-every", str(args.log_every)] if args.log_every else []
    return ["train", "--resume", str(run), "--gpus", str(size), "--eval-games", str(args.eval_games), *kept, *log]


# ---- a rank


@contextlib.contextmanager
def ranks_of(config: Config, run_dir: pathlib.Path) -> Iterator[None]:
    """Rank 0 meets the others before a run begins; nothing if there are none."""
    here = world.place()
    if config.gpus == 1 or here is None:
        yield
        return
    if here.launched:
        (pathlib.Path(os.environ[world.OURS]) / "run_dir").write_text(str(run_dir.resolve()))
        from dqnitro.seeds.launcher import stop_with_parent

        stop_with_parent()
    with world.joined(here, cuda=config.device != "cpu"):
        agree(config, here, run_dir)
        try:
            yield
        except RankLost as e:
            leave(e, here)


def follow_rank_0(args: argparse.Namespace, here: world.Place) -> int:
    """Another rank than 0: plan the same run, and do as rank 0 says."""
    from dqnitro.learn.fixed_order import fixed_order
    from dqnitro.run.gpu.replicas import follow

    try:
        config = _config(args)
    except UserError as e:
        if here.launched:
            print(f"dqnitro train: {e}", file=sys.stderr)
        return e.exit_code  # rank 0 says the same
    try:
        with world.joined(here, cuda=config.device != "cpu"), fixed_order(config):
            agree(config, here, None)
            follow(config)
    except RankLost as e:
        leave(e, here)
    except UserError as e:
        if here.launched:
            print(f"dqnitro train: {e}", file=sys.stderr)
        return e.exit_code
    return 0


def _config(args: argparse.Namespace) -> Config:
    """The config that rank 0 will have, found without a word."""
    from dqnitro.cli.terminal.flags import config_changes
    from dqnitro.planning import Wish, planned
    from dqnitro.play import load_config
    from dqnitro.requirements import check_runner

    changes = config_changes(args)
    if not args.resume:
        if not args.game:
            raise ConfigError("no game was given", "`dqnitro train pong --gpus 8`, or `--resume RUN`")
        return planned(Wish(args.game, args.recipe or "auto", args.without, args.also, changes)).config
    config = load_config(pathlib.Path(args.resume), args.trust).replace(**changes)
    check_runner(config)
    return config


def agree(config: Config, here: world.Place, run_dir: pathlib.Path | None) -> None:
    """ConfigError on all ranks if one has another DQNitro, another config, or another disk."""
    from dqnitro.cluster.nodes import versions
    from dqnitro.distributed.messages import Messages

    messages = Messages()
    said = messages.gather({"versions": versions(), "config": config.to_dict()})
    for rank, theirs in enumerate(said):
        if what := difference(said[0], theirs):
            raise ConfigError(f"rank {rank} has {what}", "start all ranks with the same command and the same packages")
    probe = None
    if run_dir is not None:
        above = next(p for p in (run_dir.resolve(), *run_dir.resolve().parents) if p.is_dir())
        probe = above / f".dqnitro-{os.getpid()}"
        with contextlib.suppress(OSError):  # `train` says so
            probe.write_text("")
    try:
        name = messages.tell(str(probe) if probe and probe.exists() else "")
        seen = messages.gather(not name or pathlib.Path(name).exists())
    finally:
        if probe is not None:
            probe.unlink(missing_ok=True)
    if not all(seen):
        raise ConfigError(
            f"rank {seen.index(False)} does not see {pathlib.Path(name).parent}",
            "give a folder on storage that all machines mount at the same place with --run-dir",
        )


def difference(mine: Any, theirs: Any) -> str:
    """What another rank has that rank 0 has not, in words; empty if all is equal."""
    for what in ("versions", "config"):
        for name, value in mine[what].items():
            if theirs[what].get(name) != value:
                return f"{name} {theirs[what].get(name)}, rank 0 has {value}"
    return ""


def leave(error: RankLost, here: world.Place) -> None:
    """End now: a GPU may wait for a rank that is gone, and would hold up an orderly end."""
    if not here.launched and here.rank == 0:
        print(f"\ndqnitro train: {error}", file=sys.stderr)
    elif here.rank:
        print(f"dqnitro train: {error}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(error.exit_code)

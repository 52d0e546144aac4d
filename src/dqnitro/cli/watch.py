"""`dqnitro watch`: the page of a run that is still training, served on this machine only."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from dqnitro.cli.terminal.flags import Parser, count, note
from dqnitro.common.files import temporary_folder
from dqnitro.common.signals import orderly
from dqnitro.errors import ConfigError, UserError
from dqnitro.report.run_page import Film

DESCRIPTION = """\
Watch a run while it trains: a page on this machine that refreshes itself.

Examples
  dqnitro watch runs/pong-auto-s1-...            then open the address that it prints
  dqnitro watch /mnt/cluster/runs/pong-...       a run of another machine, on a shared disk
  dqnitro watch runs/pong-auto-s1-... --no-game  without playing games: the page costs next to nothing

It shows the score, the speed, where the time goes, and a game played with the newest weights that the run has saved
(every `checkpoint_every_s` seconds). It only reads the run's files. The page answers on 127.0.0.1 alone; over ssh
forward the port: `ssh -L 8050:127.0.0.1:8050 HOST`. Ctrl-C ends it; the run goes on.
Exit codes: 0 ended by Ctrl-C, 2 bad input.
"""

REFRESH_S = 3.0
FRESH_S = 60.0  # a run whose files changed this recently is running, even where its lock cannot be seen
LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d+)?", re.I)


def main(argv: list[str]) -> int:
    p = Parser("watch", "RUN [options]", DESCRIPTION)
    p.add_argument("run", help="the folder of a run")
    p.add_argument(
        "--port", type=count(0, 65535), default=8050, metavar="N", help="port on 127.0.0.1 (default: 8050; 0: any)"
    )
    p.add_argument("--no-game", action="store_true", help="do not play games with the newest weights")
    p.add_argument("--trust", action="store_true", help="import the module of the run's environment (module:Id)")
    args = p.parse(argv)
    from dqnitro.store.read_run import read_run

    run = pathlib.Path(args.run)
    read_run(run)  # report a wrong folder before anything is served
    with orderly(), temporary_folder("dqnitro-watch-") as folder:
        game = None if args.no_game else Game(run, folder, args.trust)
        try:
            server = serve(Page(run, game), args.port)
        except (OSError, OverflowError) as e:
            raise ConfigError(f"cannot use port {args.port} ({e})", "choose another with --port, or 0 for any") from e
        if game:
            if hasattr(os, "nice"):  # not on Windows
                os.nice(10)  # the run itself goes first
            game.start()
        note(f"watching {run}; Ctrl-C ends it")
        print(f"http://127.0.0.1:{server.server_address[1]}/", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return 0
        finally:
            server.server_close()
            if game:
                game.close()
    return 0


class Game:
    """Records a game whenever the run has saved new weights, in a thread."""

    def __init__(self, run: pathlib.Path, folder: pathlib.Path, trust: bool = False) -> None:
        self._run, self._folder, self._trust = run, folder, trust
        self.film: Film | None = None
        self.path: pathlib.Path | None = None
        self._played: float | None = None  # the time stamp of the weights that were played last
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="game", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join(timeout=5.0)

    def _follow(self) -> None:
        while not self._ended.is_set():
            self.look()
            self._ended.wait(2.0)

    def look(self) -> None:
        """Play a game if there are new weights; why that is impossible is said in place of the film."""
        try:
            stamp = (self._run / "model.safetensors").stat().st_mtime
        except OSError:
            return
        if stamp == self._played:
            return
        self._played = stamp
        from dqnitro.play import record

        path = self._folder / f"game-{stamp:.0f}.mp4"
        try:
            end, _ = record(self._run, path, seed=int(stamp) % 1000, trust=self._trust, stopped=self._ended.is_set)
        except Exception as e:  # weights being replaced, an environment that cannot be rendered
            self.film = self.film or Film("", f"No game can be shown: {e}")
            return
        when = time.strftime("%H:%M:%S", time.localtime(stamp))
        before, self.path = self.path, path
        self.film = Film(f"/{path.name}", f"A game with the weights of {when}, score {end.score:g}")
        if before is not None:
            before.unlink(missing_ok=True)


class Page:
    """The page of the run as it is now. It is made again only if the files changed, and never for most of the time."""

    def __init__(self, run: pathlib.Path, game: Game | None) -> None:
        self.run, self.game = run, game
        self._lock = threading.Lock()
        self._made: tuple[Any, str] | None = None
        self._not_before = 0.0

    def text(self) -> str:
        with self._lock:
            film = self.game.film if self.game else None
            key = (film, *(_stamp(self.run / name) for name in ("metrics.jsonl", "summary.json", "game.mp4")))
            if self._made is None or (key != self._made[0] and time.monotonic() >= self._not_before):
                begin = time.monotonic()
                self._made = key, self._render(film)
                # A long run's file takes seconds to read: at most a tenth of the time goes into it.
                self._not_before = time.monotonic() + 9 * (time.monotonic() - begin)
            return self._made[1]

    def _render(self, film: Film | None) -> str:
        from dqnitro.report.run_page import render_run
        from dqnitro.store.read_run import read_run

        run = read_run(self.run)
        newest = max((s[1] for n in ("metrics.jsonl", "summary.json") if (s := _stamp(self.run / n))), default=0.0)
        if run.summary.get("state") == "running" and time.time() - newest < FRESH_S:
            run = dataclasses.replace(run, state="running")  # on another machine's disk the lock cannot be seen
        live = run.state == "running"
        if live and film is None and self.game:
            film = Film("", "A game is shown once the run has saved its weights (checkpoint_every_s).")
        return render_run(run, self.run / "page.html", film if live else None, REFRESH_S if live else 0.0)


def _stamp(path: pathlib.Path) -> tuple[int, float] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime


def serve(page: Page, port: int) -> ThreadingHTTPServer:
    """A server on 127.0.0.1 for the page and the newest game; nothing else can be read through it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            # A site that points its own name at 127.0.0.1 must not read the page through a visitor's browser.
            if not LOCAL.fullmatch(self.headers.get("Host", "")):
                self.send_error(403, "this page answers to 127.0.0.1 and localhost only")
                return
            film = page.game.path if page.game else None
            if self.path == "/":
                try:
                    text = page.text()
                except (UserError, OSError) as e:  # the folder was moved, or a file damaged
                    self.send_error(503, "the run cannot be read now", str(e))
                    return
                self._send("text/html; charset=utf-8", text.encode("utf-8", "replace"))
            elif film is not None and self.path == f"/{film.name}":
                try:
                    self._send("video/mp4", film.read_bytes())
                except OSError:
                    self.send_error(404)
            else:
                self.send_error(404)

        def _send(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            for name, value in (
                ("Content-Type", kind),
                ("Content-Length", str(len(body))),
                ("Cache-Control", "no-store"),
            ):
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: a line per refresh would bury the address."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: Any, client_address: Any) -> None:
            if not isinstance(sys.exception(), ConnectionError):  # a browser that has left
                super().handle_error(request, client_address)

    return Server(("127.0.0.1", port), Handler)

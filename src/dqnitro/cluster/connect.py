"""Reach a Ray cluster, or start one on this machine; every reason why that fails is one line."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from dqnitro.errors import ConfigError

LOCAL, FOUND, REMOTE = "ray", "auto", "ray://"
INSTALL = "pip install 'dqnitro[cluster]'"
ANSWER_S = 5.0  # for a TCP connection; Ray itself would try for half a minute
HANGUP = (signal.SIGHUP,) if hasattr(signal, "SIGHUP") else ()  # Windows has none
STORE_BYTES = 256 << 20  # of the object store of a cluster that is started here: weights and chunks, not datasets
HINT_TOKEN = "copy ~/.ray/auth_token from the cluster's first machine, or set RAY_AUTH_TOKEN to what is in it"
ADDRESS = "DQNITRO_CLUSTER"  # an environment variable, because where a run is played is not one of its settings


def chosen_address() -> str:
    """The cluster of the runner `cluster`: what `--on` said, or one on this machine."""
    return os.environ.get(ADDRESS) or LOCAL


def check_address(text: str) -> str:
    """`ray`, `auto` or `ray://HOST:PORT`; anything else is a ConfigError."""
    if text in (LOCAL, FOUND):
        return text
    host, _, port = text.removeprefix(REMOTE).rpartition(":")
    if not text.startswith(REMOTE) or not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise ConfigError(
            f"--on {text}: not the address of a cluster",
            "ray (started on this machine), auto (the one that this machine belongs to), or ray://HOST:10001",
        )
    return text


class Cluster:
    """A connection to Ray. Closing it also ends a cluster that was started for it."""

    def __init__(self, ray: Any, where: str, ours: bool) -> None:
        self.ray, self.where, self._ours = ray, where, ours

    def close(self) -> None:
        """End the connection. May be called twice."""
        if self._ours:
            self._ours = False
            self.ray.shutdown()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def connect(where: str) -> Cluster:
    """The cluster at an address of `check_address`; a connection that the program already has is used as it is."""
    check_address(where)
    ray = import_ray(where)
    if ray.is_initialized():
        return Cluster(ray, where, ours=False)
    if address := where if where.startswith(REMOTE) else _found() if where == FOUND else "":
        _knock(where, address)
    options: dict[str, Any] = {"address": "local" if where == LOCAL else where}
    if where == LOCAL:
        from dqnitro.common.host import usable_cores

        options |= {"num_cpus": usable_cores(), "object_store_memory": STORE_BYTES, "include_dashboard": False}
    try:
        with handlers_kept(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # what went wrong is the error's to say
            _init(ray, logging_level=logging.ERROR, log_to_driver=False, **options)
    except ConnectionError as e:
        ray.shutdown()
        if where.startswith(REMOTE) and "timeout" in str(e):  # something answers there, and Ray says no more
            raise ConfigError(f"--on {where}: that is no Ray cluster, or it asks for another token", HINT_TOKEN) from e
        raise ConfigError(f"--on {where}: no Ray cluster was found ({_short(e)})", _hint(where)) from e
    except Exception as e:  # Ray has a dozen kinds; another version of Ray or Python is a RuntimeError with both in it
        ray.shutdown()
        raise ConfigError(f"--on {where}: cannot use that cluster ({_short(e)})", _hint(where, str(e))) from e
    return Cluster(ray, where, ours=True)


def _init(ray: Any, **options: Any) -> None:
    """A client has a server process of its own at the other end, which sometimes dies as it starts: ray-project/ray
    #63202.
    """
    try:
        ray.init(**options)
    except ConnectionAbortedError:
        ray.shutdown()
        ray.init(**options)


@contextlib.contextmanager
def handlers_kept() -> Iterator[None]:
    """Ray puts handlers of its own on signals, which abort; those of a run save it first, and stay."""
    if threading.current_thread() is not threading.main_thread():
        yield  # there Ray leaves them alone
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, *HANGUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)


def import_ray(where: str) -> Any:
    """Ray, told to be quiet, to report nothing to its makers, and to listen on localhost only if it starts here."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if where == LOCAL:
        # Its name is older than its use: without clusters Ray takes 127.0.0.1 as the address of this machine, on every
        # system, and binds all its ports there. It is read when Ray is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    address = os.environ.get("RAY_ADDRESS", "") if where == FOUND else where
    sends_token = address.startswith(REMOTE) and "RAY_AUTH_MODE" not in os.environ and _has_token()
    if sends_token:
        # A cluster that was started on a machine with a token asks for it. Ray sends it by itself, except as a client.
        # A client may always send it, but a node must not where the others do not: they would not answer.
        os.environ["RAY_AUTH_MODE"] = "token"
    imported = "ray" in sys.modules
    try:
        import ray
    except ImportError as e:
        raise ConfigError(f"--on {where} needs Ray, which cannot be imported ({e})", INSTALL) from e
    # Now for a program that had imported Ray before; versions without tokens have nothing to read again.
    if imported and sends_token and not ray.is_initialized():
        with contextlib.suppress(ImportError, AttributeError):
            importlib.import_module("ray._raylet").Config.initialize("")
    if where == LOCAL:
        setattr(importlib.import_module("ray._private.ray_constants"), "ENABLE_RAY_CLUSTER", False)  # noqa: B010
    # What happens to nodes and workers is printed on stdout otherwise, which is for results; we say it ourselves.
    setattr(importlib.import_module("ray._private.worker"), "_worker_logs_enabled", False)  # noqa: B010
    return ray


def _has_token() -> bool:
    """Whether one of the places where Ray looks has a token."""
    named = os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(os.environ.get("RAY_AUTH_TOKEN")) or os.path.isfile(named or os.path.expanduser("~/.ray/auth_token"))


def _found() -> str:
    """The address of the cluster that this machine belongs to, as Ray will find it; empty where Ray says more."""
    named = os.environ.get("RAY_ADDRESS", "")
    if named.startswith(REMOTE):
        return named
    try:
        return importlib.import_module("ray._private.services").canonicalize_bootstrap_address(FOUND) or ""
    except Exception:
        return ""


def _knock(where: str, address: str) -> None:
    """One line now, where Ray would try for minutes: a cluster that has ended leaves its address behind."""
    host, _, port = address.removeprefix(REMOTE).rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_S).close()
    except OSError as e:
        at = "there" if where == address else f"at {address}, where Ray says that it is"
        raise ConfigError(f"--on {where}: nothing answers {at} ({e})", _hint(where)) from e


def _short(e: BaseException) -> str:
    return " ".join(str(e).split())[:300] or type(e).__name__


def _hint(where: str, message: str = "") -> str:
    if "ersion mismatch" in message:
        return "install the versions of the cluster here, or those of this machine there"
    if where == LOCAL:
        return "is there room in /dev/shm and /tmp? `dqnitro train` without --on needs no cluster"
    return "`ray start --head` on one machine starts one; --on ray uses this machine alone"

"""Ports of this machine."""

from __future__ import annotations

import socket


def free_port() -> int:
    """A port on localhost that nobody listens on at the moment."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]

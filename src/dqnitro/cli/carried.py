"""A run on this machine whose folder is at a URL: `python -m dqnitro.cli.carried ORDER PARENT`.

It trains in a scratch folder, in a process of its own, and this one beside it brings what is new to the URL. A command
without a cluster starts it where it would start the run itself.
"""

from __future__ import annotations

import pathlib
import pickle
import signal
import sys

from dqnitro.seeds.launcher import SIGNALS_TRAVEL, stop_with_parent
from dqnitro.storage.host import RunHost

TOLD = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))


def main(argv: list[str]) -> int:
    path, parent = argv
    host = RunHost(int(parent))
    for number in TOLD:
        signal.signal(number, lambda told, _: host.stop(told))
    if not SIGNALS_TRAVEL:
        stop_with_parent()  # elsewhere the host itself notices that the command is gone
    ended = host.run(pickle.loads(pathlib.Path(path).read_bytes()))  # of this machine's own command
    if ended.why:
        print(ended.why, file=sys.stderr)
    return ended.code if ended.code >= 0 else 128 - ended.code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

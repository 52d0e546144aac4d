"""A Python without what only POSIX has, in which a run is trained: argv is the folder of the run.

A stand-in for Windows: the same names are missing, but the system below is the same.
"""

import os
import signal
import sys

import psutil  # noqa: F401 - libraries may find what they like; our code must do without
import torch  # noqa: F401

GONE = {
    os: ("fork", "register_at_fork", "sched_getaffinity", "sched_setaffinity", "nice", "getloadavg", "memfd_create"),
    signal: ("SIGHUP", "SIGKILL", "SIGSTOP", "SIGCONT", "pthread_kill", "pthread_sigmask"),
}
for module, names in GONE.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
for library in ("fcntl", "resource", "termios", "pty"):
    sys.modules[library] = None  # type: ignore[assignment]

from dqnitro.cli import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

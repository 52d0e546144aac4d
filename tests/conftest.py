"""Shared by all tests. Every worker computes on one thread: two workers with two spinning threads each would crawl."""

import os
import signal

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ.setdefault("NO_COLOR", "1")
# What was tuned on this machine must not decide what the tests measure.
os.environ["DQNITRO_TUNED"] = os.devnull

# A shell starts what runs in the background with Ctrl-C ignored; tests send it to themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    """Long tests first. Begun last, one of them would keep one worker busy while the others have nothing left to do."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)

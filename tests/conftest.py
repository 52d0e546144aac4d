"""Shared by all tests. Every worker computes on one thread: two workers with two spinning threads each would crawl."""

import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ.setdefault("NO_COLOR", "1")
# What somebody tuned on this machine must not decide what the tests measure.
os.environ["DQNITRO_TUNED"] = os.devnull

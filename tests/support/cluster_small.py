"""Small runs on a cluster, which last as long as an accident there."""

import time

CORRIDOR = "support.fakes_envs:dqnitro_test/SlowOnRay-v0"
SMALL = [
    "--recipe", "baseline", "--hidden-units", "16", "--batch-size", "8", "--first-fill-steps", "50",
    "--torch-threads", "1", "--replay-capacity", "400", "--target-sync-steps", "20", "--n-envs", "2",
    "--no-video", "--stop-at", "1000",
    "--checkpoint-every-s", "0.5",
]  # fmt: skip


def wait_for(what, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what() and time.monotonic() < end:
        time.sleep(0.05)

"""A video on a disk without room: one error, no file, and above all no crash inside the encoder."""

import os
import pathlib
import subprocess
import sys

import pytest

SRC = pathlib.Path(__file__).parents[2] / "src"

FILM = """
import pathlib, resource, sys
import numpy as np
from dqnitro.errors import StorageError
from dqnitro.play import VideoWriter

resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
random = np.random.default_rng(0)
writer = VideoWriter(pathlib.Path("game.mp4"), 60.0)
for _ in range(30):
    writer(random.integers(0, 256, (210, 160, 3), np.uint8))
try:
    writer.close()
except StorageError as error:
    print(f"refused: {error}")
print(sorted(p.name for p in pathlib.Path().iterdir()))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no limits of file sizes; run it on Linux or macOS")
@pytest.mark.parametrize(("room", "fits"), [(0, False), (20_000, False), (10**9, True)])
def test_a_video_that_does_not_fit_is_an_error_and_leaves_nothing(room, fits, tmp_path):
    environment = os.environ | {"PYTHONPATH": str(SRC), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", FILM, str(room)], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-1000:])
    assert ("refused: " in done.stdout) is not fits
    assert done.stdout.splitlines()[-1] == ("['game.mp4']" if fits else "[]")

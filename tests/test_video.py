"""A film is encoded in pieces, by several threads: joined, they hold every frame once and in order."""

import av
import numpy as np
import pytest

from dqnitro import video


def picture(k: int, shape: tuple[int, int]) -> np.ndarray:
    """Grey, with the number of the frame in eight black or white bars."""
    rgb = np.full((*shape, 3), 128, np.uint8)
    for bit in range(8):
        rgb[:, bit * shape[1] // 8 : (bit + 1) * shape[1] // 8] = 255 * (k >> bit & 1)
    return rgb


def number(frame: np.ndarray) -> int:
    width = frame.shape[1] // 8
    return sum((frame[:, bit * width : (bit + 1) * width].mean() > 128) << bit for bit in range(8))


@pytest.mark.parametrize("shape", [(210, 160), (65, 97)])
@pytest.mark.parametrize("frames", [1, 20, 47])
def test_pieces_are_joined_in_order(shape, frames, tmp_path, monkeypatch):
    monkeypatch.setattr(video, "PIECE_FRAMES", 10)
    film = video.VideoWriter(tmp_path / "x.mp4", 60.0)
    for k in range(frames):
        film(picture(k, shape))
    film.close()
    with av.open(str(tmp_path / "x.mp4")) as container:
        shown = list(container.decode(video=0))
        assert [number(f.to_ndarray(format="rgb24")) for f in shown] == list(range(frames))
        assert [f.time for f in shown] == pytest.approx([k / 60 for k in range(frames)], abs=1e-4)
        assert sum(f.key_frame for f in shown) == -(-frames // 10)


def test_pieces_of_large_pictures_are_shorter(tmp_path, monkeypatch):
    monkeypatch.setattr(video, "PIECE_BYTES", 3 * 64 * 64 * 12)
    film = video.VideoWriter(tmp_path / "x.mp4", 30.0)
    for k in range(24):
        film(picture(k, (64, 64)))
    film.close()
    with av.open(str(tmp_path / "x.mp4")) as container:
        assert sum(f.key_frame for f in container.decode(video=0)) == 2

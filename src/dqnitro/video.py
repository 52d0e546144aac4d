"""H.264 videos of games, encoded by several cores while the game goes on."""

from __future__ import annotations

import io
import pathlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from dqnitro.common.files import replacing
from dqnitro.common.host import usable_cores

MOST_ENCODERS = 4
PIECE_FRAMES = 120  # two seconds of a console
PIECE_BYTES = 2**24  # pieces of large pictures are shorter


class Stopped(Exception):
    """A film was given up."""


class _Again(io.RawIOBase):
    """Reads what is being written to a file in memory, at a place of its own."""

    def __init__(self, file: io.BytesIO) -> None:
        self._written, self._at = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with self._written.getbuffer() as written:
            begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: written.nbytes}[whence]
        self._at = begin + offset
        return self._at

    def read(self, size: int = -1) -> bytes:
        with self._written.getbuffer() as written:
            found = bytes(written[self._at : written.nbytes if size < 0 else self._at + size])
        self._at += len(found)
        return found


@dataclass(frozen=True)
class _Shape:
    """Size, pixels and speed of a film: what all its encoders have to agree on."""

    width: int
    height: int
    pixel_aspect: int
    fps: int

    @classmethod
    def of(cls, rgb: np.ndarray, fps: int) -> _Shape:
        # A console's pixels are twice as wide as high. Doubled both ways they keep their colours in yuv420p; players
        # stretch them once more, which costs less than encoding twice as many.
        console = rgb.shape[1] == 160
        scale = 2 if console else 1
        return cls(rgb.shape[1] // 2 * 2 * scale, rgb.shape[0] // 2 * 2 * scale, 2 if console else 1, fps)

    def apply(self, context: Any) -> None:
        from av.codec.context import Flags

        context.width, context.height, context.pix_fmt = self.width, self.height, "yuv420p"
        context.time_base, context.framerate = Fraction(1, self.fps), Fraction(self.fps)
        context.sample_aspect_ratio = Fraction(self.pixel_aspect)
        context.thread_count = 1  # pieces are encoded at the same time
        context.flags |= Flags.global_header  # an mp4 describes the stream once, not in every piece
        # Slower presets take up to twice as long to save a tenth, and these files are small anyway.
        context.options = {"crf": "23", "preset": "ultrafast"}

    def encode(self, frames: list[np.ndarray], first: int) -> list[Any]:
        """The packets of a piece; its first frame is number `first` of the film."""
        import av
        from av.video.reformatter import VideoReformatter

        context: Any = av.CodecContext.create("libx264", "w")
        self.apply(context)
        reformatter = VideoReformatter()  # one for all frames: making it takes longer than using it
        packets = []
        for k, rgb in enumerate(frames):
            even = np.ascontiguousarray(rgb[: rgb.shape[0] // 2 * 2, : rgb.shape[1] // 2 * 2])  # as yuv420p needs it
            frame = av.VideoFrame.from_ndarray(even, format="rgb24")
            big = reformatter.reformat(frame, self.width, self.height, "yuv420p", interpolation="POINT")
            big.pts, big.time_base = first + k, context.time_base
            packets += context.encode(big)
        return packets + list(context.encode())


class VideoWriter:
    """An mp4, by PyAV. Each piece of the film has an encoder of its own, in a thread; pieces are joined in order.

    Pixels are repeated, because 160 columns are too small to watch. Once `stopped()` says so, the next frame raises
    `Stopped` and no file is left.
    """

    def __init__(self, path: pathlib.Path, fps: float, stopped: Callable[[], bool] = lambda: False) -> None:
        self._path, self._fps, self._stopped = path, round(fps), stopped
        self._file = io.BytesIO()  # a disk that is full must not be met inside the encoder, which crashes then
        self._shape: _Shape | None = None  # known with the first frame
        self._container: Any = None
        self._stream: Any = None
        self._encoders = min(usable_cores(), MOST_ENCODERS)
        self._pool = ThreadPoolExecutor(self._encoders, "video")
        self._piece: list[np.ndarray] = []
        self._frames = 0  # handed to encoders
        self._waiting: deque[Future[list[Any]]] = deque()

    def __call__(self, rgb: np.ndarray) -> None:
        if self._stopped():
            raise Stopped
        if self._shape is None:
            self._shape = _Shape.of(rgb, self._fps)
        self._piece.append(np.array(rgb))
        if len(self._piece) >= min(PIECE_FRAMES, max(8, PIECE_BYTES // rgb.nbytes)):
            self._hand_over()

    def _hand_over(self) -> None:
        assert self._shape is not None
        if len(self._waiting) > self._encoders:
            self._join(self._waiting.popleft())
        self._waiting.append(self._pool.submit(self._shape.encode, self._piece, self._frames))
        self._frames, self._piece = self._frames + len(self._piece), []

    def _join(self, piece: Future[list[Any]]) -> None:
        packets = piece.result()  # raises what the encoder raised
        container = self._container = self._container or self._open()
        for packet in packets:
            packet.stream = self._stream
            container.mux(packet)

    def _open(self) -> Any:
        import av

        # The index goes to the front, so that a browser begins before all of the film has come. For that the muxer
        # opens what it has written once more.
        container = av.open(
            self._file, "w", format="mp4", options={"movflags": "faststart"}, io_open=lambda *_: _Again(self._file)
        )
        self._stream = container.add_stream("libx264", rate=self._fps)
        assert self._shape is not None
        self._shape.apply(self._stream.codec_context)
        return container

    def close(self) -> None:
        """Finish the file. It gets its name only when it is complete."""
        stopped = self._stopped()
        try:
            if not stopped:
                if self._piece:
                    self._hand_over()
                while self._waiting:
                    self._join(self._waiting.popleft())
        except BaseException:
            stopped = True
            raise
        finally:
            self._pool.shutdown(cancel_futures=True)
            container, self._container = self._container, None
            if container is not None:
                container.close()
        if container is not None and not stopped:
            with replacing(self._path) as tmp:
                tmp.write_bytes(self._file.getbuffer())

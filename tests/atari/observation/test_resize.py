"""The resize, the palette and the random generator beside OpenCV, ale-py and NumPy."""

from __future__ import annotations

import warnings

import ale_py
import cv2
import numpy as np
import pytest
from ale_py import ALEInterface, roms
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnitro.atari.chips import rng
from dqnitro.atari.observation import palette, resize

HEIGHTS = (210, 214, 220, 230, 250)
SIZES = ((84, 84), (64, 64), (96, 80), (105, 80), (42, 40), (210, 160), (210, 80), (83, 77), (128, 128), (1, 1),
         (168, 168), (224, 224), (84, 200), (300, 84), (210, 161))  # fmt: skip


def ours(p: resize.Plan, first: np.ndarray, second: np.ndarray, lut: np.ndarray) -> np.ndarray:
    raw, source = np.zeros((p.height, 160), np.uint8), np.zeros(p.height, np.int32)
    scratch = resize.make_scratch(p, lut[None])
    out = np.zeros(p.out_height * p.out_width, np.uint8)
    words = first.view(np.uint64), second.view(np.uint64)
    for _ in range(2):  # the second time with words that are remembered
        out[:] = 0
        resize.resize_codes(p, first, words[0], second, words[1], lut, 0, raw, source, scratch, out, 0, 1)
    np.testing.assert_array_equal(raw[source], np.maximum(lut[first], lut[second]))
    again = np.zeros_like(out)
    resize.resize_gray(p, raw, source, again, 0, 1)
    np.testing.assert_array_equal(out, again)
    return out.reshape(p.out_height, p.out_width)


def picture(seed: int, height: int) -> np.ndarray:
    """Colour codes with what screens have: equal rows, wide runs, a few single pixels; or plain noise."""
    r = np.random.default_rng(seed)
    if seed % 3 == 0:
        return r.integers(0, 256, (height, 160)).astype(np.uint8)
    base = np.repeat(r.integers(0, 128, (height, 40)) * 2, 4, axis=1)
    rows = np.maximum.accumulate(np.where(r.random(height) < 0.4, np.arange(height), 0))
    base = base[rows]
    spots = r.integers(0, height, 30), r.integers(0, 160, 30)
    base[spots] = r.integers(0, 128, 30) * 2
    return np.ascontiguousarray(base.astype(np.uint8))


@pytest.mark.parametrize("height", HEIGHTS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_resize_equals_opencv(height: int, size: tuple[int, int]) -> None:
    p = resize.plan(height, *size)
    lut = np.random.default_rng(height).permutation(256).astype(np.uint8)
    for seed in range(6):
        first, second = picture(seed, height), picture(seed + 100, height)
        for other in (first, second):
            gray = np.maximum(lut[first], lut[other])
            theirs = cv2.resize(gray, size[::-1], interpolation=cv2.INTER_AREA)
            np.testing.assert_array_equal(ours(p, first, other, lut), theirs)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(HEIGHTS), st.integers(1, 260), st.integers(1, 200), st.integers(0, 10**6))
def test_any_size_equals_opencv(height: int, out_height: int, out_width: int, seed: int) -> None:
    codes, lut = picture(seed, height), np.arange(256).astype(np.uint8)
    theirs = cv2.resize(codes, (out_width, out_height), interpolation=cv2.INTER_AREA)
    np.testing.assert_array_equal(ours(resize.plan(height, out_height, out_width), codes, codes, lut), theirs)


def test_ties_occur_and_need_float32() -> None:
    """Without the float32 path the test above would be wrong: ties exist and do not all round to even."""
    p = resize.plan(210, 84, 84)
    noise = picture(0, 210)
    theirs = cv2.resize(noise, (84, 84), interpolation=cv2.INTER_AREA)
    x = np.zeros((160, 84))
    y = np.zeros((84, 210))
    for d in range(84):
        for t in range(p.x_taps[d]):
            x[p.x_first[d] + t, d] = p.x_units[t, d]
        for t in range(p.y_taps[d]):
            y[d, p.y_first[d] + t] = p.y_units[t, d]
    exact = (y @ noise.astype(float) @ x) / p.total
    ties = exact % 1 == 0.5
    assert ties.sum() > 10
    assert (np.rint(exact)[ties] != theirs[ties]).any()
    np.testing.assert_array_equal(np.rint(exact)[~ties], theirs[~ties])


def test_picture_without_pixels_is_refused() -> None:
    with pytest.raises(ValueError, match="hint"):
        resize.plan(210, 0, 84)


@pytest.mark.parametrize("game", ["pong", "seaquest", "qbert", "adventure", "air_raid", "mr_do", "pooyan"])
def test_colours_equal_ale(game: str) -> None:
    ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", 3)
    ale.loadROM(roms.get_rom_path(game))
    kind = palette.PAL if ale.getScreenDims()[0] == 250 else palette.NTSC
    acts = ale.getMinimalActionSet()
    for t in range(120):
        ale.act(acts[t % len(acts)])
        codes = ale.getScreen()
        np.testing.assert_array_equal(palette.GRAY[kind][codes], ale.getScreenGrayscale())
        np.testing.assert_array_equal(palette.RGB[kind][codes], ale.getScreenRGB())


def stripes() -> bytes:
    """A program that shows one colour a line: all 128 codes of a frame."""
    code = bytes.fromhex(
        "a902 8502 8500 8502 8502 8502 a900 8500"  # VSYNC for three lines
        "a200 a0e8"  # X = colour, 232 lines
        "8602 8609 e8 e8 88 d0f7"  # each: WSYNC, COLUBK = X, X += 2
        "8502" * 1
    )
    image = bytearray(b"\xea" * 4096)
    image[: len(code)] = code
    image[len(code) : len(code) + 3] = b"\x4c\x00\xf0"
    image[0xFFC:0x1000] = b"\x00\xf0\x00\xf0"
    return bytes(image)


def test_every_colour_of_ntsc_equals_ale(tmp_path) -> None:  # type: ignore[no-untyped-def]
    rom = tmp_path / "seaquest.bin"
    rom.write_bytes(stripes())
    ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ALEInterface()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ale.loadROM(str(rom))
    ale.act(0)
    codes = ale.getScreen()
    assert len(np.unique(codes)) == 128
    np.testing.assert_array_equal(palette.GRAY[palette.NTSC][codes], ale.getScreenGrayscale())
    np.testing.assert_array_equal(palette.RGB[palette.NTSC][codes], ale.getScreenRGB())


@pytest.mark.parametrize("seed", [0, 1, 4753849, 2**31 - 1])
def test_twister_equals_numpy(seed: int) -> None:
    mt = np.zeros(rng.MT_SIZE, np.uint32)
    rng.mt_seed(mt, seed)
    theirs = np.random.RandomState(seed).randint(0, 2**32, 2000, dtype=np.uint64)
    assert [rng.mt_next(mt) for _ in range(2000)] == theirs.tolist()


def test_double_is_the_draw_over_two_to_32() -> None:
    mt = np.zeros(rng.MT_SIZE, np.uint32)
    rng.mt_seed(mt, 5)
    copy = mt.copy()
    assert rng.mt_double(mt) == rng.mt_next(copy) / 2**32


@pytest.mark.parametrize("n", [1, 2, 3, 30, 31, 2**31 + 1])
def test_below_is_in_range_and_rejects(n: int) -> None:
    """The multiply-and-reject rule in plain Python; 2**31 + 1 rejects nearly every second draw."""
    mt, raw = np.zeros(rng.MT_SIZE, np.uint32), np.zeros(rng.MT_SIZE, np.uint32)
    rng.mt_seed(mt, 9)
    rng.mt_seed(raw, 9)
    for _ in range(500):
        product = rng.mt_next(raw) * n
        while product % 2**32 < (2**32 - n) % n:
            product = rng.mt_next(raw) * n
        assert rng.mt_below(mt, n) == product >> 32
    np.testing.assert_array_equal(mt, raw)

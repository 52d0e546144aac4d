"""`bench resize`: which library shrinks a screen fastest, and how far is it from OpenCV's area resize?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dqnitro.errors import ConfigError
from dqnitro.lab.bench.contest import Contest, Options, Step, fastest, say_ratio

REFERENCE = "OpenCV area"
OURS = "ours, whole numbers"
SCREENS, FRAMES_APART, SIZE = 32, 9, 84

Resize = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (grey screens, colour codes) -> pictures


def screens(game: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Grey screens of a real game, the colour codes they were made from, and the table between the two."""
    from dqnitro.envs import atari_game
    from dqnitro.envs.atari import AtariFrames

    name = atari_game(game)
    if name is None:
        raise ConfigError(f"bench resize needs an Atari game, got --game {game}", "leave --game at pong")
    env, rng = AtariFrames(name), np.random.default_rng(0)
    env.reset(seed=0)
    grey, codes = [], []
    for t in range(SCREENS * FRAMES_APART):
        obs, _, over, _, _ = env.step(int(rng.integers(len(env.actions))))
        if over:
            env.reset()
        if t % FRAMES_APART == 0:
            grey.append(obs.copy())
            codes.append(env.ale.getScreen().copy())
    lut = np.zeros(256, np.uint8)
    grey_all, codes_all = np.stack(grey), np.stack(codes).astype(np.uint8)
    lut[codes_all] = grey_all
    assert np.array_equal(lut[codes_all], grey_all), "a colour code has one grey value"
    return grey_all, codes_all, lut


def opencv(method: str) -> Resize:
    import cv2

    how = getattr(cv2, f"INTER_{method.upper()}")
    return lambda grey, _: np.stack([cv2.resize(g, (SIZE, SIZE), interpolation=how) for g in grey])


def pillow(method: str) -> Resize:
    from PIL import Image  # installed as a dependency of other packages

    how = Image.Resampling[method.upper()]
    return lambda grey, _: np.stack([np.asarray(Image.fromarray(g).resize((SIZE, SIZE), how)) for g in grey])


def torch_resize(method: str) -> Resize:
    import torch
    from torch.nn import functional as F

    smooth = {"antialias": True} if method == "bilinear" else {}

    def resize(grey: np.ndarray, _: np.ndarray) -> np.ndarray:
        pixels = torch.from_numpy(grey)[:, None].float()
        return F.interpolate(pixels, (SIZE, SIZE), mode=method, **smooth).round_().byte()[:, 0].numpy()

    return resize


def ours(lut: np.ndarray, height: int) -> Resize:
    from dqnitro.atari.observation.resize_batch import Resizer

    resizer = Resizer(height, SIZE, lut)
    return lambda _, codes: resizer(codes)


def bench(o: Options) -> dict[str, Any]:
    """One thread for each contender: in training the other cores are busy."""
    import cv2
    import torch

    grey, codes, lut = screens(o.game)
    exact = opencv("area")(grey, codes).astype(int)
    ways: dict[str, Callable[[], Resize]] = {
        REFERENCE: lambda: opencv("area"),
        "OpenCV linear": lambda: opencv("linear"),
        "OpenCV nearest": lambda: opencv("nearest"),
        "Pillow box": lambda: pillow("box"),
        "Pillow bilinear": lambda: pillow("bilinear"),
        "torch area": lambda: torch_resize("area"),
        "torch bilinear": lambda: torch_resize("bilinear"),
        OURS: lambda: ours(lut, grey.shape[1]),
    }
    columns = {"max_difference": f"largest difference to {REFERENCE}", "mean_difference": "mean difference"}
    title = f"{grey.shape[1]}x{grey.shape[2]} screens of {o.game} to {SIZE}x{SIZE}, one thread, {SCREENS} per call"
    threads = cv2.getNumThreads(), torch.get_num_threads()
    with Contest(o, title, "pictures/s", REFERENCE, columns) as contest:
        cv2.setNumThreads(1)
        torch.set_num_threads(1)
        contest.closing.callback(torch.set_num_threads, threads[1])
        contest.closing.callback(cv2.setNumThreads, threads[0])

        def make(name: str, way: Callable[[], Resize]) -> Step:
            resize = way()
            difference = np.abs(resize(grey, codes).astype(int) - exact)
            contest.extra(name).update(max_difference=int(difference.max()), mean_difference=float(difference.mean()))

            def step() -> float:
                resize(grey, codes)
                return float(len(grey))

            return step

        for name, way in ways.items():
            contest.add(name, lambda n=name, w=way: make(n, w), REFERENCE)
        return contest.run(verdict)


def verdict(table: Mapping[str, dict[str, Any]]) -> str:
    equal = [n for n, row in table.items() if row["max_difference"] == 0]
    best, anyway = fastest(table, equal), fastest(table)
    text = f"Fastest with the same pixels: {best}"
    if best != REFERENCE:
        text += f", {say_ratio(table[best], REFERENCE)}"
    if anyway != best:
        off = table[anyway]["max_difference"]
        gain = say_ratio(table[anyway], REFERENCE)
        text += f"; {anyway} is faster still ({gain}), but off by up to {off} of 255 grey levels"
    return text + "."

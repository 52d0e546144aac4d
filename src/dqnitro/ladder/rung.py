"""The class `Rung`, and the small functions that apply rungs to a config."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dqnitro.config import Config

Promise = Literal["exact", "close", "learning"]


@dataclass(frozen=True)
class Rung:
    """One speed-up as a value."""

    name: str
    promise: Promise
    apply: Callable[[Config], Config]
    what: str  # two sentences at most
    hurts: str  # when it does not pay
    needs: Callable[[Config], str | None] = lambda _: None  # why it cannot run here, or None
    notes_say: str | None = None  # what the notes (see rungs.py) report; None: they do not mention it
    replaces: tuple[str, ...] = ()  # rungs that it conflicts with; the one climbed later stays
    detour: bool = False  # measured at its position in the climb, then removed again


def with_wrapper(name: str) -> Callable[[Config], Config]:
    def apply(c: Config) -> Config:
        return c if name in c.wrappers else c.replace(wrappers=(*c.wrappers, name))

    return apply


def without_wrapper(name: str) -> Callable[[Config], Config]:
    return lambda c: c.replace(wrappers=tuple(w for w in c.wrappers if w != name))


def with_gpu_replay(c: Config) -> Config:
    """`gpu-replay`, which is made of the replay `frames`."""
    return with_wrapper("gpu-replay")(c).replace(replay="frames")


def setting(**changes: object) -> Callable[[Config], Config]:
    return lambda c: c.replace(**changes)


def envs_and_batch(n: int) -> Callable[[Config], Config]:
    """n environments, and one update per vector step with a batch n times as large: the same samples per step."""

    def apply(c: Config) -> Config:
        return c.replace(n_envs=n, batch_size=n * c.batch_size, steps_per_update=n * float(c.steps_per_update))

    return apply


def in_processes(c: Config) -> Config:
    """Two vector steps of slack: one to overlap acting with learning, one to absorb steps and updates of uneven length.

    At least 8 steps, because with one environment an update comes only every `steps_per_update` steps.
    """
    return c.replace(runner="processes", slack_steps=max(8, 2 * c.n_envs), env_parts=0)


def _on_gpu(c: Config, runner: str, n_envs: int, batch: int) -> Config:
    """A GPU runner with this number of consoles, this batch size, and the same samples per step."""
    return c.replace(
        runner=runner,
        n_envs=n_envs,
        batch_size=batch,
        steps_per_update=batch * float(c.steps_per_update) / c.batch_size,
        first_fill_steps=max(c.first_fill_steps, batch),
        replay_capacity=max(c.replay_capacity, 64 * n_envs),
        slack_steps=0,
        env_parts=0,
    )


def all_on_gpu(c: Config) -> Config:
    """256 consoles, because a GPU emulates many as fast as one; batches of 512, with the same samples per step."""
    return _on_gpu(c, "device", 256, 512)


def games_on_host(c: Config) -> Config:
    """64 consoles on the cores and batches of 256, with the same samples per step: enough to keep a GPU busy."""
    return _on_gpu(c, "hybrid", 64, 256)


def one_thread_each(name: str) -> Callable[[Config], Config]:
    """A transform that uses a second thread: torch gets one thread in each, unless `torch_threads` is set."""
    return lambda c: with_wrapper(name)(c).replace(torch_threads=c.torch_threads or 1)


def split_in_two(config: Config) -> Config:
    """A second thread for the hidden layer.

    It splits hand-written passes, so `written-out` is added if there are none (a later `distinct-patches` removes it).
    """
    by_hand = {"written-out", "distinct-patches"} & set(config.wrappers)
    return one_thread_each("split-network")(config if by_hand else with_wrapper("written-out")(config))


def distinct(config: Config) -> Config:
    """`distinct-patches`. It includes the passes of `written-out`, so that transform is removed."""
    return with_wrapper("distinct-patches")(without_wrapper("written-out")(config))

"""Starts of games in steps, as a GPU plays them: the starts of the CPU, and never more frames than a step has.

The functions that the kernel calls are compiled for the CPU here and stepped beside `agent_step.play` and `begin`.
"""

from __future__ import annotations

import importlib
from typing import Any, NamedTuple

import numpy as np
import pytest

from dqnitro.atari import AtariVec
from dqnitro.atari.chips import layout
from dqnitro.atari.chips.cpu_predecode import predecode
from dqnitro.atari.chips.rng import MT_SIZE
from dqnitro.atari.cuda import start_phases
from dqnitro.atari.cuda.microcode import microcode
from dqnitro.atari.games import game_table, roms, table_language
from dqnitro.atari.jit import target
from dqnitro.atari.vector import agent_step
from dqnitro.atari.vector.memory import make_shared
from dqnitro.atari.vector.options import VecOptions
from support.atari import gpu_model

target._prepared = True  # type: ignore[attr-defined]  # everything else is compiled: do not start helpers for one unit
from dqnitro.atari.cuda import start_in_steps as steps  # noqa: E402

EVERY = sorted(game_table.GAMES)
# one for each kind of start: plain, a lead, paddles, SELECT, SELECT with actions, Double Dunk's menu, unfinished frames
KINDS = ("pong", "breakout", "qbert", "berzerk", "adventure", "double_dunk", "elevator_action", "entombed")


class Arrays(NamedTuple):
    s: np.ndarray
    ram: np.ndarray
    screen: np.ndarray
    g: np.ndarray
    mt: np.ndarray
    mt_system: np.ndarray
    mt_noops: np.ndarray
    e: np.ndarray
    t: np.ndarray


class One:
    """One console, with the memory that it has on a GPU."""

    def __init__(self, game: str, **options: Any) -> None:
        rom = roms.load(game)
        self.shared = make_shared(VecOptions(**options), game_table.game(game), rom, predecode(rom))
        self.log = np.zeros(layout.LOG_SIZE, np.int64)
        self.a = Arrays(
            np.zeros(layout.S_SIZE, np.int64), np.zeros(256, np.uint8),
            np.zeros((3, layout.ROWS, layout.WORDS), np.uint64), np.zeros(table_language.G_SIZE, np.int32),
            *(np.zeros(MT_SIZE, np.uint32) for _ in range(3)), np.zeros(agent_step.E_SIZE, np.int64),
            np.zeros(steps.T_SIZE, np.int64),
        )  # fmt: skip

    @property
    def skip(self) -> int:
        return int(self.shared.options[agent_step.O_SKIP])

    def _arrays(self) -> tuple[Any, ...]:
        a, s = self.a, self.shared
        return (
            agent_step.ConsoleArrays(a.s, a.ram, self.log, a.screen[:2], a.screen[2], a.g, a.mt, a.e),
            agent_step.Setup(s.rom, s.program, s.prop, s.ntsc, s.options, s.sticky),
        )

    def _rngs(self) -> agent_step.Generators:
        return agent_step.Generators(self.a.mt_system, self.a.mt_noops)

    def begin(self, seed: int = -1) -> None:
        agent_step.begin(*self._arrays(), self._rngs(), seed)

    def play(self, action: int) -> tuple[Any, ...]:
        return agent_step.play(*self._arrays(), self.shared.action_set[action], np.float32(1.0))

    def step(self, action: int = 0) -> tuple[Any, ...]:
        chosen = self.shared.action_set[action]
        return steps.play_or_start(*self._arrays(), self._rngs(), self.a.t, chosen, np.float32(1.0))

    def start_in_steps(self) -> int:
        """Whole start; the steps that it took."""
        steps.begin_start(self.a.s, self.a.t)
        for k in range(1, 100_000):
            assert self.step()[:3] == (0, False, False)
            if self.a.t[steps.T_PHASE] == steps.PLAYING:
                return k
        raise AssertionError("the start does not end")

    def copied(self) -> One:
        other = object.__new__(One)
        other.shared, other.log = self.shared, self.log.copy()
        other.a = Arrays(*(x.copy() for x in self.a))
        return other


def same(one: One, other: One, where: str) -> None:
    for name, x, y in zip(Arrays._fields, one.a, other.a, strict=True):
        if name == "screen":  # the third is scratch memory
            x, y = x[:2], y[:2]
        if name != "t":
            np.testing.assert_array_equal(x, y, err_msg=f"{where}: {name}")


def starts_are_the_same(game: str, games: int, rng: np.random.Generator, **options: Any) -> list[int]:
    """Some games, each left in the middle: what it leaves in RAM has a say in the next start."""
    one = One(game, **options)
    one.begin(seed=int(rng.integers(1000)))
    took = []
    for k in range(games):
        for _ in range(int(rng.integers(0, 60))):
            one.play(int(rng.integers(len(one.shared.action_set))))
        other = one.copied()
        one.begin()
        took.append(other.start_in_steps())
        same(one, other, f"{game}, start {k}")
        for _ in range(3):
            action = int(rng.integers(len(one.shared.action_set)))
            assert tuple(map(int, one.play(action))) == tuple(map(int, other.step(action))), game
        same(one, other, f"{game}, after start {k}")
    return took


@pytest.mark.parametrize("game", EVERY)
def test_every_game_starts_in_steps_as_on_the_cpu(game):
    starts_are_the_same(game, 1, np.random.default_rng(1), noop_max=5)


@pytest.mark.parametrize("game", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {"noop_max": 0, "use_fire_reset": False},
        {"noop_max": 30, "repeat_action_probability": 0.25},
        {"noop_max": 200, "frameskip": 1},
        {"noop_max": 7, "frameskip": 150, "maxpool": False},  # a whole start in one step, or nearly
    ],
    ids=str,
)
def test_options_of_a_start(game, options):
    took = starts_are_the_same(game, 2, np.random.default_rng(2), **options)
    if options.get("frameskip") == 1:
        assert min(took) > 60
    if options.get("frameskip") == 150:
        assert max(took) < 10


@pytest.mark.parametrize("game", ["breakout", "seaquest", "qbert", "pong"])
@pytest.mark.parametrize(
    "options",
    [
        {"repeat_action_probability": 0.25, "max_num_frames_per_episode": 130},
        {"episodic_life": True, "frameskip": 3},
        {"life_loss_info": True, "reward_clipping": True, "maxpool": False},
    ],
    ids=str,
)
def test_steps_of_a_game_are_those_of_the_cpu(game, options):
    rng = np.random.default_rng(3)
    one = One(game, **options)
    one.begin(seed=4)
    other, ends = one.copied(), 0
    for k in range(250):
        action = int(rng.integers(len(one.shared.action_set)))
        a, b = one.play(action), other.step(action)
        assert tuple(map(int, a)) == tuple(map(int, b)), f"{game} step {k}"
        np.testing.assert_array_equal(one.a.screen[2], other.a.screen[2])
        if one.a.e[agent_step.E_RESET]:
            one.begin()
            other.start_in_steps()
            ends += 1
        same(one, other, f"{game} step {k}")
    assert ends or game == "pong" or "max_num_frames_per_episode" not in options


def test_a_start_begins_where_an_older_state_says_that_one_is_due():
    s, t = np.zeros(layout.S_SIZE, np.int64), np.full(steps.T_SIZE, 7)
    t[[steps.T_LINE, steps.T_OPTION]] = 0
    steps.begin_start(s, t)  # no instruction is left: the last frame was a very long one
    np.testing.assert_array_equal(start_phases.before_a_start(2), [t, t])
    s[layout.S_LEFT] = 25_000 - 5600
    steps.begin_start(s, t)
    assert t[steps.T_SLICE] == 6300


class Paper:
    """A console in plain Python, as a GPU plays it, that goes on where another one stands."""

    def __init__(self, one: One, together: bool) -> None:
        gpu_model.load()
        self.steps: Any = importlib.import_module(f"{gpu_model.PACKAGE}.cuda.start_in_steps")
        state = one.a.s
        words = (*state, *(state[layout.S_MASK_P0 : layout.S_PADDLE0] >> 32))
        self.s = gpu_model.Numbers([gpu_model.narrow32(v) for v in words])
        self.prop = gpu_model.Numbers(one.shared.prop.tolist())
        self.prop[layout.P_TOGETHER] = together
        self.prop[layout.P_PROGRAM] = 0  # paper cannot call machine code
        self.dec = microcode(one.shared.rom, one.shared.prop) if together else one.shared.program
        self.a, self.shared, self.log = one.copied().a, one.shared, one.log.copy()

    def step(self) -> None:
        a, s = self.a, self.shared
        with np.errstate(over="ignore"):
            self.steps.play_or_start(
                agent_step.ConsoleArrays(self.s, a.ram, self.log, a.screen, a.screen[2], a.g, a.mt, a.e),
                agent_step.Setup(s.rom, self.dec, self.prop, s.ntsc, s.options, s.sticky),
                agent_step.Generators(a.mt_system, a.mt_noops), a.t, 0, 1.0,
            )  # fmt: skip

    def compare(self, one: One) -> None:
        upper = np.array(self.s[layout.S_SIZE :], np.int64) << 32
        mine, masks = np.array(self.s[: layout.S_SIZE], np.int64), slice(layout.S_MASK_P0, layout.S_PADDLE0)
        mine[masks] = (mine[masks] & 0xFFFFFFFF) | upper
        np.testing.assert_array_equal(mine, one.a.s, "state")
        for name in ("ram", "g", "mt", "mt_system", "mt_noops", "e"):
            np.testing.assert_array_equal(getattr(self.a, name), getattr(one.a, name), name)
        np.testing.assert_array_equal(self.a.screen[:2], one.a.screen[:2], "screen")


@pytest.mark.parametrize("together", [True, False])
def test_a_very_long_frame_is_played_in_slices(together):
    """Q*bert shows no picture for a while: a frame of its start has 25,000 instructions. Nobody is to wait for them."""
    one = One("qbert", frameskip=1, noop_max=0, maxpool=False, use_fire_reset=False)
    one.begin(seed=1)
    for _ in range(20):
        one.play(0)
    steps.begin_start(one.a.s, one.a.t)
    usual = int(one.a.t[steps.T_SLICE])
    assert 4000 < usual < 8000
    for _ in range(80):
        before = one.copied()
        one.step()
        if one.a.s[layout.S_LEFT] == 0 and one.a.s[layout.S_GREYED]:
            break
    assert one.a.s[layout.S_PARTIAL] == 1, "a frame without an end"
    paper, count = Paper(before, together), -(-25_000 // usual)
    for k in range(count):
        assert (paper.a.t[steps.T_LEFT] > 0) == (k > 0)
        paper.step()
        if k < count - 1:
            assert paper.a.t[steps.T_COUNT] == before.a.t[steps.T_COUNT] and paper.s[layout.S_GREYED] == 0
    assert paper.a.t[steps.T_LEFT] == 0 and paper.a.t[steps.T_COUNT] == one.a.t[steps.T_COUNT]
    paper.compare(one)
    if together:  # and the frame after it, which goes on with it and ends it or not
        paper.step()
        while paper.a.t[steps.T_LEFT] > 0:
            paper.step()
        one.step()
        paper.compare(one)


def test_a_game_that_ends_while_it_starts_is_started_again():
    """A game over between two no-ops: the CPU begins once more and waits for the rest of them."""
    for after in (0, 1, 3):
        one = One("breakout", noop_max=30, use_fire_reset=after % 2 == 0)
        one.begin(seed=1)
        steps.begin_start(one.a.s, one.a.t)
        for _ in range(1000):
            t = one.a.t
            if t[steps.T_PHASE] == steps.NOOPS and t[steps.T_COUNT] == 0 and t[steps.T_NOOPS] > 3:
                break
            one.step()
        left = int(one.a.t[steps.T_NOOPS])
        other = one.copied()
        one.a.g[table_language.G_TERMINAL] = 1  # no frame of the next no-op, and a new start
        one.step()
        assert one.a.t[steps.T_PHASE] == steps.BOOT and one.a.t[steps.T_NOOPS] == left - 1
        s = one.a.s
        while one.a.t[steps.T_PHASE] != steps.PLAYING:
            one.step()
        assert one.a.t[steps.T_NOOPS] == 0 and s[layout.S_EPISODE_FRAMES] == left - 1
        while other.a.t[steps.T_PHASE] != steps.PLAYING:
            other.step()
        assert other.a.s[layout.S_EPISODE_FRAMES] >= left


def test_a_vector_whose_starts_are_in_steps_shows_the_games_of_the_cpu():
    """Rewards and ends of whole games, one console beside `AtariVec` with one environment."""
    options: dict[str, Any] = {"noop_max": 12, "max_num_frames_per_episode": 300, "repeat_action_probability": 0.25}
    one, theirs = One("breakout", **options), AtariVec("breakout", 1, num_threads=1, **options)
    one.begin(seed=9)
    theirs.reset(seed=9)
    rng, games = np.random.default_rng(0), 0
    while games < 4:
        action = int(rng.integers(4))
        reward, terminated, truncated, *_ = one.step(action)
        _, r, term, trunc, info = theirs.step(np.array([action]))
        assert (reward, terminated, truncated) == (int(r[0]), bool(term[0]), bool(trunc[0]))
        if terminated or truncated:
            one.start_in_steps()
            info = theirs.step(np.array([0]))[4]
            games += 1
        assert info["frame_number"][0] == one.a.s[layout.S_TOTAL_FRAMES]
    theirs.close()

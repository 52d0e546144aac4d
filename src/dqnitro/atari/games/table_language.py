"""The small language of `games/game_table.py`: terms of a score, conditions, lives, modes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

NOOP, FIRE, UP, RIGHT, LEFT, DOWN, UPRIGHT, UPLEFT, DOWNRIGHT, DOWNLEFT = range(10)
UPFIRE, RIGHTFIRE, LEFTFIRE, DOWNFIRE, UPRIGHTFIRE, UPLEFTFIRE, DOWNRIGHTFIRE, DOWNLEFTFIRE = range(10, 18)
RESET = 40

# how one byte counts in a score or a condition
BCD, BYTE, SIGNED, LOW, HIGH, LOW10, HIGH10, OCTAL, EIGHTHS, SCORE = range(10)
EQUAL, DIFFERENT, ABOVE, AT_LEAST = range(4)

# a game's own memory beside the console's RAM: int32 slots, per console
G_SCORE, G_TERMINAL, G_LIVES, G_REWARD, G_RAW_LIVES, G_STARTED, G_PREV, G_A, G_B, G_C, G_D, G_E = range(12)
G_SIZE = 16

# mode selection
MODE_NONE, MODE_SELECT, MODE_DOUBLE_DUNK, MODE_ADVENTURE = range(4)
M_KIND, M_BURST, M_PRE_NOOPS, M_PRE_RESET, M_PRE_SELECT, M_MAX = range(6)
MOST_SELECTS = 1000  # no shipped game needs more than 38; a program of another game must not hang the reset

PADDLE_MIN, PADDLE_MAX_DEFAULT = 27450, 790196
NO_LIMIT = 2**30


@dataclass(frozen=True)
class Term:
    """One summand of a score: `times` x the byte at `address`, read as `kind`."""

    address: int
    kind: int
    times: int


@dataclass(frozen=True)
class Condition:
    address: int
    kind: int
    mask: int
    op: int
    value: int


@dataclass(frozen=True)
class When:
    """A condition in disjunctive normal form: any of the clauses, all of a clause's conditions."""

    clauses: tuple[tuple[Condition, ...], ...] = ()

    def __and__(self, other: When) -> When:
        return When(tuple(a + b for a, b in product(self.clauses, other.clauses)))

    def __or__(self, other: When) -> When:
        return When(self.clauses + other.clauses)


@dataclass(frozen=True)
class Lives:
    """`add + sign * ((byte & mask) >> shift)`; `first` until the first frame after a start."""

    address: int = 0x80
    first: int = 0
    mask: int = 0xFF
    shift: int = 0
    add: int = 0
    sign: int = 1
    when_over: bool = False  # report lives after the end of the game, too, instead of 0


@dataclass(frozen=True)
class Mode:
    """How the default game variant is chosen after power-on."""

    kind: int = MODE_SELECT
    ready: When = field(default_factory=When)
    burst: int = 2
    pre_noops: int = 0
    pre_reset: bool = False
    pre_select: int = 0
    most: int = MOST_SELECTS


@dataclass(frozen=True)
class Game:
    name: str
    score: tuple[Term, ...] = ()
    over: When = field(default_factory=When)
    lives: Lives = field(default_factory=Lives)
    actions: tuple[int, ...] = tuple(range(18))
    start: tuple[int, ...] = ()
    mode: Mode | None = None
    twist: str = ""
    reward: tuple[int, int] = (-NO_LIMIT, NO_LIMIT)
    wrap: int = 0  # the score counter's period: added to a negative reward
    first_score: int = 0
    can_fire: bool = True  # False: every action with FIRE is played as NOOP
    paddle_max: int = PADDLE_MAX_DEFAULT
    id: int = -1

    @property
    def has_fire(self) -> bool:
        return FIRE in self.actions


def cart(k: int) -> int:
    """Address of byte k of the cartridge's RAM, in the index space of the rules."""
    return 0x100 + k


def index(address: int) -> int:
    """Index into the rules' RAM: 0..127 console, 128..255 cartridge."""
    return address & 0x7F if address < 0x100 else 0x80 + (address & 0x7F)


def term(address: int, kind: int = BYTE, times: int = 1) -> tuple[Term, ...]:
    return (Term(address, kind, times),)


def bcd(*addresses: int, times: int = 1) -> tuple[Term, ...]:
    """Two decimal digits a byte, lowest byte first."""
    return tuple(Term(a, BCD, times * 100**k) for k, a in enumerate(addresses))


def digits(*addresses: int, kind: int, times: int = 1) -> tuple[Term, ...]:
    """One decimal digit a byte, lowest first."""
    return tuple(Term(a, kind, times * 10**k) for k, a in enumerate(addresses))


def eq(address: int, value: int, mask: int = 0xFF, kind: int = BYTE) -> When:
    return When(((Condition(address, kind, mask, EQUAL, value),),))


def ne(address: int, value: int, mask: int = 0xFF, kind: int = BYTE) -> When:
    return When(((Condition(address, kind, mask, DIFFERENT, value),),))


def above(address: int, value: int) -> When:
    return When(((Condition(address, BYTE, 0xFF, ABOVE, value),),))


def at_least(address: int, value: int, kind: int = BYTE) -> When:
    return When(((Condition(address, kind, 0xFF, AT_LEAST, value),),))


def bit(address: int, mask: int) -> When:
    return ne(address, 0, mask)


def lives(address: int, first: int, mask: int = 0xFF, shift: int = 0, add: int = 0, sign: int = 1) -> Lives:
    return Lives(address, first, mask, shift, add, sign)


def select(ready: When, burst: int = 2, **more: Any) -> Mode:
    return Mode(MODE_SELECT, ready, burst, **more)


NO_LIVES = Lives(mask=0)
ONE = Lives(mask=0, add=1, first=1)
SCORED = 0x80  # the address of a condition on the score itself, which does not use it

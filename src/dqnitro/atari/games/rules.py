"""Scores, lives and the end of a game, read from the console's RAM after every frame.

`rules_step` interprets the integer tables of `games/game_table.py`; what they cannot express is a *twist*
(`games/special_rules.py`). A call costs tens of nanoseconds, against tens of microseconds for the frame before it.

`r` is RAM: 0..127 the console's, 128..255 the cartridge's (only klax's rules read it). `g` is the game's own memory,
`G_SIZE` int32 slots per console.
"""

from __future__ import annotations

from numpy import int64

from ..jit.target import compiled
from .game_table import LIVES, OVER, READY, REWARD, TERMS, TWIST
from .special_rules import CUBE, HANGMAN, KEPT, QBERT, digits2, signed, twisted
from .table_language import (
    ABOVE,
    BCD,
    BYTE,
    DIFFERENT,
    EIGHTHS,
    EQUAL,
    G_LIVES,
    G_PREV,
    G_RAW_LIVES,
    G_REWARD,
    G_SCORE,
    G_SIZE,
    G_TERMINAL,
    HIGH,
    HIGH10,
    LOW,
    LOW10,
    OCTAL,
    SCORE,
)

N_TERMS, N_OVER, N_READY = TERMS.shape[1], OVER.shape[1], READY.shape[1]


@compiled
def read_as(kind, byte):
    """One byte as a number."""
    if kind == BCD:
        return digits2(byte)
    if kind == BYTE:
        return byte
    if kind == LOW:
        return byte & 15
    if kind == HIGH:
        return byte >> 4
    if kind == LOW10:
        return 0 if byte & 15 == 10 else byte & 15
    if kind == HIGH10:
        return 0 if byte >> 4 == 10 else byte >> 4
    if kind == OCTAL:
        return 0 if byte == 0x80 else byte >> 3
    if kind == EIGHTHS:
        return byte >> 3 if byte & 7 == 0 and byte <= 72 else 0
    return signed(byte)


@compiled
def score_of(game, r):
    total = 0
    for k in range(N_TERMS):
        where = TERMS[game, k, 0]
        if where < 0:
            break
        total += TERMS[game, k, 2] * read_as(TERMS[game, k, 1], int64(r[where]))
    return total


@compiled
def holds(table, game, rows, r, score):
    """Is any clause of a table's row true? An empty row is false."""
    clause, true = -1, False
    for k in range(rows):
        n = table[game, k, 0]
        if n != clause:
            if true or n < 0:
                return true
            clause, true = n, True
        kind = table[game, k, 2]
        if kind == SCORE:
            value = score
        else:
            value = read_as(kind, int64(r[table[game, k, 1]]) & table[game, k, 3])
        op, want = table[game, k, 4], table[game, k, 5]
        if op == EQUAL:
            true = true and value == want
        elif op == DIFFERENT:
            true = true and value != want
        elif op == ABOVE:
            true = true and value > want
        else:
            true = true and value >= want
    return true


@compiled
def mode_ready(game, r):
    """Has SELECT reached the default game variant?"""
    return holds(READY, game, N_READY, r, int64(0))


@compiled
def lives_of(game, r):
    byte = int64(r[LIVES[game, 0]])
    return LIVES[game, 4] + LIVES[game, 5] * ((byte & LIVES[game, 2]) >> LIVES[game, 3])


@compiled
def rules_reset(game, r, g):
    """Forget the last game. Some values outlive a restart, as they do in ALE: see `G_PREV`."""
    before, raw_lives, reported = g[G_PREV], g[G_RAW_LIVES], g[G_LIVES]
    twist = TWIST[game]
    for k in range(G_SIZE):
        g[k] = 0
    g[G_SCORE] = REWARD[game, 3]
    g[G_RAW_LIVES] = g[G_LIVES] = LIVES[game, 1]
    if twist == QBERT:
        g[G_PREV] = 2
    elif twist == HANGMAN:
        g[G_PREV] = -1
    elif twist == CUBE:
        g[G_PREV] = before
    elif twist == KEPT and LIVES[game, 1] == 0:
        g[G_RAW_LIVES], g[G_LIVES] = raw_lives, reported


@compiled
def rules_step(game, r, g):
    """Read RAM after one frame: updates `g`, returns the reward."""
    score = score_of(game, r)
    over = holds(OVER, game, N_OVER, r, score)
    lives = lives_of(game, r)
    reward = score - g[G_SCORE]
    twist = TWIST[game]
    if twist != 0:
        reward, score, over, lives = twisted(twist, r, g, reward, score, over, lives)
    if reward < 0:
        reward += REWARD[game, 2]
    reward = min(max(reward, REWARD[game, 0]), REWARD[game, 1])
    g[G_SCORE], g[G_REWARD], g[G_RAW_LIVES] = score, reward, lives
    g[G_TERMINAL] = 1 if over else 0
    g[G_LIVES] = 0 if over and LIVES[game, 6] == 0 else lives
    return reward

"""Scores, lives and game over, read from the console's RAM after every frame.

`rules_step` interprets the integer tables of `games.py`; what they cannot say is a *twist*: a few lines for
one game. A step costs tens of nanoseconds, against tens of microseconds for the frame it looks at.

`r` is anything indexable 0..127 (console RAM) and 128..255 (cartridge RAM, read by klax alone); `g` is the
game's own memory, `G_SIZE` int32 slots per machine.
"""

from __future__ import annotations

from numpy import int64

from . import games
from .games import (
    ABOVE,
    BCD,
    BYTE,
    DIFFERENT,
    EIGHTHS,
    EQUAL,
    G_A,
    G_B,
    G_C,
    G_D,
    G_E,
    G_LIVES,
    G_PREV,
    G_RAW_LIVES,
    G_REWARD,
    G_SCORE,
    G_SIZE,
    G_STARTED,
    G_TERMINAL,
    HIGH,
    HIGH10,
    LIVES,
    LOW,
    LOW10,
    OCTAL,
    OVER,
    READY,
    REWARD,
    SCORE,
    TERMS,
    TWIST,
)
from .target import device

N_TERMS, N_OVER, N_READY = TERMS.shape[1], OVER.shape[1], READY.shape[1]


def _twist(name: str) -> int:
    return games.TWISTS.index(name)


ADVENTURE, BACKGAMMON, BEAM_RIDER = _twist("adventure"), _twist("backgammon"), _twist("beam_rider")
BLACKJACK, BOXING, BREAKOUT, CASINO = _twist("blackjack"), _twist("boxing"), _twist("breakout"), _twist("casino")
CHOPPER, DARKCHAMBERS, DEMON = _twist("chopper_command"), _twist("darkchambers"), _twist("demon_attack")
ENDURO, ET, GOPHER, GRAVITAR = _twist("enduro"), _twist("et"), _twist("gopher"), _twist("gravitar")
HANGMAN, HAUNTED, JOURNEY, KLAX = _twist("hangman"), _twist("haunted_house"), _twist("journey_escape"), _twist("klax")
GOLF, OTHELLO, PITFALL, QBERT = _twist("miniature_golf"), _twist("othello"), _twist("pitfall"), _twist("qbert")
RIVERRAID, KEPT, GUNNER = _twist("riverraid"), _twist("score_kept_when_over"), _twist("star_gunner")
SUPERMAN, TENNIS, TETRIS, OXO = _twist("superman"), _twist("tennis"), _twist("tetris"), _twist("tic_tac_toe_3d")
TIME_PILOT, CHECKERS, CHESS = _twist("time_pilot"), _twist("video_checkers"), _twist("video_chess")
CUBE, PINBALL = _twist("video_cube"), _twist("video_pinball")
WIZARD, ZAPPER = _twist("wizard_of_wor"), _twist("word_zapper")


@device
def digits2(byte):
    """Two decimal digits; a digit above 9 counts as it stands."""
    return 10 * (byte >> 4) + (byte & 15)


@device
def signed(byte):
    return byte - 256 if byte > 127 else byte


@device
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


@device
def score_of(game, r):
    total = 0
    for k in range(N_TERMS):
        where = TERMS[game, k, 0]
        if where < 0:
            break
        total += TERMS[game, k, 2] * read_as(TERMS[game, k, 1], int64(r[where]))
    return total


@device
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


@device
def mode_ready(game, r):
    """Has SELECT reached the default game variant?"""
    return holds(READY, game, N_READY, r, 0)


@device
def lives_of(game, r):
    byte = int64(r[LIVES[game, 0]])
    return LIVES[game, 4] + LIVES[game, 5] * ((byte & LIVES[game, 2]) >> LIVES[game, 3])


# ---- twists: (reward, score, over, lives) as the tables say them -> as the game means them


@device
def few_lines(twist, r, g, reward, score, over, lives):
    """The twists of the Atari-57 set that touch lives or the end of a game."""
    if twist == BEAM_RIDER:
        if lives == g[G_RAW_LIVES] - 1 and r[0x0C] != 1:
            lives = g[G_RAW_LIVES]
    elif twist == BREAKOUT:
        if r[0x39] == 5:
            g[G_STARTED] = 1
        over = over and g[G_STARTED] == 1
    elif twist == CHOPPER:
        if r[0x42] & 1:
            g[G_STARTED] = 1
        over = over and g[G_STARTED] == 1
    elif twist == GOPHER:
        lives = (lives & 1) + (lives >> 1 & 1) + (lives >> 2)
    elif twist == GRAVITAR:
        if r[0x01] == 0:
            lives = 6
    elif twist == PITFALL:
        lives = 3 if lives == 10 else (2 if lives == 8 else 1)
    elif twist == RIVERRAID:
        byte = int64(r[0x40])
        over = byte == 0x58 and g[G_PREV] == 0x59
        g[G_PREV] = byte
        if byte == 0x58:
            lives = 4
        elif byte == 0x59:
            lives = 1
    elif twist == GUNNER:
        if r[0x07] == 5:
            g[G_STARTED] = 1
        if g[G_STARTED] == 0:
            lives = 5
    elif twist == TIME_PILOT:
        if r[0x00] & 15 != 2:
            lives = g[G_RAW_LIVES]
    elif twist == PINBALL:
        lives += r[0x28] & 1
    elif twist == WIZARD:
        if r[0x57] & 1:
            lives = g[G_RAW_LIVES]
    elif twist == ET:
        lives = signed(lives & 0xFF)
    elif twist == DEMON and score_is_title(r):
        score = 0
        reward = -g[G_SCORE]
    return reward, score, over, lives


@device
def score_is_title(r):
    """Demon Attack shows its title in the score bytes before a game."""
    return r[0x01] == 0xAB and r[0x03] == 0xCD and r[0x05] == 0xEA


@device
def other_scores(twist, r, g, reward, score, over, lives):
    """Scores that are not a sum of bytes."""
    if twist == KEPT:
        if over:
            score = g[G_SCORE]
        reward = score - g[G_SCORE]
    elif twist == BOXING:
        me = 100 if r[0x12] == 0xC0 else digits2(int64(r[0x12]))
        it = 100 if r[0x13] == 0xC0 else digits2(int64(r[0x13]))
        over = me == 100 or it == 100 or (r[0x10] >> 4 == 0 and digits2(int64(r[0x11])) == 0)
        score = me - it
        reward = score - g[G_SCORE]
    elif twist == ENDURO:
        level = int64(r[0x2D])
        cars = score
        if level == 0:
            score = 0
        elif level == 1:
            score = 200 - cars
        else:
            score = 300 - cars + 200 + 300 * (level - 2)
        reward = score - g[G_SCORE]
    elif twist == QBERT:
        now, before = signed(int64(r[0x08])), g[G_PREV]
        over = r[0x08] == 0xFE or (now == 2 and before == -1)
        lives = g[G_RAW_LIVES] - 1 if now == before - 1 else g[G_RAW_LIVES]
        g[G_PREV] = now
        if over:
            score = g[G_SCORE]
        reward = score - g[G_SCORE]
    elif twist == TENNIS:
        points, won = int64(r[0x47]) - int64(r[0x48]), int64(r[0x45]) - int64(r[0x46])
        reward = points - g[G_A] if points != g[G_A] else won - g[G_B]
        g[G_A], g[G_B] = points, won
        mine, its = int64(r[0x47]), int64(r[0x48])
        over = (mine >= 6 and points >= 2) or (its >= 6 and points <= -2) or mine == 7 or its == 7
    elif twist == WIZARD:
        if score >= 8000:
            score -= 8000
        score *= 100
        reward = score - g[G_SCORE]
    elif twist == JOURNEY:
        if reward == 50000:
            reward = 0
    elif twist == TETRIS and over:
        reward, score = score - g[G_SCORE], 0
    return reward, score, over, lives


@device
def table_games(twist, r, g, reward, score, over, lives):
    """Board, card and puzzle games."""
    if twist == BACKGAMMON:
        reward, over = backgammon(r, g)
    elif twist == CHECKERS:
        reward, over = checkers(r, g)
    elif twist == CHESS:
        event = r[0x61] == 0x82 and r[0x6E] <= 1
        over = event or g[G_TERMINAL] == 1
        reward = (1 if r[0x6E] == 0 else -1) if event else 0
    elif twist == OXO:
        reward, over = tic_tac_toe(r, g)
    elif twist == BLACKJACK:
        bust = r[0x06] == 0x0B and r[0x09] == 0xBB
        if bust:
            score = 0
        over = bust or score >= 1000
        reward = score - g[G_SCORE]
    elif twist == CASINO:
        disabled = r[0x53] & 0x80 != 0
        if r[0x54] == 3:
            over = score > 0 and r[0x1E] == 0xAA
        else:
            over = score == 0 or (digits2(int64(r[0x1E])) > 0 and disabled)
            if disabled:
                reward = g[G_REWARD]
    elif twist == OTHELLO:
        g[G_A] = g[G_A] + 1 if r[0x40] == 0 else 0
        over = g[G_A] > 50
    elif twist == CUBE:
        timed_out = r[0x5B] == 0 and g[G_PREV] == 255
        g[G_PREV] = r[0x5B]
        score = solved_faces(r)
        over = timed_out or score == 6
        reward = -1 if timed_out else score - g[G_SCORE]
    elif twist == HANGMAN:
        mine, its = digits2(int64(r[0x6B])), digits2(int64(r[0x6C]))
        reward = (mine - g[G_A]) - (its - g[G_B])
        g[G_A], g[G_B] = mine, its
        over = reward != 0 or (r[0x71] == 0 and g[G_PREV] == 255)
        g[G_PREV] = r[0x71]
    elif twist == ZAPPER:
        if digits2(int64(r[0x4F])) > 0:
            score = 2 - signed(int64(r[0x5C]))
            over = score == 3 or digits2(int64(r[0x5E])) == 0
            reward = score - g[G_SCORE]
        else:
            score, over, reward = g[G_SCORE], g[G_TERMINAL] == 1, g[G_REWARD]
    return reward, score, over, lives


@device
def quests(twist, r, g, reward, score, over, lives):
    """Games with goals instead of points."""
    if twist == ADVENTURE:
        reward = 1 if r[0x39] == 0x12 else g[G_REWARD]
    elif twist == HAUNTED:
        matches = digits2(int64(r[0x02]))
        reward = (-1 if matches != g[G_A] else 0) + (100 if r[0x19] == 0x44 else 0)
        g[G_A] = matches
    elif twist == SUPERMAN:
        reward = 5999 - (60 * digits2(int64(r[0x63])) + digits2(int64(r[0x62]))) if over else 0
    elif twist == DARKCHAMBERS:
        reward, score, over = darkchambers(r, g, score)
    elif twist == GOLF:
        reward, over = miniature_golf(r, g)
    elif twist == KLAX:
        over = over or (r[128 + 0x69] > 0 and r[128 + 0x6E] == r[128 + 0x69]) or (r[0x28] == 4 and klax_full(r))
    return reward, score, over, lives


@device
def backgammon(r, g):
    """All pieces of one side are out. A reward stands until the next start, as does the end."""
    out_mine, out_its = -signed(int64(r[0x00])), signed(int64(r[0x0E]))
    mine, its = 0, 0
    for k in range(1, 0x1C):
        if k != 0x0E:
            n = signed(int64(r[k]))
            if n > 0:
                its += n
            else:
                mine -= n
    if signed(mine + out_mine & 0xFF) == 15 and signed(its + out_its & 0xFF) == 15:
        if out_mine == 15:
            return 1, True
        if out_its == 15:
            return -1, True
    return int64(g[G_REWARD]), g[G_TERMINAL] == 1


@device
def checkers(r, g):
    """32 squares in four rows of eight with a gap byte between the rows; a side without pieces has lost."""
    black, white = 0, 0
    for row in range(4):
        for k in range(8):
            piece = r[9 * row + k]
            if piece == 0x10 or piece == 0x20:
                black += 1
            elif piece == 0x90 or piece == 0xA0:
                white += 1
    if black == 0:
        return -1, True
    if white == 0:
        return 1, True
    return int64(g[G_REWARD]), g[G_TERMINAL] == 1


@device
def tic_tac_toe(r, g):
    """A line of four, or a full board of 64."""
    if r[0x7F] == 0xF3 and r[0x7E] == 0x10:
        return (1 if r[0x61] == 8 else -1), True
    for k in range(0x1A, 0x5A):
        if r[k] == 0:
            return 0, g[G_TERMINAL] == 1
    return 0, True


@device
def solved_faces(r):
    n = 0
    for face in range(6):
        first = 0x20 + 9 * face
        same = True
        for k in range(1, 9):
            same = same and r[first + k] == r[first]
        if same:
            n += 1
    return n


@device
def darkchambers(r, g, score):
    """The end shows as a level or a score that goes back; it stands until the next start."""
    level, over = int64(r[0x55]), g[G_TERMINAL] == 1
    if level < g[G_A]:
        return 0, int64(g[G_SCORE]), True
    g[G_A] = level
    if score < g[G_SCORE]:
        return 0, int64(g[G_SCORE]), True
    return score - g[G_SCORE], score, over or r[0x4A] & 0x1F == 0


@device
def miniature_golf(r, g):
    """Par minus strokes, paid when the hole changes. Memory: A hole, B par, C hits, D left, E start."""
    left, right, hole = digits2(int64(r[0x07])), digits2(int64(r[0x08])), digits2(int64(r[0x2F]))
    reward, over = 0, g[G_TERMINAL] == 1
    if hole != g[G_A]:
        strokes = g[G_D] + g[G_C] - g[G_E]
        if strokes > 0:
            reward = g[G_B] - strokes
        if hole == 0:
            over = True
        g[G_A], g[G_C], g[G_E] = hole, 0, g[G_D]
    if right != 0:
        g[G_B] = right
    else:
        if left < g[G_D]:
            g[G_C] += g[G_D]
        g[G_D] = left
    return reward, over


@device
def klax_full(r):
    """None of the 25 cells is an empty kind."""
    for k in range(0x33, 0x4C):
        cell = r[k]
        if cell == 0 or cell == 2 or cell == 6 or cell == 10 or cell == 14:
            return False
    return True


@device
def rules_reset(game, r, g):
    """Forget the last game. Some memories outlive a restart, as they do in ALE: see `G_PREV`."""
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


@device
def rules_step(game, r, g):
    """Look at RAM after one frame: updates `g`, returns the reward."""
    score = score_of(game, r)
    over = holds(OVER, game, N_OVER, r, score)
    lives = lives_of(game, r)
    reward = score - g[G_SCORE]
    twist = TWIST[game]
    if twist != 0:
        reward, score, over, lives = few_lines(twist, r, g, reward, score, over, lives)
        reward, score, over, lives = other_scores(twist, r, g, reward, score, over, lives)
        reward, score, over, lives = table_games(twist, r, g, reward, score, over, lives)
        reward, score, over, lives = quests(twist, r, g, reward, score, over, lives)
    if reward < 0:
        reward += REWARD[game, 2]
    reward = min(max(reward, REWARD[game, 0]), REWARD[game, 1])
    g[G_SCORE], g[G_REWARD], g[G_RAW_LIVES] = score, reward, lives
    g[G_TERMINAL] = 1 if over else 0
    g[G_LIVES] = 0 if over and LIVES[game, 6] == 0 else lives
    return reward

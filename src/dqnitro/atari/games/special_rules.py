"""Rules that the rows of `games/game_table.py` cannot express: a few lines per game, called *twists*.

A twist takes (reward, score, over, lives) as the row gives them and returns the right ones. It may use the game's own
memory `g`. `r` is RAM as in `games/rules.py`; `over` says that the game has ended by its rules (`G_TERMINAL`).
"""

from __future__ import annotations

from numpy import int64

from ..jit.target import compiled
from . import game_table
from .table_language import G_A, G_B, G_C, G_D, G_E, G_PREV, G_RAW_LIVES, G_REWARD, G_SCORE, G_STARTED, G_TERMINAL


def _twist(name: str) -> int:
    return game_table.TWISTS.index(name)


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


@compiled
def digits2(byte):
    """Two decimal digits; a digit above 9 counts as it is."""
    return 10 * (byte >> 4) + (byte & 15)


@compiled
def signed(byte):
    return byte - 256 if byte > 127 else byte


@compiled
def few_lines(twist, r, g, reward, score, over, lives):
    """Twists of the Atari-57 set that change the lives or the end of a game."""
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


@compiled
def score_is_title(r):
    """Demon Attack shows its title in the score bytes before a game."""
    return r[0x01] == 0xAB and r[0x03] == 0xCD and r[0x05] == 0xEA


@compiled
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


@compiled
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


@compiled
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


@compiled
def backgammon(r, g):
    """The game ends when all pieces of one side are out. Reward and end stay until the next start."""
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


@compiled
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


@compiled
def tic_tac_toe(r, g):
    """A line of four, or a full board of 64."""
    if r[0x7F] == 0xF3 and r[0x7E] == 0x10:
        return (1 if r[0x61] == 8 else -1), True
    for k in range(0x1A, 0x5A):
        if r[k] == 0:
            return 0, g[G_TERMINAL] == 1
    return 0, True


@compiled
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


@compiled
def darkchambers(r, g, score):
    """The game has ended when level or score go back; it stays ended until the next start."""
    level, over = int64(r[0x55]), g[G_TERMINAL] == 1
    if level < g[G_A]:
        return 0, int64(g[G_SCORE]), True
    g[G_A] = level
    if score < g[G_SCORE]:
        return 0, int64(g[G_SCORE]), True
    return score - g[G_SCORE], score, over or r[0x4A] & 0x1F == 0


@compiled
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


@compiled
def klax_full(r):
    """Are all 25 cells full?"""
    for k in range(0x33, 0x4C):
        cell = r[k]
        if cell == 0 or cell == 2 or cell == 6 or cell == 10 or cell == 14:
            return False
    return True


@compiled
def twisted(twist, r, g, reward, score, over, lives):
    """All twists: at most one applies, the others return what they were given."""
    reward, score, over, lives = few_lines(twist, r, g, reward, score, over, lives)
    reward, score, over, lives = other_scores(twist, r, g, reward, score, over, lives)
    reward, score, over, lives = table_games(twist, r, g, reward, score, over, lives)
    return quests(twist, r, g, reward, score, over, lives)

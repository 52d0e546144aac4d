"""What each game's RAM means: score, end of the game, lives, legal actions, and how a game is started.

One row per game, in a small language (`games/table_language.py`):

* `bcd(lo, mid, hi)` adds up bytes that hold two decimal digits each; `term` reads one byte in another way;
* `eq`, `ne`, `above`, `at_least` are conditions on one byte, joined with `&` and `|`;
* `lives(address, first)` says where the number of lives is; games without lives have `ONE` or `NO_LIVES`.

Addresses are the console's own (0x80..0xFF); `cart(k)` is byte k of a cartridge's own RAM. Rules that do
not fit the language are small functions in `games/special_rules.py`, named here by `twist`. The rows become integer
arrays at import, so that one compiled function serves every game and a game costs no compile time.
"""

from __future__ import annotations

import numpy as np

from .table_language import (
    BCD,
    BYTE,
    DOWN,
    DOWNLEFTFIRE,
    EIGHTHS,
    FIRE,
    HIGH,
    HIGH10,
    LEFT,
    LOW,
    LOW10,
    MODE_ADVENTURE,
    MODE_DOUBLE_DUNK,
    MODE_NONE,
    NO_LIMIT,
    NO_LIVES,
    NOOP,
    OCTAL,
    ONE,
    RESET,
    RIGHT,
    SCORE,
    SCORED,
    UP,
    UPFIRE,
    Game,
    Lives,
    Mode,
    When,
    above,
    at_least,
    bcd,
    bit,
    cart,
    digits,
    eq,
    index,
    lives,
    ne,
    select,
    term,
)

# action sets that several games share
EIGHT_WAYS = (0, *range(2, 10))
SIDEWAYS = (0, 1, 3, 4, 11, 12)
UPRIGHT_STICK = (0, 1, 2, 5, 10, 13)
STICK_AND_FIRE = (*range(6), *range(10, 14))
JUMPER = (0, 1, 2, 3, 4, 10, 11, 12)
PINBALL = (*range(6), 10, 11, 12)
DIGGER = (0, 2, 3, 4, 5, 10, 11, 12)
STICK = tuple(range(6))
NINE_FIRE = tuple(range(10))

_ROWS: tuple[Game, ...] = (
    # ---- the Atari-57 set
    Game("alien", digits(0x8B, 0x89, 0x87, 0x85, 0x83, kind=OCTAL, times=10), eq(0xC0, 0, 0x0F),
         lives(0xC0, 3, 0x0F), mode=select(eq(0x81, 0), 1)),
    Game("amidar", bcd(0xD9, 0xDA, 0xDB), eq(0xD6, 0x80), lives(0xD6, 3, 0x0F), STICK_AND_FIRE),
    Game("assault", bcd(0x82, 0x81, 0x80), eq(0xE5, 0), lives(0xE5, 4), (0, 1, 2, 3, 4, 11, 12)),
    Game("asterix", bcd(0xE0, 0xDF, 0xDE), eq(0xC7, 1) & eq(0xD3, 1, 0x0F), lives(0xD3, 3, 0x0F),
         EIGHT_WAYS, (FIRE,)),
    Game("asteroids", bcd(0xBE, 0xBD, times=10), eq(0xBC, 0, 0xF0), lives(0xBC, 4, 0xF0, 4),
         (*range(8), *range(10, 16)), mode=select(eq(0x80, 0)), wrap=100_000),
    Game("atlantis", bcd(0xA2, 0xA3, 0xA1, times=100), eq(0xF1, 0xFF), lives(0xF1, 6), (0, 1, 11, 12),
         mode=select(eq(0x8D, 0)), twist="score_kept_when_over"),
    Game("bank_heist", bcd(0xDA, 0xD9, 0xD8), eq(0xCE, 1) & eq(0xD5, 0), lives(0xD5, 5),
         mode=select(eq(0x80, 0), 1)),
    Game("battle_zone", term(0x9D, HIGH10, 1000) + term(0x9E, LOW10, 10_000) + term(0x9E, HIGH10, 100_000),
         eq(0xBA, 0, 0x0F), lives(0xBA, 5, 0x0F), mode=select(eq(0xA1, 1))),
    Game("beam_rider", bcd(0x89, 0x8A, 0x8B), eq(0x85, 0xFF), lives(0x85, 3, add=1),
         (*range(5), 6, 7, 11, 12), (RIGHT,), twist="beam_rider"),
    Game("berzerk", bcd(0xDF, 0xDE, 0xDD), eq(0xDA, 0xFF), lives(0xDA, 3, add=1),
         mode=select(eq(0x80, 1), pre_noops=20)),
    Game("bowling", bcd(0xA1, 0xA6), above(0xA4, 0x10), NO_LIVES, UPRIGHT_STICK, mode=select(eq(0x82, 0))),
    Game("boxing", (), When(), NO_LIVES, twist="boxing"),
    Game("breakout", bcd(0xCD) + term(0xCC, LOW, 100), eq(0xB9, 0), lives(0xB9, 5), (0, 1, 3, 4),
         mode=select(eq(0xB2, 0), 1), twist="breakout"),
    Game("centipede", bcd(0xF6, 0xF5, 0xF4), bit(0xA6, 0x40), lives(0xED, 3, 0x70, 4, add=1),
         mode=select(eq(0xA7, 0x16)), reward=(0, NO_LIMIT)),
    Game("chopper_command", bcd(0xEE, 0xEC, times=100), eq(0xE4, 0, 0x0F), lives(0xE4, 3, 0x0F),
         mode=select(eq(0xE0, 0)), twist="chopper_command"),
    Game("crazy_climber", digits(0x82, 0x83, 0x84, 0x85, kind=BYTE, times=100), eq(0xAA, 0), lives(0xAA, 5),
         EIGHT_WAYS, mode=select(eq(0x80, 0)), reward=(0, NO_LIMIT)),
    Game("defender", digits(*range(0x9C, 0xA2), kind=LOW10), eq(0xC2, 0), lives(0xC2, 3),
         mode=select(eq(0x9B, 1))),
    Game("demon_attack", bcd(0x85, 0x83, 0x81), eq(0xF2, 0) & eq(0xF1, 0xBD), lives(0xF2, 4, add=1),
         SIDEWAYS, mode=select(eq(0xEA, 1), 1), twist="demon_attack"),
    Game("double_dunk", bcd(0xF6) + bcd(0xF7, times=-1),
         (at_least(0xF6, 24, BCD) | at_least(0xF7, 24, BCD)) & eq(0xFE, 0xE7), NO_LIVES,
         start=(UPFIRE,), mode=Mode(MODE_DOUBLE_DUNK, burst=1)),
    Game("enduro", bcd(0xAB, 0xAC), eq(0xAF, 0xFF), NO_LIVES, (0, 1, 3, 4, 5, 8, 9, 11, 12), (FIRE,),
         twist="enduro"),
    Game("fishing_derby", bcd(0xBD) + bcd(0xBE, times=-1), eq(0xBD, 0x99) | eq(0xBE, 0x99), NO_LIVES),
    Game("freeway", bcd(0xE7), eq(0x96, 1), NO_LIVES, (0, 2, 5), mode=select(eq(0x80, 0), 1), reward=(0, 1)),
    Game("frostbite", bcd(0xCA, 0xC9, 0xC8), eq(0xCC, 0, 0x0F) & bit(0xF1, 0x80), lives(0xCC, 4, 0x0F, add=1),
         mode=select(eq(0x80, 0), 1)),
    Game("gopher", bcd(0xB2, 0xB1, 0xB0), eq(0xB4, 0, 7), lives(0xB4, 3, 7), JUMPER, (FIRE,),
         mode=select(eq(0xD3, 0), 5, pre_reset=True), twist="gopher"),
    Game("gravitar", bcd(0x89, 0x88, 0x87), eq(0x81, 1), lives(0x84, 6, add=1), start=(FIRE,) * 16,
         mode=select(eq(0x80, 0), 10), twist="gravitar"),
    Game("hero", bcd(0xB9, 0xB8, 0xB7), eq(0xB3, 0), lives(0xB3, 4), mode=select(eq(0x80, 0), 1)),
    Game("ice_hockey", bcd(0x8A) + bcd(0x8B, times=-1), eq(0x87, 0) & eq(0x86, 0), NO_LIVES,
         mode=select(eq(0x80, 0)), reward=(-NO_LIMIT, 1)),
    Game("jamesbond", bcd(0xDC, 0xDD, 0xDE), eq(0x86, 0, 0x0F) & eq(0x8C, 0x68), lives(0x86, 6, 0x0F, add=1),
         mode=select(eq(0x8C, 0) | eq(0x8C, 0x48), 20)),
    Game("kangaroo", bcd(0xA8, 0xA7, times=100), eq(0xAD, 0xFF), lives(0xAD, 3, 7, add=1),
         mode=select(eq(0xBA, 0) | eq(0xBA, 0x80))),
    Game("krull", bcd(0x9E, 0x9D, 0x9C), eq(0x9F, 0) & eq(0xA2, 3) & eq(0x80, 0x80), lives(0x9F, 3, 7, add=1)),
    Game("kung_fu_master", bcd(0x9A, 0x99, 0x98), eq(0x9D, 0xFF), lives(0x9D, 4, 7, add=1),
         (0, 2, 3, 4, 5, 8, 9, *range(11, 18))),
    Game("montezuma_revenge", bcd(0x95, 0x94, 0x93), eq(0xBA, 0) & eq(0xFE, 0x60), lives(0xBA, 6, 7, add=1)),
    Game("ms_pacman", bcd(0xF8, 0xF9, 0xFA), eq(0xFB, 0, 0x0F) & eq(0xA7, 0x53), lives(0xFB, 3, 7, add=1),
         EIGHT_WAYS, mode=select(eq(0x99, 1) & eq(0xA1, 1), 10)),
    Game("name_this_game", bcd(0xC6, 0xC5, 0xC4), eq(0xC7, 0, 7), lives(0xC7, 3, 7), SIDEWAYS,
         mode=select(eq(0xDE, 8))),
    Game("phoenix", term(0xC7, HIGH, 10) + bcd(0xC8, 0xC9, times=100), eq(0xCC, 0x80), lives(0xCB, 5, 7),
         (0, 1, 3, 4, 5, 11, 12, 13)),
    Game("pitfall", bcd(0xD7, 0xD6, 0xD5), eq(0x80, 0, 0xF0) & ne(0x9E, 0), lives(0x80, 3, 0xF0, 4),
         start=(UP,), twist="pitfall", first_score=2000),
    Game("pong", term(0x8E) + term(0x8D, times=-1), eq(0x8E, 21) | eq(0x8D, 21), NO_LIVES, SIDEWAYS,
         mode=select(eq(0x96, 0))),
    Game("private_eye", bcd(0xCA, 0xC9, 0xC8), above(0xC2, 1), NO_LIVES, start=(UP,),
         mode=select(eq(0x80, 0)), first_score=1000),
    Game("qbert", bcd(0xDB, 0xDA, 0xD9), When(), Lives(mask=0, first=4), STICK, twist="qbert"),
    Game("riverraid", digits(0xD7, 0xD5, 0xD3, 0xD1, 0xCF, 0xCD, kind=EIGHTHS), When(),
         lives(0xC0, 4, 0xF8, 3, add=1), twist="riverraid"),
    Game("road_runner", digits(*range(0xC9, 0xCD), kind=LOW10, times=100),
         eq(0xC4, 0, 7) & (ne(0xB9, 0) | ne(0xBD, 0)), lives(0xC4, 3, 7, add=1)),
    Game("robotank", term(0xB5) + term(0xB6, times=12), eq(0xA8, 0) & eq(0xB4, 0xFF),
         lives(0xA8, 4, 0x0F, add=1)),
    Game("seaquest", bcd(0xBA, 0xB9, 0xB8), ne(0xA3, 0), lives(0xBB, 4, add=1)),
    Game("skiing", bcd(0xEA, 0xE9, times=-1) + term(0xE8, times=-6000), eq(0x91, 0xFF), NO_LIVES, (0, 3, 4),
         (DOWN,) * 16, can_fire=False),
    Game("solaris", bcd(0xDC, 0xDD, 0xDE, times=10), eq(0xD9, 0), lives(0xD9, 3, 0x0F)),
    Game("space_invaders", bcd(0xE8, 0xE6), bit(0x98, 0x80) | eq(0xC9, 0), lives(0xC9, 3), SIDEWAYS,
         mode=select(eq(0xDC, 0)), wrap=10_000),
    Game("star_gunner", digits(*range(0x83, 0x87), kind=LOW10, times=100), eq(0x87, 0), lives(0x87, 5, 0x0F),
         mode=select(eq(0xF4, 0), 15), twist="star_gunner"),
    Game("surround", bcd(0xF7) + bcd(0xF6, times=-1), eq(0xF6, 10, kind=BCD) | eq(0xF7, 10, kind=BCD), ONE,
         (0, 2, 3, 4, 5), mode=select(eq(0xF9, 1))),
    Game("tennis", (), When(), NO_LIVES, mode=select(eq(0x80, 0)), twist="tennis"),
    Game("time_pilot", bcd(0x8D, 0x8F, times=100), ne(0xA0, 0), lives(0x8B, 5, 7, add=1), STICK_AND_FIRE,
         twist="time_pilot"),
    Game("tutankham", bcd(0x9C, 0x9A), eq(0x9E, 0) & ne(0x81, 0x84), lives(0x9E, 3, 3), DIGGER,
         mode=select(eq(0xAB, 0))),
    Game("up_n_down", bcd(0x82, 0x81, 0x80), above(0x94, 0x40) & eq(0x86, 0, 0x0F),
         lives(0x86, 5, 0x0F, add=1), UPRIGHT_STICK, (FIRE,)),
    Game("venture", bcd(0xC8, 0xC7, times=100), eq(0xC6, 0) & eq(0xCD, 0xFF) & bit(0xBF, 0x80),
         lives(0xC6, 4, 7, add=1)),
    Game("video_pinball", bcd(0xB0, 0xB2, 0xB4), bit(0xAF, 1), lives(0x99, 3, 7, add=4, sign=-1), PINBALL,
         mode=select(eq(0xC1, 0)), twist="video_pinball"),
    Game("wizard_of_wor", bcd(0x86, 0x88), eq(0x8D, 0, 0x0F) & eq(0xF4, 0xF8), lives(0x8D, 3, 0x0F),
         STICK_AND_FIRE, twist="wizard_of_wor"),
    Game("yars_revenge", bcd(0xE2, 0xE1, 0xE0), eq(0x9E, 0, 0xF0), lives(0x9E, 4, 0xF0, 4), start=(FIRE,),
         mode=select(eq(0xE3, 0), 1, pre_select=2)),
    Game("zaxxon", bcd(0xE9, 0xE8, times=100), eq(0xEA, 0, 7), lives(0xEA, 5, 7),
         mode=select(eq(0x82, 0), 10)),
    # ---- the other single-player games
    Game("adventure", (), eq(0xB9, 0x12) | eq(0xE0, 2), Lives(mask=0, add=1, first=1, when_over=True),
         mode=Mode(MODE_ADVENTURE, eq(0xDD, 0, 6)), twist="adventure"),
    Game("air_raid", bcd(0xAA, 0xA9, 0xA8), eq(0xA7, 0xFF), ONE, SIDEWAYS, (FIRE,),
         mode=select(eq(0xAA, 1), 10, pre_select=20)),
    Game("atlantis2", bcd(0xA1, 0xA2, 0xA3), eq(0xF1, 0xFF), lives(0xF1, 0), (0, 1, 11, 12),
         twist="score_kept_when_over"),
    Game("backgammon", (), When(), ONE, (1, 3, 4), mode=select(eq(0xDC, 3), 1), twist="backgammon",
         paddle_max=1_000_000),
    Game("basic_math", bcd(0x84), ne(0x86, 0), ONE, STICK, mode=select(eq(0xC5, 5))),
    Game("blackjack", bcd(0x89, 0x86), When(), ONE, (0, 1, 2, 5), twist="blackjack", paddle_max=795_000),
    Game("carnival", bcd(0xAE, 0xAD, times=10), eq(0x83, 0), NO_LIVES, SIDEWAYS),
    Game("casino", bcd(0x95, 0x8C), When(), ONE, (0, 1, 2, 5), (NOOP,) * 60 + (FIRE,) * 2,
         mode=select(eq(0xD4, 0)), twist="casino"),
    Game("crossbow", bcd(0x8D, 0x8C, 0x8B), eq(0xE7, 0x82), ONE, mode=select(eq(0x8D, 1))),
    Game("darkchambers", bcd(0xCC, 0xCF, times=10), When(), ONE, start=(NOOP,) * 486, twist="darkchambers"),
    Game("donkey_kong", bcd(0x88, 0x87, times=100), eq(0xA3, 0) & eq(0x8F, 3) & eq(0x8B, 0x1F), lives(0xA3, 2)),
    Game("earthworld", bcd(0xA7), eq(0xA7, 10, kind=BCD), ONE),
    Game("elevator_action", bcd(0x89, 0x88, 0x87), eq(0x83, 0) & ne(0x81, 0), lives(0x83, 4),
         start=(FIRE,) * 16),
    Game("entombed", term(0xE3), eq(0xC7, 0, 3), ONE, start=(FIRE,) + (NOOP,) * 5),
    Game("et", bcd(0xE1, 0xE0, 0xDF), eq(0xE5, 0xFF) & eq(0x80, 8), lives(0xE5, 0, add=1),
         mode=select(eq(0xEA, 1), 25, most=100), twist="et"),
    Game("flag_capture", bcd(0xEA), eq(0xEB, 0, kind=BCD), ONE, mode=select(eq(0xD6, 8))),
    Game("frogger", bcd(0xCE, 0xCC), eq(0xD0, 0xFF), lives(0xD0, 4), (0, 2, 3, 4, 5), mode=select(eq(0xDD, 1))),
    Game("galaxian", bcd(0xAE, 0xAD, 0xAC), bit(0xBF, 0x80), lives(0xB9, 3, add=1), SIDEWAYS,
         mode=select(eq(0xB3, 1), 1), wrap=1_000_000),
    Game("hangman", (), When(), ONE, mode=select(eq(0xEE, 0)), twist="hangman"),
    Game("haunted_house", (), eq(0x96, 0) | eq(0x99, 0x44), lives(0x96, 9), mode=select(eq(0xCC, 0)),
         twist="haunted_house"),
    Game("human_cannonball", bcd(0xB6), eq(0xB6, 7, kind=BCD) | eq(0xB7, 7, kind=BCD), ONE,
         mode=select(eq(0xB6, 1) & eq(0xB7, 1))),
    Game("journey_escape", bcd(0x92, 0x91, 0x90), eq(0x95, 0) & eq(0x96, 0), NO_LIVES,
         (0, *range(2, 10), *range(11, 18)), (FIRE,), twist="journey_escape"),
    Game("kaboom", bcd(0xA5, 0xA4, 0xA3), eq(0xA1, 0) | eq(SCORED, 999_999, kind=SCORE), ONE, (0, 1, 3, 4),
         (FIRE,)),
    Game("keystone_kapers", bcd(0x9C, 0x9B), eq(0x96, 0) & eq(0x88, 0), lives(0x96, 3), tuple(range(14)),
         (RESET,)),
    Game("king_kong", bcd(0x83, 0x82), eq(0xEE, 0), lives(0xEE, 3), STICK, mode=select(eq(0xEC, 0))),
    Game("klax", bcd(cart(0x34), cart(0x35), cart(0x36)), eq(cart(0x1D), 0x99), ONE, start=(FIRE, NOOP),
         mode=select(eq(cart(0x6A), 0)), twist="klax"),
    Game("koolaid", bcd(0x81, 0x80, times=100), eq(0xD1, 0x80), NO_LIVES, EIGHT_WAYS),
    Game("laser_gates", bcd(0x82, 0x81, 0x80), eq(0x83, 0), NO_LIVES, start=(RESET,)),
    Game("lost_luggage", bcd(0x96, 0x95, 0x94), eq(0xCA, 0) & eq(0xC8, 0x0A) & eq(0xA5, 0) & eq(0xA9, 0),
         lives(0xCA, 3), EIGHT_WAYS, (FIRE,), mode=select(eq(0x94, 1)), can_fire=False),
    Game("mario_bros", bcd(0x8A, 0x89, times=100), eq(0x87, 0), lives(0x87, 0),
         start=(NOOP,) * 10 + (FIRE,) * 7, mode=select(eq(0x80, 0), 5)),
    Game("miniature_golf", (), When(), ONE, twist="miniature_golf"),
    Game("mr_do", bcd(0x82, 0x83, times=10), eq(0xDA, 0x40), lives(0xDB, 4), STICK_AND_FIRE, (FIRE,),
         mode=select(eq(0x80, 0), 5)),
    Game("othello", bcd(0xCE) + bcd(0xD0, times=-1), When(), ONE, NINE_FIRE, mode=select(eq(0xDE, 1)),
         twist="othello"),
    Game("pacman", bcd(0xCC, 0xCE, 0xD0), eq(0x98, 0) & eq(0xE4, 0x3F), lives(0x98, 4, add=1), (0, 2, 3, 4, 5),
         mode=select(eq(0xCC, 1) & eq(0xE6, 0))),
    Game("pitfall2", bcd(0xC9, 0xC8, 0xC7), eq(SCORED, 199_000, kind=SCORE), ONE, start=(UP,), first_score=4000),
    Game("pooyan", bcd(0x8A, 0x89, 0x88), eq(0x96, 0) & eq(0x98, 5), lives(0x96, 3, 7, add=1), UPRIGHT_STICK,
         mode=select(eq(0xBD, 0x0A), pre_select=2)),
    Game("sir_lancelot", bcd(0xA0, 0x9F, 0x9E), eq(0xA9, 0) & eq(0xA7, 0xA0), lives(0xA9, 3), SIDEWAYS,
         (RESET, LEFT)),
    Game("space_war", bcd(0xA7), eq(0xA7, 10, kind=BCD) | eq(0x80, 0), ONE, mode=select(eq(0xA7, 6, kind=BCD))),
    Game("superman", (), bit(0x9F, 0x40) & eq(0x80, 0xAC) & eq(0x81, 0xF2), ONE, twist="superman"),
    Game("tetris", bcd(0xF1, 0xF2), bit(0xF3, 0x80), NO_LIVES, (0, 1, 3, 4, 5), twist="tetris",
         reward=(0, NO_LIMIT)),
    Game("tic_tac_toe_3d", (), When(), ONE, NINE_FIRE, mode=select(eq(0x88, 0)), twist="tic_tac_toe_3d"),
    Game("trondead", bcd(0xBF, 0xBE, 0xBD), eq(0xC8, 5), lives(0xC8, 5, add=5, sign=-1)),
    Game("turmoil", bcd(0x89, 0x8A, times=10) + term(0xD3, times=10), eq(0xB9, 0) & eq(0xC5, 1), lives(0xB9, 4),
         (*range(10), 11, 12), (FIRE,), mode=select(eq(0xEA, 0))),
    Game("video_checkers", (), When(), ONE, (1, 6, 7, 8, 9), mode=select(eq(0xF6, 1), 1),
         twist="video_checkers"),
    Game("video_chess", (), When(), ONE, NINE_FIRE, mode=select(eq(0xEA, 0), 1), twist="video_chess"),
    Game("video_cube", (), When(), ONE, start=(NOOP,) * 61 + (FIRE,) + (NOOP,) * 2,
         mode=select(eq(0xFB, 0, 0x1F)), twist="video_cube"),
    Game("word_zapper", (), When(), ONE, start=(NOOP,) * 486 + (FIRE,) + (NOOP,) * 2, mode=select(eq(0xDB, 0)),
         twist="word_zapper"),
)  # fmt: skip

GAMES: dict[str, Game] = {g.name: Game(**{**g.__dict__, "id": k}) for k, g in enumerate(_ROWS)}
NAMES: tuple[str, ...] = tuple(GAMES)
ATARI_57: tuple[str, ...] = NAMES[:57]
TWISTS: tuple[str, ...] = ("", *sorted({g.twist for g in _ROWS if g.twist}))


def _clauses(when: When) -> list[tuple[int, ...]]:
    """Flat rows (clause, index, kind, mask, op, value); a clause is a run of rows with one number."""
    return [(n, index(c.address), c.kind, c.mask, c.op, c.value) for n, cl in enumerate(when.clauses) for c in cl]


def _table(rows: list[list[tuple[int, ...]]], width: int) -> np.ndarray:
    """Ragged rows as one int32 array, filled with -1."""
    longest = max(len(r) for r in rows)
    out = np.full((len(rows), longest, width), -1, np.int32)
    for k, row in enumerate(rows):
        for j, cell in enumerate(row):
            out[k, j] = cell
    return out


def _mode_row(m: Mode | None) -> tuple[int, ...]:
    if m is None:
        return (MODE_NONE, 0, 0, 0, 0, 0)
    return (m.kind, m.burst, m.pre_noops, int(m.pre_reset), m.pre_select, m.most)


def _legal_mask(g: Game) -> int:
    fires = (FIRE, *range(UPFIRE, DOWNLEFTFIRE + 1))
    return sum(1 << a for a in range(18) if g.can_fire or a not in fires)


# ---- the same rows as arrays, indexed by game id; compiled code uses only these
N_GAMES = len(_ROWS)
TERMS = _table([[(index(t.address), t.kind, t.times) for t in g.score] for g in _ROWS], 3)
OVER = _table([_clauses(g.over) for g in _ROWS], 6)
READY = _table([_clauses(g.mode.ready) if g.mode else [] for g in _ROWS], 6)
LIVES = np.array(
    [
        (
            index(v.address),
            v.first,
            v.mask,
            v.shift,
            v.add,
            v.sign,
            int(v.when_over),
        )
        for v in (g.lives for g in _ROWS)
    ],
    np.int32,
)
TWIST = np.array([TWISTS.index(g.twist) for g in _ROWS], np.int32)
REWARD = np.array([(*g.reward, g.wrap, g.first_score) for g in _ROWS], np.int32)
MODE = np.array([_mode_row(g.mode) for g in _ROWS], np.int32)
LEGAL = np.array([_legal_mask(g) for g in _ROWS], np.int32)
PADDLE_MAX = np.array([g.paddle_max for g in _ROWS], np.int32)
START_LEN = np.array([len(g.start) for g in _ROWS], np.int32)
START_OFS = (np.cumsum(START_LEN) - START_LEN).astype(np.int32)
START_FLAT = np.array([a for g in _ROWS for a in g.start], np.int32)


def game(name: str) -> Game:
    """The game called `name` ("ms_pacman"); also accepts Gymnasium's spelling ("MsPacman", "ALE/MsPacman-v5")."""
    if name in GAMES:
        return GAMES[name]
    bare = name.split("/")[-1].split("-")[0].lower().replace("_", "")
    for key, found in GAMES.items():
        if key.replace("_", "") == bare:
            return found
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), NAMES, n=3, cutoff=0.5)
    raise KeyError(f"{name!r} is not a game of this console. hint: " + (f"did you mean {near}?" if near else
                   "names are those of ale-py's ROMs, such as 'ms_pacman'"))  # fmt: skip

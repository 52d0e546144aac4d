"""The rules of every game beside ale-py: same reward, lives and end of game after every frame.

No console is needed: ale-py plays, its RAM is handed to our rules. RAM bytes that the rules look at are poked
now and then, so that ends of games and odd scores occur in a few hundred frames.
"""

from __future__ import annotations

import ale_py
import numpy as np
import pytest
from ale_py import ALEInterface, roms

from dqnitro.atari.games import game_table, rules, table_language
from dqnitro.atari.games.game_table import GAMES, LIVES, NAMES, OVER, TERMS
from dqnitro.atari.games.table_language import G_LIVES, G_SIZE, G_TERMINAL

FRAMES = 400
# addresses that only a twist reads, with the values that matter there
TWIST_POKES: dict[str, dict[int, tuple[int, ...]]] = {
    "adventure": {0x39: (0x12,), 0x60: (2,)},
    "backgammon": {0x00: (0xF1, 0xFF), 0x0E: (15, 1), 0x01: (1, 0xFF)},
    "beam_rider": {0x0C: (0, 1), 0x05: (0, 1, 2, 0xFF)},
    "blackjack": {0x06: (0x0B,), 0x09: (0xBB,)},
    "boxing": {0x12: (0xC0, 0x99), 0x13: (0xC0,), 0x10: (0,), 0x11: (0,)},
    "casino": {0x54: (0, 2, 3), 0x53: (0x80, 0), 0x1E: (0xAA, 0, 1), 0x15: (0, 0x50), 0x0C: (0, 1)},
    "chopper_command": {0x42: (0, 1), 0x64: (0, 1)},
    "darkchambers": {0x55: (0, 1, 2), 0x4A: (0, 0x20), 0x4C: (0, 0x99)},
    "demon_attack": {0x71: (0xBD,), 0x72: (0,), 0x01: (0xAB,), 0x03: (0xCD,), 0x05: (0xEA,)},
    "enduro": {0x2D: (0, 1, 2, 3), 0x2B: (0x99, 0)},
    "gravitar": {0x01: (0, 1, 2)},
    "hangman": {0x6B: (0, 1), 0x6C: (1, 2), 0x71: (255, 0)},
    "haunted_house": {0x02: (1, 2), 0x19: (0x44,), 0x16: (0, 1)},
    "journey_escape": {0x10: (5, 0)},
    "miniature_golf": {0x07: (1, 2, 0x11), 0x08: (0, 3), 0x2F: (0, 1, 2)},
    "othello": {0x4E: (1, 2), 0x50: (2, 3)},
    "pitfall": {0x00: (0xA0, 0x80, 0), 0x1E: (0, 1)},
    "qbert": {0x08: (0xFE, 0xFF, 0, 1, 2)},
    "riverraid": {0x40: (0x58, 0x59, 0x50, 8)},
    "superman": {0x1F: (0x40,), 0x00: (0xAC,), 0x01: (0xF2,), 0x63: (9,)},
    "tennis": {0x47: (1, 5, 6, 7), 0x48: (1, 5, 6, 7), 0x45: (1, 2), 0x46: (1, 2)},
    "tic_tac_toe_3d": {0x7F: (0xF3,), 0x7E: (0x10,), 0x61: (8, 0)},
    "time_pilot": {0x00: (2, 1), 0x0B: (1, 2)},
    "video_checkers": {0x00: (0,), 0x09: (0,)},
    "video_chess": {0x61: (0x82,), 0x6E: (0, 1, 2)},
    "video_cube": {0x5B: (255, 0), 0x20: (1,), 0x21: (1,)},
    "video_pinball": {0x28: (0, 1), 0x19: (1, 2, 3)},
    "wizard_of_wor": {0x57: (0, 1), 0x08: (0x80, 0x79, 0)},
    "word_zapper": {0x4F: (0, 1), 0x5C: (0xFF, 0, 1), 0x5E: (0, 1)},
}


def pokes(name: str) -> list[tuple[int, tuple[int, ...]]]:
    """RAM indices that the tables of a game read, and the values they are compared with."""
    k = GAMES[name].id
    found: dict[int, tuple[int, ...]] = {int(i): (0, 0x99, 0x10) for i, _, _ in TERMS[k] if 0 <= i < 128}
    for clause, where, _, _, _, value in OVER[k]:
        if clause >= 0 and where < 128:
            found[int(where)] = (int(value) & 255, int(value) & 255, 0, 1, 255)
    if LIVES[k, 2]:
        found.setdefault(int(LIVES[k, 0]), (0, 1, 2, 255))
    found.update(TWIST_POKES.get(name, {}))
    return sorted(found.items())


def rules_ram(ale: ALEInterface, name: str) -> np.ndarray:
    """ale-py's RAM as the rules see it; klax's cartridge RAM is only in a saved state."""
    ram = np.zeros(256, np.uint8)
    ram[:128] = ale.getRAM()
    if name == "klax":
        blob = ale.cloneState().__getstate__()
        at = blob.index(b"CartridgeF6SC") + len("CartridgeF6SC") + 8
        ram[128:] = np.frombuffer(blob[at : at + 512], "<i4")
    return ram


def load(name: str, seed: int = 1) -> ALEInterface:
    ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(name))
    return ale


def compare(name: str, frames: int, seed: int, ale: ALEInterface) -> tuple[int, int]:
    """Play `frames` frames side by side; number of game overs and of rewards met."""
    rng = np.random.default_rng(seed)
    game, hot = GAMES[name], pokes(name)
    g = np.zeros(G_SIZE, np.int32)
    overs = rewards = 0
    fresh = True
    for t in range(frames):
        if fresh:
            ale.reset_game()
            ram = rules_ram(ale, name)
            rules.rules_reset(game.id, ram, g)
            rules.rules_step(game.id, ram, g)
        elif hot and rng.random() < 0.15:
            where, values = hot[rng.integers(len(hot))]
            ale.setRAM(where, int(rng.choice(values)))
        theirs = ale.act(int(rng.choice(game.actions)))
        ours = rules.rules_step(game.id, rules_ram(ale, name), g)
        assert isinstance(ours, int), "a reward that is not an integer: unsigned and signed were mixed"
        assert (ours, g[G_LIVES], bool(g[G_TERMINAL])) == (theirs, ale.lives(), ale.game_over()), f"frame {t}"
        fresh = ale.game_over()
        overs += fresh
        rewards += theirs != 0
    return overs, rewards


@pytest.mark.parametrize("name", NAMES)
def test_actions_and_rules_equal_ale(name: str) -> None:
    ale, game = load(name), GAMES[name]
    assert [a.value for a in ale.getMinimalActionSet()] == list(game.actions)
    legal = [a for a in range(18) if game_table.LEGAL[game.id] >> a & 1]
    assert [a.value for a in ale.getLegalActionSet()] == legal
    compare(name, FRAMES, NAMES.index(name), ale)


POKED = ("pong", "seaquest", "boxing", "tennis", "qbert")


def test_pokes_reach_ends_and_rewards() -> None:
    """The test above is only worth something if games end in it."""
    overs, rewards = np.sum([compare(n, 200, 7, load(n)) for n in POKED], axis=0)
    assert overs >= 5
    assert rewards >= 20


def test_every_single_player_game_of_ale_is_here() -> None:
    shipped = set(roms.get_all_rom_ids()) - {"combat", "joust", "maze_craze", "warlords"}
    assert set(NAMES) == shipped
    assert len(game_table.ATARI_57) == 57


@pytest.mark.parametrize("spelling", ["ms_pacman", "MsPacman", "ALE/MsPacman-v5"])
def test_game_finds_other_spellings(spelling: str) -> None:
    assert game_table.game(spelling).name == "ms_pacman"


def test_unknown_game_says_what_is_near() -> None:
    with pytest.raises(KeyError, match="breakout"):
        game_table.game("breakoot")


def test_holds_is_any_of_all() -> None:
    when = (table_language.eq(0x80, 1) | table_language.eq(0x81, 2)) & table_language.above(0x82, 3)
    assert [len(c) for c in when.clauses] == [2, 2]
    table = np.full((1, 5, 6), -1, np.int32)
    rows = game_table._clauses(when)
    table[0, : len(rows)] = rows
    for a, b, c in np.ndindex(3, 4, 6):
        ram = np.array([a, b, c], np.uint8)
        assert rules.holds(table, 0, 5, ram, 0) == ((a == 1 or b == 2) and c > 3)

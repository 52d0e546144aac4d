# ruff: noqa: F403, F405
"""ROM images: where they are, which cartridge they come from, which properties the console needs to know."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..chips.cpu_opcodes import JSR_OPCODE
from ..chips.layout import *
from ..chips.memory_map import (
    A12,
    BANK_SIZE,
    DPC_END,
    DPC_LATE,
    E0_FIRST,
    E0_LAST,
    F6_BANK0,
    F8_BANK0,
    F8_BANK1,
    SC_END,
)

CARTRIDGES = {
    "2K": CART_2K, "4K": CART_4K, "F8": CART_F8, "F6": CART_F6, "E0": CART_E0, "FE": CART_FE,
    "F8SC": CART_F8SC, "F6SC": CART_F6SC, "DPC": CART_DPC,
}  # fmt: skip
DPC_SIZE = 10_495  # 8K of program, 2K of display data, 255 unused bytes
_SIZES = {"2K": 2048, "4K": 4096, "F8": 8192, "E0": 8192, "FE": 8192, "F8SC": 8192, "F6": 16384, "F6SC": 16384}

# The plain window: offsets of a bank that can be read without a side effect, [low, high)
_WINDOW = {
    CART_2K: (0, BANK_SIZE), CART_4K: (0, BANK_SIZE), CART_F8: (0, F8_BANK0), CART_F6: (0, F6_BANK0),
    CART_E0: (0, E0_FIRST), CART_FE: (0, BANK_SIZE), CART_F8SC: (SC_END, F8_BANK0), CART_F6SC: (SC_END, F6_BANK0),
    CART_DPC: (DPC_END, DPC_LATE),
}  # fmt: skip

Y_START = {"qbert": 40, "up_n_down": 30, "carnival": 26, "pooyan": 26}
HEIGHT = {"carnival": 214, "pooyan": 220, "journey_escape": 230}
PAL = frozenset(
    "adventure air_raid keystone_kapers king_kong klax laser_gates mr_do pacman sir_lancelot space_war".split()
)
NO_HMOVE_BLANKS = frozenset("asteroids battle_zone ms_pacman darkchambers".split())
PADDLES = frozenset("pong breakout backgammon blackjack casino kaboom".split())
SWAP_PORTS = frozenset("surround wizard_of_wor".split())
# Games whose frames may end before the picture is complete: the rest shows older frames, so every frame must be drawn.
# (They compute for many frames, or switch the picture off.)
UNFINISHED = frozenset("koolaid tetris tic_tac_toe_3d trondead video_checkers video_chess".split())
# The RAM byte that ale-py's rules read last, which stays on the bus between two frames of a restart; only a crashed
# program that executes TIA registers can tell. Found by running such programs as games without a choice of variants (in
# the others ale-py waits forever for the variant to be chosen). Games whose reads depend on conditions are left out.
LAST_READ = {
    "amidar": 0xD6, "assault": 0xE5, "asterix": 0xC7, "atlantis2": 0xA3, "beam_rider": 0x85, "blackjack": 0x86,
    "boxing": 0x91, "carnival": 0x83, "darkchambers": 0xCA, "earthworld": 0xA7, "enduro": 0xAF, "entombed": 0xC7,
    "fishing_derby": 0xBE, "journey_escape": 0x96, "kaboom": 0xA1, "koolaid": 0xD1, "kung_fu_master": 0x9D,
    "laser_gates": 0x83, "miniature_golf": 0xAF, "montezuma_revenge": 0xFE, "phoenix": 0xCB, "pitfall": 0x9E,
    "pitfall2": 0xC7, "qbert": 0xD9, "riverraid": 0xC0, "road_runner": 0xBD, "robotank": 0xA8, "seaquest": 0xBB,
    "skiing": 0x91, "solaris": 0xD9, "superman": 0x9F, "tetris": 0xF3, "time_pilot": 0xA0, "trondead": 0xC8,
    "up_n_down": 0x94, "venture": 0xBF, "wizard_of_wor": 0xD7,
}  # fmt: skip


class UnsupportedRom(ValueError):
    """The image does not fit any cartridge that this console knows."""


@dataclass(frozen=True)
class Rom:
    """An image, and all that a console needs to know to run it."""

    name: str
    cartridge: str
    image: np.ndarray  # uint8, 2K images doubled
    prop: np.ndarray  # int64[P_SIZE]

    @property
    def height(self) -> int:
        return int(self.prop[P_HEIGHT])

    @property
    def pal(self) -> bool:
        return bool(self.prop[P_PAL])


def folder() -> Path:
    """The folder of ROM images in the installed ale-py (found without importing it)."""
    spec = importlib.util.find_spec("ale_py")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("the ROMs come with ale-py, which is not installed. hint: pip install ale-py")
    return Path(spec.origin).parent / "roms"


def shipped() -> list[str]:
    """Names of all images that ale-py ships."""
    return sorted(path.stem for path in folder().glob("*.bin"))


def _absolute_accesses(image: np.ndarray) -> np.ndarray:
    """Addresses (13 bits) that instructions with an absolute operand, at any offset, could touch."""
    opcodes = np.isin(image[:-2], [0x0C, 0x2C, 0x8C, 0x8D, 0x8E, 0xAC, 0xAD, 0xAE, 0xCD])
    operands = image[1:-1].astype(np.int64) | (image[2:].astype(np.int64) << 8)
    return operands[opcodes & (operands & A12 != 0)] & 0x1FFF


def detect(image: np.ndarray) -> str:
    """The cartridge type of an image, from its size and from the hot spots that its program touches."""
    size = image.size
    if size == DPC_SIZE or size == DPC_SIZE - 255:
        return "DPC"
    if size <= 2048:
        return "2K"
    if size == 4096:
        return "2K" if np.array_equal(image[:2048], image[2048:]) else "4K"
    if size not in (8192, 16384):
        known = ", ".join(f"{n:,}" for n in (2048, 4096, 8192, DPC_SIZE, 16384))
        raise UnsupportedRom(
            f"an image of {size:,} bytes fits no supported cartridge. hint: supported sizes are {known} bytes"
        )
    banks = image.reshape(-1, BANK_SIZE)
    # Cartridge RAM hides the first 256 bytes of every bank, so nothing is stored there.
    if all(np.all(bank[:SC_END] == bank[0]) for bank in banks):
        return "F8SC" if size == 8192 else "F6SC"
    if size == 16384:
        return "F6"
    touched = _absolute_accesses(image)
    slices = np.count_nonzero((touched >= A12 | E0_FIRST) & (touched <= A12 | E0_LAST))
    switches = np.count_nonzero((touched == A12 | F8_BANK0) | (touched == A12 | F8_BANK1))
    if slices > 3 and slices > 2 * switches:
        return "E0"
    if switches == 0 and _calls_across_pages(image):
        return "FE"
    return "F8"


def _calls_across_pages(image: np.ndarray) -> bool:
    """FE programs lie at D000 and at F000, and switch banks by calling from one to the other."""
    calls = image[:-2] == JSR_OPCODE
    pages = image[2:][calls] >> 4
    return bool(np.count_nonzero(pages == 0xD) > 8 and np.count_nonzero(pages == 0xF) > 8)


def build(name: str, data: bytes, cartridge: str | None = None, pal: bool = False) -> Rom:
    """A ROM from its bytes. `name` selects the properties of a known game; others get the usual ones."""
    image = np.frombuffer(data, np.uint8)
    if image.size == 0:
        raise UnsupportedRom(f"the image of {name!r} is empty. hint: check the file")
    kind = cartridge or detect(image)
    if kind not in CARTRIDGES:
        raise UnsupportedRom(f"cartridge type {kind!r} is not supported. hint: one of {', '.join(CARTRIDGES)}")
    if kind == "2K":
        padded = np.zeros(2048, np.uint8)
        padded[: min(image.size, 2048)] = image[:2048]
        image = np.tile(padded, 2)
    elif kind == "DPC":
        if image.size < DPC_SIZE - 255:
            raise UnsupportedRom(f"a DPC image has {DPC_SIZE:,} bytes, this one {image.size:,}. hint: check the file")
    elif image.size != _SIZES[kind]:
        raise UnsupportedRom(
            f"a {kind} image has {_SIZES[kind]:,} bytes, this one {image.size:,}. hint: check the file"
        )
    number = CARTRIDGES[kind]
    prop = np.zeros(P_SIZE, np.int64)
    prop[P_CART] = number
    prop[P_Y_START] = Y_START.get(name, 34)
    prop[P_PAL] = name in PAL or pal
    prop[P_HEIGHT] = HEIGHT.get(name, 250 if prop[P_PAL] else 210)
    prop[P_HMOVE_BLANKS] = name not in NO_HMOVE_BLANKS
    prop[P_SWAP_PORTS] = name in SWAP_PORTS
    prop[P_PADDLES] = name in PADDLES
    prop[P_SWAP_PADDLES] = prop[P_RIGHT_PADDLES] = name == "pong"
    prop[P_DIFFICULTY_A] = name == "amidar"
    prop[P_ALWAYS_DRAW] = name in UNFINISHED
    prop[P_LAST_READ] = LAST_READ.get(name, 0xFF) & 0x7F
    prop[P_LOW], prop[P_HIGH] = _WINDOW[number]
    prop[P_PC_MASK] = 0x3FFF if number == CART_FE else 0x1FFF
    image = np.ascontiguousarray(image)
    image.flags.writeable = False  # like all images: Numba would compile again for a writeable array
    return Rom(name, kind, image, prop)


def load(name: str) -> Rom:
    """The ROM of a game that ale-py ships."""
    path = folder() / f"{name}.bin"
    if not path.exists():
        raise FileNotFoundError(f"no ROM {name!r} in {path.parent}. hint: `ale_py.roms.get_all_rom_ids()` lists them")
    return build(name, path.read_bytes())

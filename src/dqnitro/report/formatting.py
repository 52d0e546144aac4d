"""Numbers as people read them."""

from __future__ import annotations

from collections.abc import Callable

from dqnitro.common.parsing import Interval

Say = Callable[[float], str]


# Games that are not written as their names in code with capitals.
NAMES = {
    "hero": "H.E.R.O.", "jamesbond": "James Bond", "kung_fu_master": "Kung-Fu Master", "ms_pacman": "Ms. Pac-Man",
    "name_this_game": "Name This Game", "pacman": "Pac-Man", "qbert": "Q*bert", "up_n_down": "Up 'n Down",
    "yars_revenge": "Yars' Revenge", "montezuma_revenge": "Montezuma's Revenge", "et": "E.T.",
}  # fmt: skip


def game_name(env_id: str) -> str:
    """`space_invaders` as people write it; Gymnasium ids stay as they are."""
    if env_id in NAMES:
        return NAMES[env_id]
    return env_id.replace("_", " ").title() if env_id.islower() and ":" not in env_id else env_id


def duration(seconds: float) -> str:
    """4.2 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02d} min"


def rate(value: float) -> str:
    """1,234 or 3.5: a slow run keeps a digit."""
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}" if abs(value) >= 0.1 else f"{value:.2g}"


def times(ratio: float) -> str:
    """1.04×, 3.2×, 17×: three digits at most, as a ratio is rarely known better."""
    return f"{ratio:,.0f}×" if ratio >= 100 else f"{ratio:.1f}×" if ratio >= 10 else f"{ratio:.2f}×"


def bounds(i: Interval, say: Say = rate) -> str:
    """[1,190, 1,260], or empty for one value or equal ones, which have no interval. Only the mean carries a unit."""
    return f"[{say(i.low)}, {say(i.high)}]".replace("×", "") if i.n > 1 and i.low < i.high else ""


def spread(i: Interval, say: Say = rate) -> str:
    """1,234 [1,190, 1,260]"""
    return f"{say(i.mean)} {bounds(i, say)}".rstrip()


def when(moment: str) -> str:
    """2026-01-31 12:00:00 UTC"""
    return moment.replace("T", " ").replace("+00:00", " UTC")


def plural(n: int, one: str, many: str = "") -> str:
    return f"{n:,} {one if n == 1 else many or one + 's'}"

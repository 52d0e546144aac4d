"""Where a console stands in a start of a game that it plays in steps: the numbers that `start_in_steps` keeps."""

from __future__ import annotations

import numpy as np

# The phase; its frames (or tries) so far; frames that SELECT is still pressed and
# one without it, -1 for none; actions left of a try; were the no-ops drawn, and how many are left; Double Dunk's line
# and option; instructions left of a frame that was begun, and how many are played in the time of one frame.
T_PHASE, T_COUNT, T_SELECT, T_ACTIONS, T_DREW, T_NOOPS, T_LINE, T_OPTION, T_LEFT, T_SLICE, T_SIZE = range(11)
# A frame that never shows a picture ends after 25,000 instructions, four times the usual number. It is played in slices
# that are about as long as a frame of the game.
SHORTEST_SLICE, LONGEST_SLICE = 4000, 8000
# fmt: off
(
    # 0, so that memory without a start in it says that the console plays
    PLAYING,
    BEGIN, BOOT,
    # phases that press RESET
    PRESS_BOOT, PRESS_BEFORE_MODE, PRESS_MODE, PRESS_DUNK, PRESS_LAST,
    # phases that press SELECT once
    SELECT_BEFORE_MODE, SELECT_DUNK,
    LEAD,
    # phases whose frames are actions: random numbers are drawn for them, and they count as frames of the game
    NOOPS_BEFORE_MODE, CHOOSE_MODE, DUNK_DOWN, DUNK_OPTION, DUNK_SERVE, PRESS_FIRE, NOOPS,
) = range(18)
# fmt: on


def before_a_start(n: int) -> np.ndarray:
    """n consoles whose next step plays the first frame of a start (as after `start_in_steps.begin_start`)."""
    out = np.zeros((n, T_SIZE), np.int64)
    out[:, T_PHASE], out[:, T_SELECT], out[:, T_SLICE] = BEGIN, -1, LONGEST_SLICE
    return out

"""GPU only: which way the CPU runs. By the game's translated program (`cuda/program.py`), where there is one, or
interpreted: consoles that share a warp by `cuda/cpu_warp.py`, others by `chips/cpu_fast.py`.

A frame can also be played in slices here (`start_in_steps`), which `frame_unit` knows nothing of: `S_DRAW` then holds
not only whether pixels are drawn, but also how many instructions to run now (from bit 2 on), and whether more follow
(bit 1). Where they do, `S_GREYED` gets another bit, so that the frame is not taken for an unfinished one.
"""

from __future__ import annotations

from numpy import int64

from ..chips.cpu_fast import run as run_apart
from ..chips.cpu_reference import step_unit
from ..chips.layout import P_PROGRAM, P_TOGETHER, S_DEAD, S_DRAW, S_GREYED, S_LEFT, S_PARTIAL, S_STOP, S_TOUCH
from ..chips.tia import replay_unit
from ..jit.target import (
    as_state,
    call_translated,  # pyright: ignore[reportAttributeAccessIssue] - a GPU's target has it
    compiled,
    meet,
    together,
)
from .cpu_warp import run as run_together

MORE, SLICE_AT, GOES_ON = 2, 2, 2  # in S_DRAW: more follows, from which bit on the slice is; in S_GREYED


REST, LATE = 1, 2  # what a program returns, see `cuda/program.py`
MOST_STEPS = 200  # instructions that the reference may execute in a frame, as there


@compiled
def run_translated(s_at, ram_at, rom_at, prop_at, log_at, screen_at):
    """`run_program` of `chips/cpu_run.py`. Returns 1 if the frame is played, 0 if the interpreter shall go on.

    The program is called again after every instruction that the reference executes: it returns at once where it cannot
    be entered. Consoles of one warp meet after each call, so that the TIA catches up for all who need it.
    """
    s = as_state(s_at)
    steps, played, goes_on = 0, 0, True
    while goes_on:
        lanes = together()
        code = call_translated(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
        meet(lanes)
        if code == LATE:
            replay_unit(s_at, prop_at, log_at, int64(3 * s[S_TOUCH]), screen_at)
        if code == REST or steps >= MOST_STEPS:
            goes_on = False
        elif s[S_LEFT] <= 0:
            goes_on, played = False, 1
        else:
            s[S_LEFT] -= 1
            step_unit(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
            steps += 1
            if s[S_STOP] or s[S_DEAD]:
                goes_on, played = False, 1
    return played


@compiled
def run(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at):
    s = as_state(s_at)
    code = s[S_DRAW]
    if code >> SLICE_AT:
        s[S_LEFT], s[S_DRAW] = code >> SLICE_AT, code & 1
    played = 0
    if as_state(prop_at)[P_PROGRAM]:
        played = run_translated(s_at, ram_at, rom_at, prop_at, log_at, screen_at)
    if played:
        pass
    elif as_state(prop_at)[P_TOGETHER]:
        run_together(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at)
    else:
        run_apart(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at)
    if code & MORE and s[S_PARTIAL] and s[S_LEFT] <= 0 and s[S_DEAD] == 0:
        s[S_GREYED] |= GOES_ON

# ruff: noqa: F403, F405
"""A step of a console that may be between two games: frames of its game, or as many of the start of its next one.

On a CPU the start of a game is one call of a hundred frames and more (`games/environment.start_game`, then
`vector/agent_step.get_ready`). Beside thousands of consoles that wait for the end of a step it must not be: here it is
cut into frames, and a console whose game has ended plays them in the steps that follow, no more in a step than the
others play, and of a very long frame a slice. So no step takes longer because games begin. It is the same start: the
same frames, the same random numbers, the same memory (`tests/atari/cuda/test_start_in_steps.py` steps both).

`t` is where a console stands in its start (`start_phases`): a phase, and how many of its frames were played.
"""

from __future__ import annotations

from numpy import int64

from ..chips.controls import PADDLE_STEP, centre_paddles, press
from ..chips.frame import MOST_INSTRUCTIONS, frame_unit, reset
from ..chips.layout import *
from ..chips.rng import mt_below, mt_next
from ..games.environment import (
    DOUBLE_DUNK_OPTIONS,
    DOWN,
    LEFT,
    NOOP,
    RESET_ACTION,
    RESET_SWITCH,
    SELECT_SWITCH,
    UP,
    UPFIRE,
    between_frames,
    threshold,
)
from ..games.game_table import LEGAL, MODE, START_FLAT, START_LEN, START_OFS
from ..games.rules import mode_ready, rules_reset, rules_step
from ..games.table_language import (
    FIRE,
    G_LIVES,
    G_TERMINAL,
    M_BURST,
    M_KIND,
    M_MAX,
    M_PRE_NOOPS,
    M_PRE_RESET,
    M_PRE_SELECT,
    MODE_ADVENTURE,
    MODE_DOUBLE_DUNK,
    MODE_NONE,
)
from ..jit.target import MEETS, address, as_int32, as_ram, as_state, compiled, unit
from ..vector.agent_step import *
from .start_phases import *

PRESSES = 4  # frames that RESET is pressed
UNFINISHED = -(1 << 40)  # no reward
GOES_ON = 2  # in S_GREYED, see `cpu_dispatch`
SLICE_AT = 2  # in `draw`
BOOT_FRAMES = 60
UNSEEN = 56  # of them: pixels that later frames draw again in every game that need not be drawn always


@unit
def any_frame_unit(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at, game, g_at, action, down, draw, blind):
    """`environment.one_frame_unit`; with `blind` the rules do not see the frame, as while SELECT is pressed.

    On a GPU `draw` may ask for a slice of the frame (`cpu_dispatch`); UNFINISHED: more of it follows. An action of -1
    goes on with such a frame.
    """
    s, ram, prop = as_state(s_at), as_ram(ram_at), as_state(prop_at)
    if action == RESET_ACTION:
        press(s, prop, NOOP, RESET_SWITCH)
    elif action >= 0:
        press(s, prop, action, down)
    frame_unit(s_at, ram_at, rom_at, dec_at, prop_at, log_at, screen_at, draw)
    if s[S_GREYED] & GOES_ON:
        s[S_GREYED] &= 1
        return int64(UNFINISHED)
    if blind:
        return int64(0)
    s[S_LATCH] = ram[127]
    return int64(rules_step(game, ram, as_int32(g_at)))


@compiled
def any_frame(s, ram, rom, dec, prop, log, screen, game, g, action, down, draw, blind):
    return any_frame_unit(
        address(s), address(ram), address(rom), address(dec), address(prop), address(log), address(screen),
        game, address(g), action, down, draw, blind,
    )  # fmt: skip


# ---- the start, frame by frame


@compiled
def begin_start(s, t):
    """The next step of this console begins a game. Its last frame says how long one takes."""
    t[T_PHASE], t[T_COUNT], t[T_SELECT], t[T_ACTIONS], t[T_DREW], t[T_NOOPS] = BEGIN, 0, -1, 0, 0, 0
    usual = MOST_INSTRUCTIONS - s[S_LEFT]
    t[T_LEFT], t[T_SLICE] = 0, min(max(usual + usual // 8, SHORTEST_SLICE), LONGEST_SLICE)


@compiled
def enter(t, phase):
    t[T_PHASE], t[T_COUNT] = phase, 0


@compiled
def enter_line(t, ram):
    """Double Dunk: one line down on the options screen."""
    t[T_LINE] = ram[0x30]
    enter(t, DUNK_DOWN)


@compiled
def enter_mode(game, t):
    """After the first RESET: the way to the default variant of the game."""
    kind = MODE[game, M_KIND]
    if kind == MODE_NONE:
        enter(t, PRESS_LAST)
    elif kind == MODE_DOUBLE_DUNK:
        t[T_OPTION] = -1
        enter(t, SELECT_DUNK)
    else:
        enter(t, NOOPS_BEFORE_MODE)


@compiled
def after_presses(s, ram, game, g, t):
    """RESET was pressed for as long as it takes."""
    phase = t[T_PHASE]
    s[S_STICKY_A] = NOOP
    if phase == PRESS_BOOT:
        rules_reset(game, ram, g)
        enter_mode(game, t)
    elif phase == PRESS_BEFORE_MODE:
        enter(t, SELECT_BEFORE_MODE)
    elif phase == PRESS_MODE:
        enter(t, PRESS_LAST)
    elif phase == PRESS_DUNK:
        enter(t, DUNK_SERVE)
    else:
        enter(t, LEAD)


@compiled
def choose(ram, game, mt, t):
    """Between two presses of SELECT. True: one more; False: the variant is chosen."""
    if t[T_COUNT] >= MODE[game, M_MAX] or mode_ready(game, ram):
        return False
    t[T_COUNT] += 1
    if MODE[game, M_KIND] == MODE_ADVENTURE:
        t[T_SELECT], t[T_ACTIONS] = 2 + mt_next(mt) % 256, 1
    else:
        t[T_SELECT] = MODE[game, M_BURST]
    return True


@compiled
def dunk(ram, game, t):
    """Between two tries of Double Dunk. True: one more of the same kind; False: another phase was entered."""
    trying = t[T_COUNT] < MODE[game, M_MAX]
    if t[T_PHASE] == DUNK_DOWN:
        trying = trying and ram[0x30] == t[T_LINE]
    else:
        trying = trying and (ram[0x00] & DOUBLE_DUNK_OPTIONS[t[T_OPTION]]) != 0
    if trying:
        t[T_COUNT] += 1
        t[T_ACTIONS] = 2
        return True
    if t[T_PHASE] == DUNK_DOWN and t[T_OPTION] >= 0:
        enter(t, DUNK_OPTION)
        return False
    t[T_OPTION] += 1
    if t[T_OPTION] < 4:
        enter_line(t, ram)
    else:
        enter(t, PRESS_DUNK)
    return False


@compiled
def after_lead(mt_noops, t, o):
    """The game runs: press FIRE where it is an action, and wait. A game that ends meanwhile is started again."""
    if t[T_DREW]:
        enter(t, NOOPS)
        return
    t[T_DREW] = 1
    t[T_NOOPS] = mt_below(mt_noops, o[O_NOOPS]) if o[O_NOOPS] > 0 else 0
    if o[O_FIRE]:
        t[T_NOOPS] -= 1
        enter(t, PRESS_FIRE)
    else:
        enter(t, NOOPS)


@compiled
def advance(console, setup, rngs, t):
    """All that happens between two frames of a start. True: a frame is due; False: the game has begun."""
    s, ram, log, screen, _, g, mt, e = console
    rom, _, prop, _, o, _ = setup
    game = o[O_GAME]
    while t[T_SELECT] < 0 and t[T_ACTIONS] == 0:
        phase, count = t[T_PHASE], t[T_COUNT]
        if phase == BOOT:
            if count < BOOT_FRAMES:
                return True
            enter(t, PRESS_BOOT)
        elif PRESS_BOOT <= phase <= PRESS_LAST:
            if count < PRESSES:
                return True
            after_presses(s, ram, game, g, t)
        elif phase == LEAD:
            if count < START_LEN[game]:
                return True
            after_lead(rngs.noops, t, o)
        elif phase == NOOPS:
            if t[T_NOOPS] > 0:
                return True
            e[E_RESET], e[E_ELAPSED], e[E_LIVES], e[E_SLOT] = 0, 0, g[G_LIVES], o[O_STACK] - 1
            t[T_PHASE] = PLAYING
            return False
        elif phase == PRESS_FIRE:
            if count < 1:
                return True
            enter(t, NOOPS)
        elif phase == BEGIN:
            s[S_EPISODE_FRAMES] = 0
            centre_paddles(s, prop)
            reset(s, ram, rom, prop, log, screen, rngs.machine)
            enter(t, BOOT)
        elif phase == NOOPS_BEFORE_MODE:
            if count < MODE[game, M_PRE_NOOPS]:
                return True
            enter(t, PRESS_BEFORE_MODE if MODE[game, M_PRE_RESET] else SELECT_BEFORE_MODE)
        elif phase == SELECT_BEFORE_MODE:
            if count == 0 and MODE[game, M_PRE_SELECT]:
                t[T_COUNT], t[T_SELECT] = 1, MODE[game, M_PRE_SELECT]
            else:
                enter(t, CHOOSE_MODE)
        elif phase == CHOOSE_MODE:
            if not choose(ram, game, mt, t):
                enter(t, PRESS_MODE)
        elif phase == SELECT_DUNK:
            if count == 0:
                t[T_COUNT], t[T_SELECT] = 1, 1
            else:
                enter_line(t, ram)
        elif phase == DUNK_SERVE:
            if count < 2:
                return True
            enter(t, PRESS_LAST)
        else:
            dunk(ram, game, t)
    return True


@compiled
def stick(s, game, mt, action, limit):
    """The action of a frame of play, with the random numbers that are drawn for it (`environment.act_raw`)."""
    if mt_next(mt) >= limit:
        s[S_STICKY_A] = action
        s[S_PADDLE_STEP] = s[S_PADDLE_WANT]
    mt_next(mt)  # for player B, who never acts
    chosen = s[S_STICKY_A]
    return int64(chosen if (LEGAL[game] >> chosen) & 1 else NOOP)


@compiled
def start_action(t):
    """Of a phase whose frames are actions."""
    phase = t[T_PHASE]
    if phase == PRESS_FIRE:
        return int64(FIRE)
    if phase == DUNK_DOWN and t[T_ACTIONS] == 2:
        return DOWN
    if phase == DUNK_OPTION and t[T_ACTIONS] == 2:
        return LEFT
    if phase == DUNK_SERVE and t[T_COUNT] == 0:
        return UPFIRE
    return NOOP


@compiled
def before_frame(s, ram, prop, g, mt, t, o, limit):
    """The frame that is due: action, switches, is it drawn, is it blind. An action of -1: no frame after all."""
    phase, count, game, always = t[T_PHASE], t[T_COUNT], o[O_GAME], int64(prop[P_ALWAYS_DRAW])
    drawn, seen = int64(1), int64(0)
    if t[T_SELECT] > 0:
        return NOOP, SELECT_SWITCH, drawn, int64(1)
    if t[T_SELECT] == 0:
        s[S_LATCH] = ram[127]
        return NOOP, UP, drawn, seen
    if phase >= NOOPS_BEFORE_MODE:
        if (phase == PRESS_FIRE and t[T_NOOPS] > 0) or (phase == NOOPS and t[T_NOOPS] > 1):
            drawn = always
        action = stick(s, game, mt, start_action(t), limit)
        return action if g[G_TERMINAL] == 0 else int64(-1), UP, drawn, seen
    if phase == LEAD:
        return int64(START_FLAT[START_OFS[game] + count]), UP, drawn, seen
    if count > 0:
        between_frames(s, ram, prop)
    if phase == BOOT:
        if count < UNSEEN and s[S_PARTIAL] == 0:
            drawn = always
        return NOOP, UP, drawn, seen
    return NOOP, RESET_SWITCH, drawn, seen


@compiled
def after_frame(s, g, t, played):
    """Count the frame that was due; `played` is False where there was none after all."""
    phase, counts = t[T_PHASE], False
    if t[T_SELECT] >= 0:
        counts = t[T_SELECT] == 0
        t[T_SELECT] -= 1
    else:
        counts = played and phase >= NOOPS_BEFORE_MODE
        if t[T_ACTIONS] > 0:
            t[T_ACTIONS] -= 1
        elif phase == NOOPS:
            t[T_NOOPS] -= 1
        else:
            t[T_COUNT] += 1
    if counts:
        s[S_EPISODE_FRAMES] += 1
        s[S_TOTAL_FRAMES] += 1
    if phase == NOOPS and g[G_TERMINAL]:
        enter(t, BEGIN)


@compiled
def sliced(t, drawn):
    """`draw` of the next slice of a frame. On a CPU, where nobody waits for it, that is all of it."""
    if not MEETS:
        return drawn
    if t[T_LEFT] == 0:
        t[T_LEFT] = MOST_INSTRUCTIONS
    now = min(t[T_LEFT], t[T_SLICE])
    t[T_LEFT] -= now
    return int64(drawn | (2 if t[T_LEFT] > 0 else 0) | (now << SLICE_AT))


# ---- a step


@compiled
def play_or_start(console, setup, rngs, t, action, strength):
    """`agent_step.play`, or for a console between two games as many frames of a start. Returns what `play` returns.

    A start is complete when the phase is PLAYING again. The consoles of a warp run a frame together only if they reach
    it by the same call, so there is one. The phase is read again after it: a compiler that knew it to be the same would
    make two loops of this one, one after the other.
    """
    s, ram, log, screen, spare, g, mt, e = console
    rom, dec, prop, _, o, sticky = setup
    game, pool, limit = int64(o[O_GAME]), o[O_POOL], threshold(sticky)
    starts = t[T_PHASE] != PLAYING
    if not starts:
        s[S_PADDLE_WANT] = int64(PADDLE_STEP * abs(strength))
    game_over, lost, in_last_frame, whole = False, False, False, False
    reward, other = int64(0), int64(-1)
    for left in range(o[O_SKIP], -1, -1):  # at 0 there is no frame left, but the start may be complete
        pressed, down, drawn, blind, plays = int64(-1), UP, int64(1), int64(0), True
        if t[T_PHASE] == PLAYING:
            if left == 0:
                break
            shown = left == 1 or (left == 2 and pool)
            drawn = int64(1 if shown or s[S_PARTIAL] else prop[P_ALWAYS_DRAW])
            pressed = stick(s, game, mt, action, limit)
            plays = g[G_TERMINAL] == 0
        elif t[T_LEFT] > 0:
            if left == 0:
                break
            blind = int64(1 if t[T_SELECT] > 0 else 0)
            drawn = sliced(t, int64(s[S_DRAW]))
        else:
            if not advance(console, setup, rngs, t) or left == 0:
                break
            pressed, down, drawn, blind = before_frame(s, ram, prop, g, mt, t, o, limit)
            plays = pressed >= 0
            if plays:
                drawn = sliced(t, drawn)
        gained = int64(0)
        if plays:
            gained = any_frame(s, ram, rom, dec, prop, log, screen, game, g, pressed, down, drawn, blind)
        if t[T_PHASE] != PLAYING:
            if gained != UNFINISHED:
                s[S_LEFT] += t[T_LEFT]  # as if it had been one slice
                t[T_LEFT] = 0
                after_frame(s, g, t, plays)
        else:
            reward += gained
            if plays:
                s[S_EPISODE_FRAMES] += 1
                s[S_TOTAL_FRAMES] += 1
            e[E_ELAPSED] += 1
            game_over = g[G_TERMINAL] != 0
            lost = 0 < g[G_LIVES] < e[E_LIVES]
            if game_over or e[E_ELAPSED] >= o[O_MOST_FRAMES] or (o[O_EPISODIC] and lost):
                in_last_frame = left == 1 and o[O_SKIP] > 1
                break
            if left == 2 and pool:
                other = int64(s[S_BUFFER])
                if s[S_PARTIAL]:
                    # the next frame goes on drawing in the same buffer
                    keep_screen(screen[other], spare)
                    other = int64(2)
            whole = left == 1
    if starts:
        return int64(0), False, False, int64(AGAIN), int64(0)
    if other < 0:
        other = int64(s[S_BUFFER])
    view = WHOLE if whole else STALE if in_last_frame and pool else AGAIN
    e[E_LIVES] = g[G_LIVES]
    terminated = game_over or ((o[O_LIFE_FLAG] or o[O_EPISODIC]) and lost)
    time_up = e[E_ELAPSED] >= o[O_MOST_FRAMES]
    truncated = time_up and not terminated
    e[E_RESET] = 1 if game_over or time_up or (o[O_EPISODIC] and lost) else 0
    if o[O_CLIP]:
        reward = min(max(reward, int64(-1)), int64(1))
    return reward, terminated, truncated, int64(view), other

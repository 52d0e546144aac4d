"""A process that compiles units of the console into Numba's cache: `jit.parallel_compile` starts one for each core.

It reads the names of parts from standard input, compiles each, and answers with the CPU seconds that it took.
"""

from __future__ import annotations

import sys
import time
from typing import Any


def kept(dispatcher: Any) -> Any:
    """Let a function go to the cache, with the versions that another part has made of it already."""
    from .jit.target import keep

    keep(dispatcher)
    for signature, version in dispatcher.overloads.items():
        dispatcher._cache.save_overload(signature, version)
    return dispatcher


# A compiled function, and arguments with the types of those that Python calls it with.
Call = tuple[Any, tuple[Any, ...]]


def step_calls() -> list[Call]:
    """What `AtariVec` calls."""
    import numpy as np

    from .games import game_table, roms
    from .vector import work_queue, worker
    from .vector.agent_step import R_SIZE
    from .vector.arrays import Tasks
    from .vector.memory import make_memory, make_scratch, make_shared
    from .vector.options import VecOptions

    options, game, rom = VecOptions(), game_table.game("pong"), roms.load("pong")
    shared = make_shared(options, game, rom, np.zeros(1, np.uint32))
    memory = make_memory(1, rom.height, options, keeps=False)
    scratch = make_scratch(shared.plan, shared.luts)
    one = np.zeros(1, np.int64)
    obs = np.zeros((1, int(np.prod(options.obs_shape))), np.uint8)
    tasks = Tasks(
        one, np.zeros(1, np.int32), one, one, one, np.ones(1, np.float32), obs, obs,
        np.zeros((R_SIZE, 1), np.int32), np.zeros((2, 1), np.bool_),
    )  # fmt: skip
    control = work_queue.make_control(1, 1)
    return [
        (worker.work, (control, 0, False, tuple(memory), tuple(shared), tuple(scratch))),
        (work_queue.publish, (control, tasks, 0, 0, False)),
        (work_queue.wait, (control, 0)),
        (work_queue.unfinished, (control, 0)),
        (work_queue.close, (control,)),
    ]


def console_calls() -> list[Call]:
    """What `Console` calls."""
    import numpy as np

    from . import console
    from .chips.layout import LOG_SIZE, ROWS, S_SIZE, WORDS
    from .chips.rng import MT_SIZE
    from .games import roms, table_language

    rom = roms.load("pong")
    state, ram = np.zeros((1, S_SIZE), np.int64), np.zeros((1, 256), np.uint8)
    screen, g = np.zeros((1, 2, ROWS, WORDS), np.uint64), np.zeros((1, table_language.G_SIZE), np.int32)
    mt, log, program = np.zeros((1, MT_SIZE), np.uint32), np.zeros(LOG_SIZE, np.int64), np.zeros(1, np.uint32)
    one, prop = np.zeros(1, np.int64), rom.prop
    actions = np.broadcast_to(one, (1,))  # read-only, as `Console.act` makes it
    return [
        (console.mt_seed, (mt[0], 0)),
        (
            console.power_on,
            (state[0], ram[0], rom.image, program, prop, prop, log, screen[0], 0, g[0], mt[0]),
        ),
        (
            console.start_game,
            (state[0], ram[0], rom.image, program, prop, log, screen[0], 0, g[0], mt[0], mt[0], 0.0),
        ),
        (
            console.act_all,
            (state, ram, rom.image, program, prop, log, screen, 0, g, mt, actions, 0.0, 1, one),
        ),
    ]


def compile_calls(calls: list[Call]) -> None:
    """Compile each function for its arguments, into the cache, without calling it."""
    for dispatcher, arguments in calls:
        kept(dispatcher).compile(tuple(dispatcher.typeof_pyval(a) for a in arguments))


def step_part() -> None:
    from .observation import resize

    kept(resize.learn)  # `make_scratch` calls it
    compile_calls(step_calls())


def decode_part() -> None:
    from .chips import cpu_predecode
    from .games import roms
    from .translate import trace

    kept(cpu_predecode.decode_image)
    kept(cpu_predecode.fuse)
    rom = roms.build("", bytes(4096))
    cpu_predecode.predecode(rom)
    compile_calls([(trace.explore, trace.arrays(rom))])


def console_part() -> None:
    compile_calls(console_calls())


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing but answers may go through the pipe
    from .jit.parallel_compile import PROGRAM, end_with_parent

    end_with_parent()
    from .jit import target

    units = target.compile_later()
    from .games import environment  # noqa: F401 - defines all units

    def program_part() -> None:
        for name in PROGRAM:
            units[name].compile()

    special = {"program": program_part, "step": step_part, "decode": decode_part, "console": console_part}
    for line in sys.stdin:
        part = line.strip()
        began = time.process_time()
        special.get(part, lambda part=part: units[part].compile())()
        print(f"{part} {time.process_time() - began:.2f}", file=answers, flush=True)


if __name__ == "__main__":
    main()

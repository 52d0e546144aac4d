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


class Typed:
    """Stands in for a compiled function: a call compiles it for these arguments and does not run it."""

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher = kept(dispatcher)

    def __call__(self, *arguments: Any) -> int:
        self.dispatcher.compile(tuple(self.dispatcher.typeof_pyval(a) for a in arguments))
        return 0


def step_part() -> None:
    """What `AtariVec` calls."""
    import numpy as np

    from . import vec
    from .observation import resize
    from .vector import batch, work_queue, worker

    around = (work_queue.publish, work_queue.wait, work_queue.unfinished, work_queue.close)
    for small in (resize.learn, worker.place, *around):
        kept(small)
    typed = Typed(worker.work)

    def work(control: np.ndarray, *arguments: Any) -> None:
        typed(control, *arguments)
        # Nobody played: count the job as done, so that `reset` returns.
        control[work_queue.C_WORDS + work_queue.J_UNFINISHED] = 0

    batch._WORK = work
    batch.predecode = lambda rom: np.zeros(1, np.uint32)
    env = vec.AtariVec("pong", 1, num_threads=1)
    env.reset(seed=0)
    work_queue.unfinished(env._workers._control, 0)
    work_queue.close(env._workers._control)


def decode_part() -> None:
    from .chips import cpu_predecode
    from .games import roms

    kept(cpu_predecode.decode_image)
    kept(cpu_predecode.fuse)
    cpu_predecode.predecode(roms.build("", bytes(4096)))


def console_part() -> None:
    """What `Console` calls."""
    import numpy as np

    from . import console

    kept(console.mt_seed)
    console.predecode = lambda rom: np.zeros(1, np.uint32)
    for name in ("power_on", "start_game", "act_all"):
        setattr(console, name, Typed(getattr(console, name)))
    console.Console("pong").act(0)


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # nothing but answers may go through the pipe
    from .jit import target
    from .jit.parallel_compile import PROGRAM

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

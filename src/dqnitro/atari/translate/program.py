# ruff: noqa: F403, F405
"""Programs as machine code: compiled by LLVM, kept between starts, handed to consoles while they play.

A program is made once for a ROM, a machine and a version of the generator. A file that is damaged counts as missing;
where no folder can be written, a program lives as long as its process. Making one takes seconds, so an environment asks
for it when it has played for a while (`HOT_FRAMES`); another process (`child.py`) makes it meanwhile, and consoles use
it from their next frame on. `DQNITRO_TRANSLATE=0` switches all of it off; `wait` makes programs before the first frame.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import numpy as np
from numba.core.caching import FunctionCache

from ..chips.cpu_predecode import decode_image, predecode
from ..chips.cpu_run import T_ENTRIES, T_PROGRAM, T_REPLAY, T_SIZE
from ..chips.layout import *
from ..games.roms import Rom
from ..jit import code_cache
from ..jit.parallel_compile import locked
from ..jit.target import TRANSLATES, stamp, unit_address
from .discover import MOST_INSTRUCTIONS, Code, discover
from .trace import entries as traced
from .translator import Translator

HOT_FRAMES = 25_000  # of an environment: some 0.7 s of one core
SETTING = os.environ.get("DQNITRO_TRANSLATE", "1")
OFF, WAIT = "0", "wait"


class Program:
    """Machine code in memory, and the table that it is called with."""

    def __init__(self, code: bytes, entries: np.ndarray) -> None:
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        engine.finalize_object()
        self._keep = engine, entries
        self.table = np.zeros(T_SIZE, np.int64)
        self.table[T_PROGRAM] = engine.get_function_address("program")
        self.table[T_ENTRIES] = entries.ctypes.data
        self.table[T_REPLAY] = unit_address("replay_unit")

    @property
    def address(self) -> int:
        return self.table.ctypes.data


def _machine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=2, jit=True
    )


def key(rom: Rom) -> str:
    """Everything that a program depends on."""
    digest = hashlib.sha256(stamp(Path(__file__)).encode())
    versions = llvmlite.__version__, llvm.llvm_version_info, llvm.get_host_cpu_name()
    digest.update(repr((versions, sorted(llvm.get_host_cpu_features().items()))).encode())
    digest.update(rom.prop[[P_CART, P_LOW, P_HIGH]].tobytes())
    digest.update(rom.image.tobytes())
    return digest.hexdigest()[:32]


def discovered(rom: Rom, most: int = MOST_INSTRUCTIONS) -> Code:
    """The code of a ROM: at most `most` instructions; the others stay interpreted."""
    words = np.zeros_like(predecode(rom))
    decode_image(rom.image, rom.prop, words)
    return discover(rom.image, rom.prop, words, traced(rom), most)


def entry_table(code: Code, numbers: dict[int, int]) -> np.ndarray:
    """For each place the number of its entry (0: none) and its program counter."""
    entries = np.zeros(code.image.size, np.int32)
    for place, number in numbers.items():
        entries[place] = (number << 16) | code.instructions[place].pc
    return entries


def optimise(module: Any, machine: Any) -> None:
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    passes.add_instruction_combine_pass()
    passes.add_dead_store_elimination_pass()
    passes.add_aggressive_dce_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)


def make(rom: Rom, most: int = MOST_INSTRUCTIONS) -> tuple[bytes, np.ndarray]:
    """Translate a ROM: its machine code and its table of entries."""
    code = discovered(rom, most)
    translator = Translator(code, int(rom.prop[P_LOW]), int(rom.prop[P_HIGH]))
    module = llvm.parse_assembly(translator.text())
    machine = _machine()
    optimise(module, machine)
    return machine.emit_object(module), entry_table(code, translator.ids)


def packed(code: bytes, entries: np.ndarray) -> bytes:
    """A program as it is kept in a file."""
    table = entries.tobytes()
    return len(table).to_bytes(8, "little") + table + code


def unpacked(content: bytes) -> Program:
    size = int.from_bytes(content[:8], "little")
    return Program(content[8 + size :], np.frombuffer(content[8 : 8 + size], np.int32))


_CHILDREN: set[subprocess.Popen[bytes]] = set()


@atexit.register
def _end_children() -> None:
    for child in list(_CHILDREN):
        child.kill()


def made_by_child(rom: Rom) -> bytes:
    """`make` in a process of its own: it can be ended at any time, and it does not hold up this one's Python."""
    paths = [str(Path(__file__).parents[3]), *filter(None, [os.environ.get("PYTHONPATH")])]
    child = subprocess.Popen(
        [sys.executable, "-m", "dqnitro.atari.translate.child", rom.cartridge],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    _CHILDREN.add(child)
    try:
        content, said = child.communicate(rom.image.tobytes())
    finally:
        _CHILDREN.discard(child)
    if child.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or [f"exit code {child.returncode}"]
        raise RuntimeError(lines[-1])
    return content


# ---- files


def _path(name: str) -> Path | None:
    """Where the program is kept: beside the console's own compiled code."""
    try:
        return Path(FunctionCache(key).cache_path) / f"dqnitro-program-{name}.bin"
    except RuntimeError:  # no folder can be written
        return None


def _load(path: Path | None) -> Program | None:
    if path is None:
        return None
    try:
        return unpacked(code_cache.opened(str(path)))
    except FileNotFoundError:
        return None
    except Exception as error:  # damaged, or not readable for us
        code_cache.say_once(f"dqnitro: the translated game in {path} is of no use ({error!r}); translating it again")
        return None


def _save(path: Path | None, content: bytes) -> None:
    if path is None:
        return
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(code_cache.sealed(content))
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        code_cache.say_once(f"dqnitro: cannot keep translated games in {path.parent} ({error.strerror})")


def _made(rom: Rom, path: Path | None, child: bool) -> Program:
    """Make a program and keep it; of processes that play the same game, one does it and the others wait for it."""
    if path is None:
        return Program(*make(rom))
    with locked(path.parent):
        program = _load(path)
        if program is None:
            content = made_by_child(rom) if child else packed(*make(rom))
            program = unpacked(content)
            _save(path, content)
        return program


# ---- in this process


class Programs:
    """The programs of this process, by key, and the properties of consoles that wait for one."""

    def __init__(self, parents: Programs | None = None) -> None:
        self._lock = threading.Lock()
        # None: it cannot be made
        self._ready: dict[str, Program | None] = {} if parents is None else dict(parents._ready)
        self._waiting: dict[str, list[weakref.ref[np.ndarray]]] = {}

    def attach(self, rom: Rom, props: list[np.ndarray], make_it: bool, wait: bool = False) -> bool:
        """Let consoles use the ROM's program: now, if there is one, or with `make_it` when it is made.

        `props` are the properties that the consoles share. Returns whether nothing is left to ask for.
        """
        name = key(rom)
        with self._lock:
            if name not in self._ready and name not in self._waiting:
                program = _load(_path(name))
                if program is not None:
                    self._ready[name] = program
            if name in self._ready:
                _hand_out(self._ready[name], props)
                return True
            if not make_it:
                return False
            asked = name in self._waiting
            self._waiting.setdefault(name, []).extend(weakref.ref(prop) for prop in props)
        if not asked:
            # Without a folder a child would have to compile the console first.
            child = not wait and _path(name) is not None and bool(sys.executable) and not getattr(sys, "frozen", False)
            arguments = name, rom, child
            maker = threading.Thread(target=self._make, args=arguments, name=f"translate-{rom.name}", daemon=child)
            maker.start()
            if wait:
                maker.join()
        return True

    def _make(self, name: str, rom: Rom, child: bool) -> None:
        began = time.perf_counter()
        code_cache.say_once(
            f"dqnitro: translating {rom.name or 'this ROM'} to machine code, once; it plays meanwhile ..."
        )
        program = None
        try:
            program = _made(rom, _path(name), child)
            what = f"dqnitro: translated {rom.name or 'the ROM'} in {time.perf_counter() - began:.1f} s"
        except Exception as error:  # it plays on, interpreted
            what = f"dqnitro: cannot translate {rom.name or 'this ROM'} ({error!r}): it stays interpreted"
        with self._lock:
            self._ready[name] = program
            for waiting in self._waiting.pop(name, []):
                if (prop := waiting()) is not None:
                    _hand_out(program, [prop])
        code_cache.say_once(what)


def _hand_out(program: Program | None, props: list[np.ndarray]) -> None:
    for prop in props:
        prop[P_PROGRAM] = 0 if program is None else program.address


_PROGRAMS = Programs()


def _after_fork() -> None:
    """A child lacks the thread that would finish what its parent began. Programs that are ready stay in use."""
    global _PROGRAMS
    _PROGRAMS = Programs(_PROGRAMS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Request:
    """An environment's wish for a translated program: granted at once if there is one, made when it has played much."""

    def __init__(self, rom: Rom, *props: np.ndarray, setting: str = SETTING) -> None:
        self._rom, self._props = rom, list(props)
        self._left = HOT_FRAMES
        self.settled = not TRANSLATES or setting == OFF
        if not self.settled:
            wait = setting == WAIT
            self.settled = _PROGRAMS.attach(rom, self._props, make_it=wait, wait=wait)

    def played(self, frames: int) -> None:
        """Count frames; the program is made when they are many."""
        if not self.settled:
            self._left -= frames
            if self._left <= 0:
                self.settled = _PROGRAMS.attach(self._rom, self._props, make_it=True)

    @property
    def granted(self) -> bool:
        """Whether a translated program plays, and not the interpreter."""
        return all(prop[P_PROGRAM] != 0 for prop in self._props)

    def translate(self) -> None:
        """Let the translated program play from now on; make it, if there is none."""
        self.settled = _PROGRAMS.attach(self._rom, self._props, make_it=True, wait=True)

    def interpret(self) -> None:
        """Let the interpreter play from now on."""
        self.settled = True
        _hand_out(None, self._props)

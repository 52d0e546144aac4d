"""The decorators that turn plain Python functions into machine code: the only module that knows the compiler.

Every function of the console is written once, with scalars and arrays only, and decorated with ``compiled``.
Here that means Numba for CPU cores; `cuda/target.py` defines the same names for GPUs, and the functions stay the same.

Numba optimises a function together with all that it calls, again for every caller. The big ones are therefore
*units* (``unit``): compiled once on their own and called by address, which costs next to nothing and saves minutes.
Arrays go to a unit as addresses: ``unit_call(address(s), ...)``, and it begins with ``s = as_state(s_at)``.

Units refer to each other by symbol only, so several processes can compile them at the same time
(`jit/parallel_compile.py`).

``DQNITRO_BOUNDSCHECK=1`` compiles with checks of every array index (slow; the fuzz test runs like that).
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from ..chips.layout import ROWS, WORDS
from . import code_cache
from .code_cache import NUMBA
from .dependencies import closure

F = TypeVar("F", bound=Callable[..., Any])

BOUNDSCHECK = os.environ.get("DQNITRO_BOUNDSCHECK", "") == "1"

# error_model="numpy": a division does not test for zero, so no exception path is compiled in.
_OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": BOUNDSCHECK, "error_model": "numpy"}


# Read at once, so that all stamps of a process agree even if a file is edited meanwhile.
_SOURCES = {path: path.read_bytes() for path in Path(__file__).parents[1].rglob("*.py")}


def _source(path: Path) -> bytes | None:
    if path in _SOURCES:
        return _SOURCES[path]
    return path.read_bytes() if path.exists() else None


@functools.cache
def _stamp(path: Path) -> str:
    """Hash of a module and all that it imports from this package.

    Numba's cache looks at a function's own file only, so a change of a function that it calls, or of a table
    that was frozen into it, would go unnoticed.
    """
    seen = closure([path], _source)
    digest = hashlib.sha256(b"checked" if BOUNDSCHECK else b"fast")
    for module in sorted(seen):
        digest.update(seen[module])
    return digest.hexdigest()


def _keep(code: Any, function: Any) -> None:
    """Store compiled code in Numba's cache, if a folder for it can be written."""
    code_cache.keep(code, function, _stamp(Path(function.__code__.co_filename)))


_DISPATCHERS: list[Any] = []


def _jit(function: F, **options: Any) -> F:
    dispatcher: Any = numba.njit(**_OPTIONS, **options)(function)
    if not NUMBA.config.DISABLE_JIT:
        if _LATER is None:
            _keep(dispatcher, function)
        _DISPATCHERS.append(dispatcher)
    return dispatcher


def compiled(function: F) -> F:
    """Compile for the CPU, callable from Python and from other compiled functions."""
    return _jit(function)


def inlined(function: F) -> F:
    """A `compiled` function that becomes part of its caller: passing ten arrays costs 50 ns, too much in a hot loop."""
    return _jit(function, forceinline=True)


def spliced(function: F) -> F:
    """A `compiled` function that is inlined into its caller's source before anything is compiled.

    Numba optimises a callee again with every caller, level by level. Inlining at source level removes one level; for
    large functions that saves seconds of compile time.
    """
    return _jit(function, inline="always")


_UNITS: list[Any] = []
_LATER: dict[str, CFunc] | None = None  # in a helper process: the units, by name


def compile_later() -> dict[str, CFunc]:
    """In a helper process: do not compile units where they are defined, but collect them in the dictionary returned.

    They get an address that must not be called. Only what is asked for (`keep`) goes to the cache: Numba's index of a
    function's versions does not survive two processes that each add one.
    """
    global _LATER
    _LATER = {}
    for dispatcher in _DISPATCHERS:
        dispatcher._cache = NullCache()
    return _LATER


def keep(dispatcher: Any) -> None:
    """In a helper process: let this function go to the cache after all."""
    _keep(dispatcher, dispatcher.py_func)


def _is_cached(code: Any) -> bool:
    cache_file = getattr(code._cache, "_cache_file", None)
    return cache_file is not None and bool(cache_file._load_index())


_prepared = False


def _prepare(code: Any) -> None:
    """Called for the first unit that is missing in the cache: compile everything, on all cores."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    folder = getattr(code._cache, "cache_path", None)
    if folder is None:
        code_cache.say_once("dqnitro: compiling the console (about a minute) ...")
        return
    from .parallel_compile import compile_together

    compile_together(Path(folder), lambda: not _is_cached(code), code_cache.say_once)


def _unit(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile now (or load from the cache) as a function of its own; all arguments and the result are int64."""
    arguments = (types.int64,) * function.__code__.co_argcount
    options = {"nopython": True, "error_model": "numpy"}
    code = CFunc(function, (arguments, types.int64), locals={}, options=options)
    _keep(code, function)
    symbol = f"dqnitro_{function.__name__}_{_stamp(Path(function.__code__.co_filename))[:16]}"
    if _LATER is not None:
        _LATER[function.__name__] = code
        llvmlite.binding.add_symbol(symbol, id(_LATER))
    else:
        if not _is_cached(code):
            _prepare(code)
        code.compile()
        _UNITS.append(code)  # keeps the code alive
        llvmlite.binding.add_symbol(symbol, code.address)
    return types.ExternalFunction(symbol, types.int64(*arguments))


def _pointer_typed(typing_context: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), build


_pointer: Any = intrinsic(_pointer_typed)
pointer = _pointer
carray = NUMBA.carray


def _call_program_typed(
    typing_context: Any, at: Any, table: Any, s: Any, ram: Any, rom: Any, prop: Any, log: Any, screen: Any
) -> Any:
    """Call the machine code at an address: a translated program, with the arguments of `translate/translator.py`."""

    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(cgutils.intp_t, [cgutils.intp_t] * 7)
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int64(*(types.int64,) * 8), build


def unit_address(name: str) -> int:
    """Where the machine code of a unit begins."""
    return next(code.address for code in _UNITS if code.__name__ == name)


def stamp(path: Path) -> str:
    """Changes with a module, and with all that it imports from this package."""
    return _stamp(path)


def _same(array):
    return array


def _address_typed(typing_context: Any, array: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, cgutils.intp_t)

    return types.int64(array), build


# A product and a sum, each rounded: a compiler that joins them into one instruction would round only once.


def _mul32(a, b):
    return np.float32(a * b)


def _add32(a, b):
    return np.float32(a + b)


# The sizes below only complete the type: without bounds checks they are not used.


def _as_state(at):
    return carray(_pointer(at), (1024,), np.int64)


def _as_bytes(at):
    return carray(_pointer(at), (65536,), np.uint8)


def _as_words(at):
    return carray(_pointer(at), (65536,), np.uint32)


def _as_int32(at):
    return carray(_pointer(at), (1024,), np.int32)


def _as_screen(at):
    return carray(_pointer(at), (2, ROWS, WORDS), np.uint64)


# Consoles that share instructions (those of a warp) wait for one another at `meet`: all that `together` has counted.


def _together():
    return 0


def _meet(lanes):
    pass


# A word of a mask is one number of the state here; on a GPU, whose state has 32-bit numbers, it is two.


def _get_word(s_at, at):
    return np.uint64(as_state(s_at)[at])


def _put_word(s_at, at, word):
    as_state(s_at)[at] = np.int64(word)


# Bounds checks need real arrays with real sizes: then units are ordinary functions, and arrays stand for their
# addresses.
CHECKED = BOUNDSCHECK or bool(NUMBA.config.DISABLE_JIT)
unit: Any = compiled if CHECKED else _unit
mul32: Any = compiled(_mul32)
add32: Any = compiled(_add32)
address: Any = compiled(_same) if CHECKED else intrinsic(_address_typed)
as_state: Any = compiled(_same if CHECKED else _as_state)
as_bytes: Any = compiled(_same if CHECKED else _as_bytes)
as_ram, as_log = as_bytes, as_state
get_word: Any = inlined(_get_word)
put_word: Any = inlined(_put_word)
MEETS = False  # a core runs one console at a time
together: Any = compiled(_together)
meet: Any = compiled(_meet)
TRANSLATES = not CHECKED  # games may run as machine code of their own, see `translate/`

call_program: Any = intrinsic(_call_program_typed) if TRANSLATES else None
wide = compiled  # for functions that need 64-bit numbers on every target
as_words: Any = compiled(_same if CHECKED else _as_words)
as_int32: Any = compiled(_same if CHECKED else _as_int32)
as_screen: Any = compiled(_same if CHECKED else _as_screen)

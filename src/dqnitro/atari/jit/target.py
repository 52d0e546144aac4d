"""What turns a plain Python function into machine code: the only place that names a compiler.

Every function of the console is written once, with scalars and arrays only, and decorated with ``compiled``.
Here that means Numba for CPU cores; another target needs another decorator, not other functions.

Numba optimises a function together with all that it calls, again for every caller. The three big ones are therefore
*units* (``unit``): compiled once on their own and called by address, which costs nothing that matters and saves minutes.
Arrays go to a unit as addresses: ``unit_call(address(s), ...)``, and it begins with ``s = as_state(s_at)``.

Units name each other by symbol only, so several processes can compile them side by side (`jit/parallel_compile.py`).

``DQNITRO_BOUNDSCHECK=1`` compiles with checks of every array index (slow; the fuzz test runs like that).
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import llvmlite.binding
import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.caching import NullCache
from numba.core.ccallback import CFunc
from numba.extending import intrinsic

from ..chips.layout import ROWS, WORDS
from .dependencies import closure

F = TypeVar("F", bound=Callable[..., Any])

BOUNDSCHECK = os.environ.get("DQNITRO_BOUNDSCHECK", "") == "1"

# error_model="numpy": a division does not test for zero, so no exception path is compiled in.
_OPTIONS: dict[str, Any] = {"nogil": True, "boundscheck": BOUNDSCHECK, "error_model": "numpy"}


# Read at one moment, so that all stamps of a process agree, even when somebody edits a file meanwhile.
_SOURCES = {path: path.read_bytes() for path in Path(__file__).parents[1].rglob("*.py")}


def _source(path: Path) -> bytes | None:
    if path in _SOURCES:
        return _SOURCES[path]
    return path.read_bytes() if path.exists() else None


@functools.cache
def _stamp(path: Path) -> str:
    """Hash of a module and of all that it imports from this package.

    Numba's cache looks at a function's own file only, so a change of a function that it calls, or of a table
    that was frozen into it, would go unnoticed.
    """
    seen = closure([path], _source)
    digest = hashlib.sha256(b"checked" if BOUNDSCHECK else b"fast")
    for module in sorted(seen):
        digest.update(seen[module])
    return digest.hexdigest()


def _set_stamp(code: Any, stamp: str) -> None:
    cache_file = getattr(getattr(code, "_cache", None), "_cache_file", None)
    if cache_file is not None and hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = stamp


@functools.cache
def _say_once(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _keep(code: Any, function: Any) -> None:
    """Let compiled code be kept in Numba's cache, where there is a folder for it."""
    try:
        code.enable_caching()
    except RuntimeError:  # neither beside the source nor in the user's own cache folder can anything be written
        _say_once("dqnitro: no folder to keep compiled code in: every start compiles. hint: set NUMBA_CACHE_DIR")
        return
    _set_stamp(code, _stamp(Path(function.__code__.co_filename)))


_DISPATCHERS: list[Any] = []


def _jit(function: F, **options: Any) -> F:
    dispatcher: Any = numba.njit(**_OPTIONS, **options)(function)
    if not numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        if _LATER is None:
            _keep(dispatcher, function)
        _DISPATCHERS.append(dispatcher)
    return dispatcher


def compiled(function: F) -> F:
    """Compile for the CPU, callable from Python and from other compiled functions."""
    return _jit(function)


def inlined(function: F) -> F:
    """A `compiled` function that becomes part of its caller: passing ten arrays costs 50 ns, which a loop feels."""
    return _jit(function, forceinline=True)


def spliced(function: F) -> F:
    """A `compiled` function whose lines become the caller's before anything is compiled.

    Numba optimises what a function calls again with it, level by level; a large function saves as many seconds as it
    has large ones below it when it is no level of its own.
    """
    return _jit(function, inline="always")


_UNITS: list[CFunc] = []
_LATER: dict[str, CFunc] | None = None  # in a process that compiles a share: the units, by name


def compile_later() -> dict[str, CFunc]:
    """From now on units are not compiled where they are defined; the result collects them.

    They get an address that nobody may call. Nothing but what is asked for (`keep`) goes to the cache: Numba's index of
    a function's versions does not survive two processes that add one each.
    """
    global _LATER
    _LATER = {}
    for dispatcher in _DISPATCHERS:
        dispatcher._cache = NullCache()
    return _LATER


def keep(dispatcher: Any) -> None:
    """In a process that compiles a share: this function goes to the cache after all."""
    _keep(dispatcher, dispatcher.py_func)


def _is_cached(code: Any) -> bool:
    cache_file = getattr(code._cache, "_cache_file", None)
    return cache_file is not None and bool(cache_file._load_index())


_prepared = False


def _prepare(code: Any) -> None:
    """The first unit without code in the cache: have everything compiled, by all cores."""
    global _prepared
    if _prepared:
        return
    _prepared = True
    folder = getattr(code._cache, "cache_path", None)
    if folder is None:
        _say_once("dqnitro: compiling the console (about a minute) ...")
        return
    from .parallel_compile import compile_together

    compile_together(Path(folder), lambda: not _is_cached(code), _say_once)


def _unit(function: F) -> F:
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
    return types.ExternalFunction(symbol, types.int64(*arguments))  # type: ignore[return-value]


def _pointer_typed(typing_context: Any, at: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), build


_pointer: Any = intrinsic(_pointer_typed)
carray: Any = numba.carray  # type: ignore[attr-defined]


def _same(array):
    return array


def _address_typed(typing_context: Any, array: Any) -> Any:
    def build(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, cgutils.intp_t)

    return types.int64(array), build


# Two roundings: a compiler that joins a product and a sum into one instruction would round once.


def _mul32(a, b):
    return np.float32(a * b)


def _add32(a, b):
    return np.float32(a + b)


# The sizes below are for the type only: without checks nothing looks at them.


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


# Machines that share instructions (a warp) wait for one another at `meet`: those that `together` has counted, all of them.


def _together():
    return 0


def _meet(lanes):
    pass


# A mask's word is a number of the state like any other here; where those are narrower, it is two.


def _get_word(s_at, at):
    return np.uint64(as_state(s_at)[at])


def _put_word(s_at, at, word):
    as_state(s_at)[at] = np.int64(word)


# Checks need real arrays with real sizes: there, units are ordinary functions and an array is its own handle.
CHECKED = BOUNDSCHECK or bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]
unit: Any = compiled if CHECKED else _unit
mul32: Any = compiled(_mul32)
add32: Any = compiled(_add32)
address: Any = compiled(_same) if CHECKED else intrinsic(_address_typed)
as_state: Any = compiled(_same if CHECKED else _as_state)
as_bytes: Any = compiled(_same if CHECKED else _as_bytes)
as_ram, as_log = as_bytes, as_state
get_word: Any = inlined(_get_word)
put_word: Any = inlined(_put_word)
MEETS = False  # a core has one machine at a time
together: Any = compiled(_together)
meet: Any = compiled(_meet)
wide = compiled  # needs numbers of 64 bits, whatever a target does with the others
as_words: Any = compiled(_same if CHECKED else _as_words)
as_int32: Any = compiled(_same if CHECKED else _as_int32)
as_screen: Any = compiled(_same if CHECKED else _as_screen)

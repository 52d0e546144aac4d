"""What turns a plain Python function into machine code: the only place that names a compiler.

Every function of the console is written once, with scalars and arrays only, and decorated with ``device``.
Here that means Numba for CPU cores; another target needs another decorator, not other functions.

``DQNITRO_BOUNDSCHECK=1`` compiles with checks of every array index (slow; the fuzz test runs like that).
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

BOUNDSCHECK = os.environ.get("DQNITRO_BOUNDSCHECK", "") == "1"

# error_model="numpy": a division does not test for zero, so no exception path is compiled in.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "boundscheck": BOUNDSCHECK, "error_model": "numpy"}


@functools.cache
def _stamp(path: Path) -> str:
    """Hash of a module and of all that it imports from this package.

    Numba's cache looks at a function's own file only, so a change of a function that it calls, or of a table
    that was frozen into it, would go unnoticed.
    """
    seen: dict[Path, bytes] = {}
    todo = [path]
    while todo:
        module = todo.pop()
        if module in seen or not module.exists():
            continue
        seen[module] = module.read_bytes()
        names = re.findall(rb"^from \.(\w+) import|^from \. import (\w+)", seen[module], re.MULTILINE)
        todo += [module.parent / f"{(a or b).decode()}.py" for a, b in names]
    digest = hashlib.sha256(b"checked" if BOUNDSCHECK else b"fast")
    for module in sorted(seen):
        digest.update(seen[module])
    return digest.hexdigest()


def device(function: F) -> F:
    """Compile for the CPU, callable from Python and from other device functions."""
    dispatcher = numba.njit(**_OPTIONS)(function)
    cache_file = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if cache_file is not None and hasattr(cache_file, "_source_stamp"):
        cache_file._source_stamp = _stamp(Path(function.__code__.co_filename))
    return dispatcher  # type: ignore[return-value]

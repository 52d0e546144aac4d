"""The files of this package that a module depends on, found by following its imports: a change in one makes its cache
stale.

Only imports that run when a module is loaded count. An import inside a function cannot be part of compiled code.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path


def _files(folder: Path, names: Iterable[str]) -> Iterator[Path]:
    """The two files that a dotted name below a folder can mean: a module or a package."""
    at = folder.joinpath(*names)
    yield at.with_suffix(".py")
    yield at / "__init__.py"


@functools.cache  # most modules are reached from many others
def imported(path: Path, source: bytes) -> frozenset[Path]:
    """The files that a module's relative imports may mean; some of them may not exist."""
    found: set[Path] = set()
    for node in ast.parse(source).body:
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        folder = path.parents[node.level - 1]
        names = node.module.split(".") if node.module else []
        if names:
            found.update(_files(folder, names))
        for alias in node.names:  # a name may be a module of the package that it is imported from
            if alias.name != "*":
                found.update(_files(folder, [*names, alias.name]))
    return frozenset(found)


def closure(roots: Iterable[Path], read: Callable[[Path], bytes | None]) -> dict[Path, bytes]:
    """The given modules and all that they import, directly or not. `read` returns None for files to leave out."""
    seen: dict[Path, bytes] = {}
    todo = list(roots)
    while todo:
        path = todo.pop()
        if path in seen or (source := read(path)) is None:
            continue
        seen[path] = source
        todo += imported(path, source)
    return seen

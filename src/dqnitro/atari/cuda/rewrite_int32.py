"""Make functions compute with 32-bit integers, for GPUs: their registers have 32 bits, and a 64-bit number costs
double.

Numba computes with int64 whatever the operands are. `as_narrow` rewrites a function before it is compiled: every result
and every constant that is kept goes through `narrow32`, and the compiler then sees that the upper half is never used.
The values are the same as long as they fit, which `tests/atari/cuda/test_rewrite_int32.py` checks. Comparisons, calls
and arrays stay as they are.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

NAME = "narrow32"  # what the rewritten function calls
CASTS = ("uint8", "uint32", "uint64", "uintp")  # these choose a type on purpose
MASKS = "_words"  # how the name of a function ends that returns masks of pixels, which stay wide


def _narrow(value: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(NAME, ast.Load()), [value], [])


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _kept(value: ast.expr) -> ast.expr:
    """A value that is assigned or returned: constants, choices and calls become narrow, also inside a tuple."""
    if isinstance(value, ast.Tuple):
        return ast.Tuple([_kept(v) for v in value.elts], value.ctx)
    if isinstance(value, ast.IfExp):
        return _narrow(value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "int64":
        return _narrow(value)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and not value.func.id.startswith("as_"):
        stays = value.func.id in (NAME, *CASTS) or value.func.id.endswith(MASKS)
        return value if stays else _narrow(value)
    return _narrow(value) if _is_number(value) else value


class _Narrower(ast.NodeTransformer):
    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        return _narrow(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        return node if isinstance(node.op, ast.Not) else _narrow(node)

    def visit_Assign(self, node: ast.Assign) -> ast.stmt:
        self.generic_visit(node)
        tuples = isinstance(node.targets[0], ast.Tuple) and not isinstance(node.value, ast.Tuple)
        if not tuples:
            node.value = _kept(self._constants(node.value))
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        self.generic_visit(node)
        if not isinstance(node.target, ast.Name):
            return node  # into an array, which has its own type
        value = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
        return ast.Assign([node.target], _narrow(value))

    def visit_Return(self, node: ast.Return) -> ast.stmt:
        self.generic_visit(node)
        if node.value is not None and not isinstance(node.value, ast.Call):
            node.value = _kept(self._constants(node.value))
        return node

    def _constants(self, value: ast.expr) -> ast.expr:
        """The name of a module's constant counts as a constant."""
        if isinstance(value, ast.Tuple):
            return ast.Tuple([self._constants(v) for v in value.elts], value.ctx)
        if isinstance(value, ast.Name) and type(self.names.get(value.id)) is int:
            return _narrow(value)
        return value


def as_narrow(function: Callable[..., Any], narrow32: Any) -> Callable[..., Any]:
    """The same function in 32-bit integers.

    `narrow32` converts to one; arguments that are addresses (`..._at`) stay.
    """
    source = getattr(function, "__source__", None) or textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    body = [_Narrower(function.__globals__).visit(statement) for statement in definition.body]
    numbers = [a.arg for a in definition.args.args if not a.arg.endswith("_at")]
    first = [ast.Assign([ast.Name(n, ast.Store())], _narrow(ast.Name(n, ast.Load()))) for n in numbers]
    definition.body = [*first, *body]
    scope: dict[str, Any] = {}
    names = function.__globals__  # the module's own, so that functions defined later are found, too
    names[NAME] = narrow32
    source = ast.unparse(ast.fix_missing_locations(tree))
    exec(compile(source, inspect.getfile(function), "exec"), names, scope)  # this package's own source, rewritten
    rewritten = scope[function.__name__]
    rewritten.__module__, rewritten.__source__ = function.__module__, source
    return rewritten

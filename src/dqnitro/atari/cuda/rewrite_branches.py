"""Turn chains of comparisons (``if h == A: … elif h == B: …``) into trees, for compilers that do not.

LLVM for CPUs turns such a chain into a jump table. NVIDIA's compiler tests one case after the other, up to 140 of them
for one instruction of the 6507. `as_trees` rewrites a function's source before it is compiled: the same cases and
bodies, found by binary search. Frequent cases come first in a chain, so the tree is weighted: early cases are nearer to
its root.

Constants may be names: they are looked up in the function's module.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any

FEWEST = 6  # shorter chains stay as they are


def _subject_and_values(test: ast.expr, names: dict[str, Any]) -> tuple[str, list[int]] | None:
    """`h == A`, `h == A or h == B`, `h == A and …`: the variable and the constants; None for anything else."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return _subject_and_values(test.values[0], names)
    if isinstance(test, ast.BoolOp):
        parts = [p for v in test.values if (p := _subject_and_values(v, names))]
        if len(parts) == len(test.values) and len({subject for subject, _ in parts}) == 1:
            return parts[0][0], [v for _, values in parts for v in values]
        return None
    if not (isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and isinstance(test.ops[0], ast.Eq)):
        return None
    if len(test.ops) != 1:
        return None
    right = test.comparators[0]
    value = right.value if isinstance(right, ast.Constant) else None
    if isinstance(right, ast.Name):
        value = names.get(right.id)
    return (test.left.id, [int(value)]) if isinstance(value, int) else None


def _tree(subject: str, cases: list[tuple[int, float, ast.stmt]]) -> list[ast.stmt]:
    """Statements that find the right one of the cases, which are sorted by value."""
    if len(cases) == 1:
        return [cases[0][2]]
    total, left, at = sum(w for _, w, _ in cases), 0.0, 1
    for k in range(1, len(cases)):
        left += cases[k - 1][1]
        at = k
        if left + cases[k][1] / 2 >= total / 2:
            break
    test = ast.Compare(ast.Name(subject, ast.Load()), [ast.Lt()], [ast.Constant(cases[at][0])])
    return [ast.If(test, _tree(subject, cases[:at]), _tree(subject, cases[at:]))]


class _Rewriter(ast.NodeTransformer):
    def __init__(self, names: dict[str, Any]) -> None:
        self.names, self.trees = names, 0

    def _visited(self, body: list[ast.stmt]) -> list[ast.stmt]:
        seen = [self.visit(statement) for statement in body]
        return [s for one in seen for s in (one if isinstance(one, list) else [one])]  # a tree is a list

    def visit_If(self, node: ast.If) -> Any:
        chain, last = [node], node.orelse
        while len(last) == 1 and isinstance(last[0], ast.If):
            chain.append(last[0])
            last = last[0].orelse
        found = [f for link in chain if (f := _subject_and_values(link.test, self.names))]
        subjects = {subject for subject, _ in found}
        if last or len(chain) < FEWEST or len(found) < len(chain) or len(subjects) != 1:
            return self.generic_visit(node)
        cases = []
        for rank, (link, (_, values)) in enumerate(zip(chain, found, strict=True)):
            body = self._visited(link.body)
            for value in values:
                cases.append((value, 1.0 / (rank + 3), ast.If(link.test, body, [])))
        if len({value for value, _, _ in cases}) != len(cases):
            return self.generic_visit(node)  # a value that two links name: the order matters
        self.trees += 1
        return _tree(subjects.pop(), sorted(cases, key=lambda c: c[0]))


def as_trees(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function with long chains as trees; the function itself if it has none."""
    source = textwrap.dedent(inspect.getsource(function))
    tree = ast.parse(source)
    definition = tree.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list = []
    rewriter = _Rewriter(function.__globals__)
    rewriter.visit(definition)
    if not rewriter.trees:
        return function
    scope: dict[str, Any] = {}
    code = compile(ast.fix_missing_locations(tree), inspect.getfile(function), "exec")
    exec(code, function.__globals__, scope)  # this package's own source, rewritten
    rewritten = scope[function.__name__]
    rewritten.__module__, rewritten.__source__ = function.__module__, ast.unparse(tree)
    return rewritten

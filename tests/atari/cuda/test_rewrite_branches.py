"""Chains of comparisons as trees: the same function for every value."""

from __future__ import annotations

import ast
import inspect

import pytest

from dqnitro.atari.chips import cpu_fast
from dqnitro.atari.cuda import rewrite_branches
from dqnitro.atari.cuda.rewrite_branches import FEWEST, as_trees

ONE, FOUR, NINE, FAR = 1, 4, 9, 200


def chain(h, x):
    if h == ONE:
        x += 1
    elif h == 7:
        x += 2
    elif h == FOUR:
        x *= 3
    elif h == 3:
        x -= 4
    elif h == NINE:
        return 5
    elif h == 12:
        x ^= 6
    elif h == FAR:
        x = 7
    return x


def with_or_and_and(h, x):
    y = 0
    if h == 2 or h == 3 or h == 20:
        y = h + 1
    elif h == 5 and x > 3:
        y = 2
    elif h == 6:
        y = 3
        if x == 4:  # a chain inside a link, too short
            y = 40
    elif h == ONE or h == NINE:  # noqa: SIM109
        y = 4
    elif h == 11:
        y = 5
    elif h == 15 and (x == 1 or x == 2):
        y = 6
    return y


def chains_in_chains(h, x):
    if h == 0:
        if x == 0:
            h = 10
        elif x == 1:
            h = 11
        elif x == 2:
            h = 12
        elif x == 3:
            h = 13
        elif x == 4:
            h = 14
        elif x == 5:
            h = 15
    elif h == 1:
        h = 21
    elif h == 2:
        h = 22
    elif h == 3:
        h = 23
    elif h == 4:
        h = 24
    elif h == 5:
        h = 25
    return h * 100 + x


@pytest.mark.parametrize("function", [chain, with_or_and_and, chains_in_chains])
def test_a_tree_says_what_its_chain_says_for_all_values(function):
    tree = as_trees(function)
    assert tree is not function and tree.__name__ == function.__name__
    seen = set()
    for h in range(-5, 210):
        for x in range(-1, 9):
            assert tree(h, x) == function(h, x), (h, x)
            seen.add(tree(h, x))
    assert len(seen) >= 8, "the values reach the links"


def too_short(h, x):
    if h == 1:
        x = 1
    elif h == 2:
        x = 2
    elif h == 3:
        x = 3
    elif h == 4:
        x = 4
    elif h == 5:
        x = 5
    return x


def two_subjects(h, x):
    if h == 1:
        return 1
    elif h == 2:
        return 2
    elif x == 3:
        return 3
    elif h == 4:
        return 4
    elif h == 5:
        return 5
    elif h == 6:
        return 6
    return 0


def one_value_twice(h, x):
    if h == 1 and x > 0:
        return 1
    elif h == 1:
        return 2
    elif h == 3:
        return 3
    elif h == 4:
        return 4
    elif h == 5:
        return 5
    elif h == 6:
        return 6
    return 0


def with_else(h, x):
    if h == 1:
        x = 1
    elif h == 2:
        x = 2
    elif h == 3:
        x = 3
    elif h == 4:
        x = 4
    elif h == 5:
        x = 5
    elif h == 6:
        x = 6
    else:
        x = -1
    return x


def not_only_equal(h, x):
    if h == 1:
        return 1
    elif h == 2:
        return 2
    elif h < 3:
        return 3
    elif h == 4:
        return 4
    elif h == 5:
        return 5
    elif h == 6:
        return 6
    return 0


@pytest.mark.parametrize("function", [too_short, two_subjects, one_value_twice, with_else, not_only_equal])
def test_what_cannot_be_a_tree_stays_as_it_is(function):
    assert as_trees(function) is function
    assert FEWEST == 6


def test_early_links_lie_higher_and_no_link_is_deep():
    """A chain of 64 tests its last case after 63 others; the tree after a few,
    and its first case sooner than the last.
    """
    cases = [(value, 1.0 / (value + 3), ast.Pass()) for value in range(64)]
    (root,) = rewrite_branches._tree("h", list(cases))

    def depths(node: ast.stmt, depth: int = 0) -> list[int]:
        if not isinstance(node, ast.If):
            return [depth]
        return depths(node.body[0], depth + 1) + depths(node.orelse[0], depth + 1)

    found = depths(root)
    assert len(found) == 64 and max(found) <= 10 and found[0] < found[-1]


def test_the_interpreters_own_chains_become_trees():
    """If the loop is rewritten so that no chain is recognised, the GPU becomes several times slower without a
    word.
    """
    source = ast.parse(inspect.getsource(cpu_fast))
    names = vars(cpu_fast)
    rewriter = rewrite_branches._Rewriter(names)
    rewriter.visit(source)
    assert rewriter.trees >= 1

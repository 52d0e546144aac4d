"""Imports point one way: a module imports only from layers below its own, whether at its top or inside a function."""

import ast
import graphlib
import pathlib
import re

import pytest

SRC = pathlib.Path(__file__).resolve().parents[1] / "src"

# Packages and root modules, the lowest layer first. Units of one layer do not import each other.
LAYERS = [
    "",
    "atari errors process_setup",
    "own",
    "common config heads",
    "storage",
    "clock cluster distributed dqn envs protocol published",
    "agents reference replay requirements store video",
    "learn report",
    "agent ladder scoring",
    "events recipes run",
    "callback",
    "evaluation",
    "planning session",
    "seeds",
    "lab play",
    "trained",
    "callbacks export",
    "cli",
    "python",
    "__init__ __main__",
    "",
][1:-1]
LAYER = {unit: i for i, line in enumerate(LAYERS) for unit in line.split()}
# Units that know less than their layer would allow.
ONLY = {"atari": set(), "report": {"common", "config", "errors", "published", "store"}}


def modules() -> dict[str, pathlib.Path]:
    """Dotted names below `dqnitro`; a package's own file is `package.__init__`."""
    return {".".join(p.relative_to(SRC).with_suffix("").parts[1:]): p for p in (SRC / "dqnitro").rglob("*.py")}


def imports(name: str, path: pathlib.Path, known: set[str], types: bool = True) -> set[str]:
    """The modules of ours that a module imports anywhere in it; `types`:
    also those that only a type checker imports.
    """
    tree = ast.parse(path.read_text())
    for node in [] if types else [n for n in ast.walk(tree) if isinstance(n, ast.If)]:
        if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {_module(alias.name, known) for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = ["dqnitro", *name.split(".")[: -node.level]] if node.level else []
            base = ".".join([*package, *([node.module] if node.module else [])])
            found |= {_module(f"{base}.{alias.name}", known) or _module(base, known) for alias in node.names}
    # The root's own file is loaded with every module.
    return found - {None, name, "__init__"}


def _module(dotted: str, known: set[str]) -> str | None:
    """The module of ours with this full name, if there is one."""
    root, _, ours = dotted.partition(".")
    return None if root != "dqnitro" else next((m for m in (ours, f"{ours}.__init__".strip(".")) if m in known), None)


def graph(types: bool = True) -> dict[str, set[str]]:
    found = modules()
    return {name: imports(name, path, set(found), types) for name, path in found.items()}


def unit(name: str) -> str:
    return name.split(".")[0]


def upward(edges: dict[str, set[str]]) -> list[str]:
    """Every import that does not lead downwards."""
    pairs = [(a, b) for a, targets in edges.items() for b in targets if unit(a) != unit(b)]
    wrong = [(a, b) for a, b in pairs if LAYER[unit(b)] >= LAYER[unit(a)] or unit(b) not in ONLY.get(unit(a), LAYER)]
    return sorted(f"{a} imports {b}" for a, b in wrong)


def test_every_package_and_root_module_has_a_layer():
    assert {unit(name) for name in modules()} == set(LAYER)


def test_imports_lead_to_lower_layers():
    assert upward(graph()) == []


def test_no_module_imports_itself_through_others():
    graphlib.TopologicalSorter(graph(types=False)).prepare()  # CycleError names the modules


@pytest.mark.parametrize("target", ["cli.train", "lab.race", "session", "envs.base"])
def test_an_upward_import_is_seen(target):
    assert upward({"report.html": {"config", target}}) == [f"report.html imports {target}"]


def test_imports_inside_functions_and_relative_ones_are_seen(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(
        "def f():\n    from dqnitro.lab import race\n    from . import cpu\n    from ..jit.target import compiled\n"
    )
    known = {"lab.__init__", "lab.race", "atari.chips.__init__", "atari.chips.cpu", "atari.jit.target"}
    assert imports("atari.chips.x", path, known) == {"lab.race", "atari.chips.cpu", "atari.jit.target"}


def test_no_folder_of_the_package_is_crowded():
    folders = [path.parent for path in modules().values()]
    assert max(folders.count(folder) for folder in set(folders)) <= 24


def test_only_the_learner_asks_for_a_transform_by_its_name():
    """What the rest has to know of a transform is a field of `UpdateParts` or `Transform`."""
    asks = re.compile(r"""["'] (not )?in [\w.]*wrappers""")
    asking = {name for name, path in modules().items() if asks.search(path.read_text(encoding="utf-8"))}
    assert {name for name in asking if not name.startswith("learn.")} == set()

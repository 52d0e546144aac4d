"""The examples of docs/console.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "console.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example_runs(number: int) -> None:
    namespace: dict[str, object] = {}
    exec(EXAMPLES[number], namespace)
    if "optimizer" in namespace:
        loss = namespace["loss"]
        assert loss.isfinite()  # type: ignore[attr-defined]


def test_there_are_examples_of_all_kinds() -> None:
    assert len(EXAMPLES) == 5
    text = "".join(EXAMPLES)
    assert all(word in text for word in ("make_vec", "get_state", "optimizer.step", "split"))


def test_every_module_is_on_the_page() -> None:
    folder = PAGE.parents[1] / "src" / "dqnitro" / "atari"
    text = PAGE.read_text()
    modules = [p.relative_to(folder).with_suffix("").as_posix() for p in folder.rglob("*.py") if p.stem != "__init__"]
    helpers = {
        "chips/layout", "registration", "observation/resize_plan", "observation/resize_opencv", "games/table_language",
        "compare_with_ale", "console", "games/roms", "jit/dependencies", "compile_units",
    }  # fmt: skip
    missing = [name for name in modules if name not in helpers and f"`{name}`" not in text]
    assert not missing, f"say what {missing} do in docs/console.md"

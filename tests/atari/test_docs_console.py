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
    helpers = {
        "__init__",
        "layout",
        "registration",
        "resize_plan",
        "resize_other",
        "game_words",
        "check",
        "console",
        "roms",
    }
    missing = [p.stem for p in folder.glob("*.py") if p.stem not in helpers and f"`{p.stem}`" not in PAGE.read_text()]
    assert not missing, f"say what {missing} do in docs/console.md"

"""The examples of docs/environments.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dqnitro.config import FIELDS

PAGE = (Path(__file__).parents[2] / "docs" / "environments.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int) -> None:
    names: dict = {"__name__": "example"}
    exec(compile(EXAMPLES[number], f"environments.md example {number}", "exec"), names)
    shape = (2, 1) if number == 0 else (1, 6, 84, 84)
    assert names["obs"].shape == shape
    if number == 0:
        np.testing.assert_allclose(names["step"].obs_t, names["obs"] + 0.1, atol=1e-6)


def test_there_is_a_vector_and_an_image_example() -> None:
    assert len(EXAMPLES) == 2


def test_the_table_of_settings_tells_the_truth() -> None:
    section = PAGE.split("## The settings")[1].split("## Environment backends")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w.,]+) \|", section, re.MULTILINE)
    assert len(rows) == 13
    for name, default in rows:
        value = FIELDS[name].default
        if isinstance(value, str):
            assert value == default
            continue
        shown = {"on": True, "off": False}.get(default)
        assert value == (float(default.replace(",", "")) if shown is None else shown), name

"""The live block in a notebook: a cell's output that is rewritten in place."""

from __future__ import annotations

import html
import sys
from typing import Any

from dqnitro.cli.terminal.live import lines
from dqnitro.config import Config
from dqnitro.events import NullSink, Snapshot


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook (not IPython in a terminal)."""
    module: Any = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookSink(NullSink):
    """Shows every snapshot in the same place."""

    def __init__(self, config: Config, title: str) -> None:
        self._config, self._title = config, title
        self._shown: Any = None

    def snapshot(self, s: Snapshot) -> None:
        from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

        block = HTML(f"<pre>{html.escape(chr(10).join(lines(s, self._config, self._title)))}</pre>")
        if self._shown is None:
            self._shown = display(block, display_id=True)
        else:
            self._shown.update(block)

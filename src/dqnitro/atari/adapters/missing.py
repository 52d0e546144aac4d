"""What to say when the library of an adapter is not installed."""

from __future__ import annotations


class MissingLibrary(ImportError):
    """The library of an adapter is not installed; the message is one line with a hint."""

    def __init__(self, adapter: str, library: str, install: str) -> None:
        super().__init__(f"{adapter} needs {library}, which is not installed. hint: pip install {install}")

"""The long description of the package: README.md for a reader who has no source tree beside it.

All other metadata is in pyproject.toml. Package indexes show this text alone, where a relative link or picture leads
nowhere: pictures are left out, and links into the source tree become the name of the file.
"""

import pathlib
import re

from setuptools import setup

ELSEWHERE = r"(?:https?:|mailto:)"


def long_description(readme: str) -> str:
    text = re.sub(rf"^!\[[^\]]*\]\((?!{ELSEWHERE})[^)]*\)\n+", "", readme, flags=re.M)
    text = re.sub(rf"\[`?([^\]`]+)`?\]\((?!{ELSEWHERE}|#)([^)]*)\)", _named, text)
    return re.sub(r"\[([^\]]+)\]\(#[^)]*\)", r"\1", text)


def _named(link: re.Match[str]) -> str:
    words, path = " ".join(link[1].split()), link[2].partition("#")[0]
    return f"`{path}`" if words in (path, pathlib.PurePosixPath(path).name) else f"{words} (`{path}`)"


if __name__ == "__main__":  # setuptools runs this file under that name
    readme = pathlib.Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    setup(long_description=long_description(readme), long_description_content_type="text/markdown")

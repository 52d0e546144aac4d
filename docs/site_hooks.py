"""What the site has beside docs/: pages of the repository's root, the files of examples/, and every result as the page
that `dqnitro report` makes of it. MkDocs calls the functions `on_...`.
"""

from __future__ import annotations

import contextlib
import io
import json
import pathlib
import re
import shutil
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGES = {
    "index.md": "README.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "log.md": "LOG.md",
}
GENERATED = (*PAGES, "live.md")
EVERYTHING = "live/everything.html"
_folder = pathlib.Path()


def on_startup(command: str, dirty: bool) -> None:
    global _folder
    _folder = pathlib.Path(tempfile.mkdtemp(prefix="dqnitro-site-"))


def on_shutdown() -> None:
    shutil.rmtree(_folder, ignore_errors=True)


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name, source in PAGES.items():
        text = from_root((ROOT / source).read_text(encoding="utf-8"))
        files.append(File.generated(config, name, content=text))
    for path in sorted((ROOT / "examples").iterdir()):
        if path.suffix in (".py", ".ipynb"):
            files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    results = sorted((ROOT / "results").glob("*.json"))
    write_live(results, _folder)
    for path in sorted((_folder / "live").glob("*.html")):
        files.append(File.generated(config, f"live/{path.name}", abs_src_path=str(path)))
    files.append(File.generated(config, "live.md", content=live_page(results)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    return from_docs(markdown)


def from_root(text: str) -> str:
    """Links of a page in the repository's root, as they must be among the pages of docs/."""
    text = re.sub(r"\]\(docs/", "](", text)
    text = re.sub(r"\[([^\]]+)\]\(src/[^)]+\)", r"`\1`", text)  # the source is not part of the site
    for name, source in PAGES.items():
        text = text.replace(f"]({source})", f"]({name})")
    return text


def from_docs(text: str) -> str:
    """Links that leave docs/: a result becomes its page, a page of the root its copy."""
    text = re.sub(r"\]\(\.\./results/([\w-]+)\.json\)", r"](live/\1.html)", text)
    text = text.replace("](../examples/", "](examples/")
    for name, source in PAGES.items():
        text = text.replace(f"](../{source})", f"]({name})")
    return text


def write_live(results: list[pathlib.Path], folder: pathlib.Path) -> None:
    """The pages of the results, each alone and all of them together, by the command that users have."""
    (folder / "live").mkdir(parents=True, exist_ok=True)
    for path in results:
        _report([str(path)], folder / "live" / f"{path.stem}.html")
    _report([str(p) for p in results], folder / EVERYTHING)


def _report(sources: list[str], out: pathlib.Path) -> None:
    from dqnitro.cli import main

    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["report", *sources, "--out", str(out)])
    if code:
        raise SystemExit(f"dqnitro report {' '.join(sources)}: exit code {code}")


def live_page(results: list[pathlib.Path]) -> str:
    rows = [f"| [{path.stem}](live/{path.stem}.html) | {_what(path)} |" for path in results]
    return "\n".join(
        [
            "# Live pages",
            "",
            "What `dqnitro report` makes of every file in `results/`: hover, sort, switch the axis, open a rung.",
            f"[All of them on one page]({EVERYTHING}).",
            "",
            "| result | made by |",
            "| --- | --- |",
            *rows,
            "",
        ]
    )


def _what(path: pathlib.Path) -> str:
    """The command that made a result, or its note."""
    data = json.loads(path.read_text(encoding="utf-8"))
    told = data.get("command") or data.get("note") or "" if isinstance(data, dict) else ""
    first = " ".join(str(told).split()).replace("|", "\\|")
    return f"`{first}`" if first.startswith("dqnitro") else first

"""The site without building it (`make docs` builds it, any warning is an error): its menu, its links, its reference."""

import importlib
import importlib.util
import pathlib
import re

import markdown
import pytest
import yaml

import dqnitro
import dqnitro.atari
import dqnitro.callbacks

ROOT = pathlib.Path(__file__).resolve().parents[2]
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def hooks():
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs" / "site_hooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


HOOKS = hooks()
RESULTS = sorted((ROOT / "results").glob("*.json"))


def named(entry) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    return [page for part in (entry.values() if isinstance(entry, dict) else entry) for page in named(part)]


def test_the_menu_names_every_page_once_and_nothing_else():
    pages = [p.name for p in (ROOT / "docs").glob("*.md")]
    assert sorted(named(SITE["nav"])) == sorted([*pages, *HOOKS.GENERATED])
    assert all((ROOT / source).exists() for source in HOOKS.PAGES.values())


def test_any_warning_is_an_error():
    assert SITE["strict"] is True and set(SITE["validation"].values()) == {"warn"}
    assert "mkdocs build --strict" in (ROOT / "Makefile").read_text()


def pages() -> dict[str, str]:
    """Every page of the site as the hooks leave it."""
    found = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "docs").glob("*.md")}
    found |= {n: HOOKS.from_root((ROOT / s).read_text(encoding="utf-8")) for n, s in HOOKS.PAGES.items()}
    found["live.md"] = HOOKS.live_page(RESULTS)
    return {name: HOOKS.from_docs(text) for name, text in found.items()}


@pytest.mark.parametrize("name", sorted(pages()))
def test_links_stay_on_the_site(name):
    prose = re.sub(r"^```.*?^```$", "", pages()[name], flags=re.S | re.M)
    there = {*pages(), *(p.name for p in (ROOT / "docs").glob("*.png")), HOOKS.EVERYTHING}
    there |= {f"live/{p.stem}.html" for p in RESULTS} | {f"examples/{p.name}" for p in (ROOT / "examples").iterdir()}
    targets = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", prose)
    assert not set(targets) - there


def anchors(page: str) -> set[str]:
    """The names that the site gives to the headings of a page; GitHub's differ where dashes or spaces meet."""
    reader = markdown.Markdown(extensions=["toc", "attr_list", "fenced_code"])
    return set(re.findall(r' id="([^"]+)"', reader.convert(page)))


def test_links_into_a_page_lead_to_a_heading_of_it():
    known = {name: anchors(text) for name, text in pages().items()}
    found = [
        (name, target or name, anchor)
        for name, text in pages().items()
        for target, anchor in re.findall(
            r"\]\(([\w-]+\.md)?#([^)\s]+)\)", re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
        )
    ]
    assert len(found) > 30
    assert [link for link in found if link[2] not in known[link[1]] and link[1] != "api.md"] == []


def test_a_result_becomes_its_page(tmp_path):
    """By the command that users have; all twenty of them are made when the site is built."""
    HOOKS.write_live(RESULTS[:2], tmp_path)
    made = sorted(p.name for p in (tmp_path / "live").iterdir())
    assert made == sorted([*(f"{p.stem}.html" for p in RESULTS[:2]), "everything.html"])
    assert all("<!doctype html>" in (tmp_path / "live" / n).read_text(encoding="utf-8").lower() for n in made)


def test_the_reference_has_every_public_name_and_each_leads_somewhere():
    paths = re.findall(r"^::: (\S+)", (ROOT / "docs" / "api.md").read_text(), re.M)
    for path in paths:
        try:
            importlib.import_module(path)
        except ImportError:
            home, _, name = path.rpartition(".")
            assert getattr(importlib.import_module(home), name).__doc__, path
    last = {path.rpartition(".")[2] for path in paths}
    public = {*dqnitro.__all__, *dqnitro.atari.__all__, *dqnitro.callbacks.__all__} - {"__version__"}
    assert public <= last

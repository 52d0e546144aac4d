"""The documents are true: the README's example runs, the table of settings is the code's, the file map names what is there."""

import importlib.util
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_the_example_in_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"steps after \d+ steps", out) and "mean score" in out


def test_the_table_of_settings_is_the_configs():
    spec = importlib.util.spec_from_file_location("make_settings", ROOT / "docs" / "make_settings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = module.PAGE.read_text()
    assert module.render(page) == page, "run: python docs/make_settings.py"


def test_the_file_map_of_the_readme_names_every_module_and_nothing_else():
    block = (ROOT / "README.md").read_text().split("## The map")[1].split("```")[1]
    named = set(re.findall(r"^  (\S+?)/? ", block, re.M))
    there = {p.name for p in (ROOT / "src" / "dqnitro").iterdir() if not p.name.startswith(("_", "py.typed"))}
    assert named == there


def test_links_between_the_documents_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"

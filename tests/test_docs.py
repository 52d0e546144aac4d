"""The documents are true: the README's example runs, the table of settings is the code's, the file map names what is
there.
"""

import ast
import importlib.util
import json
import pathlib
import re

from report import fake_results

ROOT = pathlib.Path(__file__).resolve().parents[1]


def test_the_example_in_the_readme_runs(capsys):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    exec(compile(code, "README.md", "exec"), {})
    out = capsys.readouterr().out
    assert re.search(r"steps after \d+ steps", out) and "mean score" in out


def test_the_examples_for_python_run(tmp_path, monkeypatch):
    """One after the other, in a folder of their own: the second loads what the first has stored."""
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S):
        exec(compile(code, "python.md", "exec"), {"__name__": "docs_python"})


def generator(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_settings_is_the_configs():
    module = generator("make_settings")
    page = module.PAGE.read_text()
    assert module.render(page) == page, "run: python docs/make_settings.py"


def test_the_record_for_estimates_is_made_of_the_results():
    module = generator("make_solved")
    assert module.render() == module.RECORDS.read_text(), "run: python docs/make_solved.py"


def test_the_times_beside_other_trainers_are_those_of_the_results():
    module = generator("make_peers")
    for path, made in ((module.PAGE, module.render), (module.README, module.render_readme)):
        page = path.read_text(encoding="utf-8")
        assert made(page) == page, "run: python docs/make_peers.py"


def test_a_trainer_that_did_not_solve_its_seeds_took_longer_than_its_limit(tmp_path, monkeypatch):
    module = generator("make_peers")
    runs = [("dqnitro", 20, True), ("dqnitro", 30, True), ("stable-baselines3", 300.4, False)]
    rows = [{"contender": c, "cpu_s": s, "solved": w, "steps": 1000 * s, "mean_score": 476.0} for c, s, w in runs]
    facts = {"bar": 475.0, "max_steps": 500_000, "limit_cpu_s": 300.0, "machine": {"cpu": "AMD EPYC", "cores": 2}}
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    page = f"a\n{module.BEGIN}\nold\n{module.END}\nb"
    empty = f"a\n{module.BEGIN}\n\n{module.END}\nb"
    assert module.render(page) == empty and "solved" not in module.render_readme(f"{module.BEFORE} |\n")
    (tmp_path / module.FILES["CartPole-v1"]).write_text(json.dumps({"rows": rows, **facts}))
    readme = module.render_readme(f"| CartPole-v1 solved | old |\n{module.BEFORE} |\n")
    assert readme == (
        "| CartPole-v1 solved | 25 s of CPU time (20 to 30 s) | one core, 2 of 2 seeds, median; "
        f"Stable-Baselines3: over 300 s (1 seed) | `dqnitro train CartPole-v1` |\n{module.BEFORE} |\n"
    )
    text = module.render(page)
    assert "| Stable-Baselines3 | 0 of 1 | over 300 s | 300,400 | 476 |" in text and "registers (475)" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120


def test_the_table_of_games_is_what_the_comparisons_found():
    from dqnitro.atari.games.game_table import GAMES

    module = generator("make_exactness")
    page = module.PAGE.read_text()
    assert module.render(page) == page, "run: python docs/make_exactness.py"
    rows = re.findall(r"^\| (\w+) \| ([\d,]+) \| \d+ \| [\d,]+ \| 0 \|$", module.table(), re.M)
    assert {game for game, _ in rows} == set(GAMES), "every game compared, none with a difference"
    assert all(int(frames.replace(",", "")) >= 13_000 for _, frames in rows)


def test_the_table_of_games_shows_a_difference(tmp_path, monkeypatch):
    module = generator("make_exactness")
    for name in module.FILES:
        run = json.loads((module.RESULTS / name).read_text())
        run["games"][3] |= {"equal": False, "difference": "RAM in frame 7", "frames": 7}
        (tmp_path / name).write_text(json.dumps(run))
    monkeypatch.setattr(module, "RESULTS", tmp_path)
    assert "2 with a difference" in module.table()
    assert "| 14 |" in module.table() and "RAM in frame 7; RAM in frame 7" in module.table()


def test_the_ladder_document_is_what_the_stored_results_say():
    module = generator("make_ladder")
    assert module.PAGE.read_text(encoding="utf-8") == module.render(module.find()), "run: python docs/make_ladder.py"


def test_the_ladder_document_puts_measurements_beside_the_notes(tmp_path):
    module = generator("make_ladder")
    assert "No ladder is stored" in module.render([])
    data = fake_results.ladder()
    data["rows"][3]["notes_say"] = "60 | 80\nframes"
    (tmp_path / "ladder-made-up.json").write_text(json.dumps(data))
    text = module.render(module.find(tmp_path))
    assert "No ladder is stored" not in text and "**3.37× [3.27, 3.47]**" in text and "**20.4× [19.8, 21.0]**" in text
    (row,) = [line for line in text.splitlines() if line.startswith("| `console`")]
    cells = re.split(r"(?<!\\) \| ", row.strip("| "))
    assert len(cells) == module.COLUMNS.strip("| ").count("|") + 1
    assert cells[1:] == [
        "41 [40, 42]",
        "1.24× [1.21, 1.28]",
        "1.37× [1.33, 1.41]",
        "32",
        "6 h 46 min (projected)",
        "exact",
        "60 \\| 80 frames",
    ]
    for name, _, why in fake_results.SKIPPED:
        assert f"- `{name}`: {why}" in text


def test_prose_wraps_at_120_columns():
    """Tables, links and code may be longer."""
    pages = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LOG.md")]
    for page in [*pages, *(ROOT / "docs").glob("*.md")]:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
        long = [line for line in prose.splitlines() if len(line) > 120 and not line.startswith(("|", "["))]
        assert not long, f"{page.name}: {long[0]}"


def test_the_file_map_of_the_readme_names_every_module_and_nothing_else():
    block = (ROOT / "README.md").read_text().split("## The map")[1].split("```")[1]
    named = set(re.findall(r"^  (\S+?)/? ", block, re.M))
    there = {p.name for p in (ROOT / "src" / "dqnitro").iterdir() if not p.name.startswith(("_", "py.typed"))}
    assert named == there


def test_links_between_the_documents_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_source_files_that_the_documents_name_are_there():
    """In backticks, as a path from the root, from `src/dqnitro`, or from a folder below it or below `tests`."""
    there = {
        p.relative_to(ROOT).as_posix()
        for top in ("src", "tests", "docs", "examples")
        for p in (ROOT / top).rglob("*.py")
    }
    named = 0
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for name in re.findall(r"`([\w./]+\.py)`", page.read_text(encoding="utf-8")):
            if "NAME" not in name:
                named += 1
                assert name in there or any(path.endswith(f"/{name}") for path in there), f"{page.name}: {name}"
    assert named > 100


def test_the_tests_that_the_source_names_are_there():
    found = {
        (path, name)
        for top in ("src", "tests")
        for path in (ROOT / top).rglob("*.py")
        for name in re.findall(r"\btests/[\w/]+\.py\b", path.read_text(encoding="utf-8"))
    }
    assert len(found) > 20
    assert [(path.name, name) for path, name in sorted(found) if not (ROOT / name).is_file()] == []


def test_the_way_of_a_transition_names_what_its_files_define():
    """In backticks, in a row of the table: a function or class that a file of that row has."""
    table = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("## The path of one transition")[1]
    rows = [line for line in table.split("\n## ")[0].splitlines() if re.match(r"\| \d+ \|", line)]
    looked_for, folder = 0, ROOT / "src" / "dqnitro"
    for row in rows:
        defined: set[str] = set()
        names = re.findall(r"`([\w./]+)`", row)
        for name in [n for n in names if n.endswith(".py")]:
            path = next(p for above in (folder, *folder.parents) if (p := above / name).is_file())
            folder = path.parent
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.alias):
                    defined.add(node.name)
        for name in [n for n in names if "/" not in n and not n.endswith(".py")]:
            looked_for += 1
            assert set(name.split(".")) <= defined, f"{name} is in none of the files of: {row}"
    assert len(rows) == 17 and looked_for > 10

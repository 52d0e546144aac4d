"""What people install: the source distribution builds the wheel and carries its tests, the wheel carries what the code
reads, and the long description stands alone.
"""

import email.parser
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCAL = (".*", "__pycache__", "*.egg-info")
OUTPUT = ("build", "dist", "site", "runs", "ladders", "sweeps")  # folders that commands make in a checkout
SHIPPED = ("src", "tests", "docs", "examples", "results")


def build(kind: str, source: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """By the build backend itself, as pip and `python -m build --no-isolation` call it."""
    code = f"import setuptools.build_meta as b, sys; print(b.build_{kind}(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(out)], cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, pathlib.Path]:
    """The unpacked source distribution of a copy of this tree, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("package")
    local = shutil.ignore_patterns(*LOCAL)
    shutil.copytree(
        ROOT,
        folder / "tree",
        ignore=lambda at, names: {*local(at, names), *(OUTPUT if pathlib.Path(at) == ROOT else ())},
    )
    for name in (".github", ".dockerignore", ".gitignore"):
        if (there := ROOT / name).is_dir():
            shutil.copytree(there, folder / "tree" / name)
        else:
            shutil.copy(there, folder / "tree")
    archive = build("sdist", folder / "tree", folder)
    with tarfile.open(archive) as tar:
        tar.extractall(folder / "sdist", filter="data")
    source = folder / "sdist" / archive.name.removesuffix(".tar.gz")
    return source, build("wheel", source, folder)


def tree(folder: pathlib.Path) -> set[str]:
    """The files that belong to the repository, as relative paths."""
    found = set()
    for here, folders, names in os.walk(folder):
        folders[:] = [f for f in folders if not f.startswith((".", "__pycache__")) and not f.endswith(".egg-info")]
        found |= {(pathlib.Path(here) / n).relative_to(folder).as_posix() for n in names if not n.endswith(".pyc")}
    return {name for name in found if name.startswith(tuple(f"{part}/" for part in SHIPPED)) or "/" not in name}


def test_the_source_distribution_has_every_file_of_the_repository(files):
    source, _ = files
    there = tree(source)
    missing = {n for n in tree(ROOT) - there if not n.startswith((".", "profile-"))}
    assert not missing and {"tests/package/test_distributions.py", "Makefile", "constraints.txt"} <= there
    assert all((source / name).exists() for name in (".github/workflows/ci.yml", ".dockerignore", ".gitignore"))


def test_the_wheel_has_the_package_with_its_data_and_nothing_else(files):
    _, wheel = files
    names = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    assert names == {n.removeprefix("src/") for n in tree(ROOT) if n.startswith("src/")}
    assert {"dqnitro/py.typed", "dqnitro/cli/terminal/solved.json", "dqnitro/agents/__init__.py"} <= names
    assert sum(n.startswith("dqnitro/report/assets/") for n in names) >= 10
    assert wheel.name == f"dqnitro-{PROJECT['version']}-py3-none-any.whl"


def test_the_metadata_is_complete(files):
    _, wheel = files
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        data = email.parser.Parser().parsestr(archive.read(name).decode())
        points = archive.read(name.replace("METADATA", "entry_points.txt")).decode()
        assert archive.read(name.replace("METADATA", "licenses/LICENSE")).startswith(b"MIT")
    assert data["Summary"] == PROJECT["description"] and data["License-Expression"] == "MIT"
    assert data["Author"] == "The DQNitro developers" and data["Requires-Python"] == ">=3.11"
    assert data["Description-Content-Type"] == "text/markdown" and len(data["Keywords"].split(",")) >= 5
    assert set(data.get_all("Provides-Extra", [])) == set(PROJECT["optional-dependencies"])
    assert "dqnitro = dqnitro.cli:main" in points
    assert data.get_payload().strip() == long_description().strip()


def long_description() -> str:
    spec = importlib.util.spec_from_file_location("dqnitro_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.long_description((ROOT / "README.md").read_text(encoding="utf-8"))


def test_the_long_description_needs_no_source_tree_beside_it():
    text = long_description()
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert targets and all(t.startswith("https://") for t in targets)
    assert "![" not in text and "<img" not in text
    assert "`docs/glossary.md`" in text and "\n## Install\n" in text


def test_every_extra_is_installed_with_pinned_versions():
    """What the extras name has a line in constraints.txt, so that an installation is the one that was tested."""
    pinned = {re.split("==", line)[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    named = [r for extra in PROJECT["optional-dependencies"].values() for r in extra] + PROJECT["dependencies"]
    names = {re.match(r"[\w.-]+", r)[0].lower() for r in named}
    # numba-cuda is pinned by its own range: its newest build follows the driver's CUDA.
    assert names - pinned == {"numba-cuda"}

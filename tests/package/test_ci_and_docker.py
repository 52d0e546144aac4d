"""The files that other machines run: the commands in them are those that README and docs/install.md tell people."""

import pathlib
import re
import tomllib

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CI = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def told(name: str) -> set[str]:
    """The commands of a document's code blocks, without remarks."""
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.S | re.M)
    return {re.split(r"\s{2,}(?:#|\S)", line)[0].strip() for block in blocks for line in block.splitlines()}


COMMANDS = told("README.md") | told("docs/install.md") | told("CONTRIBUTING.md")
# What only other machines need, and why it is no command of the documents.
OTHERS = {
    ".venv/bin/python -m pip install -c constraints.txt pytest hypothesis": "tests without linter and type checker",
    ".venv/bin/python -m pytest": "a choice of tests",
    ".venv/bin/dqnitro report results/pong-2-cores.json": "a page where nothing of POSIX is",
}


def known(command: str) -> bool:
    if found := re.fullmatch(r"make ([\w-]+)", command):
        return re.search(rf"^{found[1]}:", MAKEFILE, re.M) is not None
    return command in COMMANDS or any(command.startswith(other) for other in OTHERS)


def test_ci_runs_the_commands_of_the_documents_on_three_systems():
    jobs = CI["jobs"]
    assert {job["runs-on"].split("-")[0] for job in jobs.values()} == {"ubuntu", "macos", "windows"}
    commands = [
        s["run"].replace(".venv\\Scripts\\", ".venv/bin/") for j in jobs.values() for s in j["steps"] if "run" in s
    ]
    assert len(commands) > 12 and not [c for c in commands if not known(c)]
    assert {"make lint", "make test", "make docs"} <= set(commands)
    assert any("dist/*.whl" in c for c in commands)
    for path in re.findall(r"tests/\S+", " ".join(commands)):
        assert (ROOT / path).exists(), path


def test_ci_tries_every_python_that_the_package_claims():
    claimed = re.findall(r"Python :: (3\.\d+)", " ".join(PROJECT["classifiers"]))
    assert CI["jobs"]["linux"]["strategy"]["matrix"]["python"] == claimed
    assert f">={claimed[0]}" == PROJECT["requires-python"]


def test_every_step_of_ci_does_one_thing():
    for name, job in CI["jobs"].items():
        assert job["timeout-minutes"] <= 60
        assert all(("run" in s) != ("uses" in s) for s in job["steps"]), name
        assert job["steps"][0]["uses"].startswith("actions/checkout@")


def docker() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, with continued lines joined."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    stages: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if found := re.search(r" AS (\w+)$", line):
            name = found[1]
        stages.setdefault(name, []).append((word, " ".join(rest.split())))
    return stages


def test_the_images_are_made_by_the_commands_of_the_documents():
    stages = docker()
    assert set(stages) == {"", "base", "cpu", "gpu"}
    assert [rest.split(" AS ")[0] for s in ("cpu", "gpu") for word, rest in stages[s] if word == "FROM"] == ["base"] * 2
    runs = [rest for stage in stages.values() for word, rest in stage if word == "RUN"]
    ours = [r for r in runs if not r.startswith(("apt-get ", "useradd "))]
    plain = [r.replace("'.[cuda]'", ".") for r in ours]
    assert len(ours) == 3 and all(r in COMMANDS for r in plain)
    assert any("'.[cuda]'" in r for r in ours) and "cuda" in PROJECT["optional-dependencies"]
    assert ("pip install -c constraints.txt '.[cuda]'") in (ROOT / "docs" / "install.md").read_text()


def test_an_image_runs_the_command_as_nobody_special():
    for stage in ("cpu", "gpu"):
        steps = dict(docker()[stage])
        assert steps["USER"] != "root" and steps["ENTRYPOINT"] == '["/opt/dqnitro/.venv/bin/dqnitro"]'
        assert steps["WORKDIR"] == "/home/dqnitro"


def test_the_documents_build_targets_that_exist():
    targets = re.findall(r"docker build --target (\w+)", (ROOT / "docs" / "install.md").read_text())
    assert targets == ["cpu", "gpu"] and set(targets) <= set(docker())


def test_the_image_leaves_out_what_a_checkout_gathers():
    ignored = set((ROOT / ".dockerignore").read_text().split())
    local = {line.strip("/") for line in (ROOT / ".gitignore").read_text().split()}
    folders = {name for name in local if not name.startswith("profile") and "pycache" not in name}
    covered = ignored | {".pytest_cache", ".ruff_cache"}
    assert folders <= covered and ".*_cache" in ignored and ".git" in ignored

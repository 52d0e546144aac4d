"""Every command of README and docs is understood by its parser, and is run by a test or listed with the reason why not.

A `train` command is also planned as a whole: recipe, rungs and settings become a config, up to the first step.
"""

from __future__ import annotations

import pathlib
import re
import shlex

import pytest

from dqnitro.cli import COMMANDS, main
from dqnitro.cli.terminal.flags import Parser

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = r"(?:\.venv/bin/)?(?:dqnitro|make|python3?|pip|docker|ray)"
STAND_INS = {
    "[RECIPE]": "auto", "GAME": "pong", "SETTING": "n_envs", "RUN": "runs/x", "NAME": "auto", "N": "1", "M": "2",
    "CLUSTER": "auto", "ID": "CartPole-v1",
}  # fmt: skip
# What the reader writes first, in the text around these commands.
THE_READERS = ("dqnitro train my_module:", "dqnitro train pong --recipe patient")

# The first line that fits says which test runs the command, small, or why none does.
LAB = "tests/commands/test_lab_commands.py"
LONG, OTHER = "too long: ", "not here: "
RUN = [
    (r"dqnitro train .*--gpus", "tests/commands/test_replicas_command.py"),
    (r"python -m dqnitro\.lab\.replicas", "tests/lab/test_replicas.py"),
    (r"python -m dqnitro\.lab\.cluster", "tests/lab/test_cluster_model.py"),
    (r"make test-replicas", LONG + "ten processes that import torch, some minutes"),
    (r"python -m dqnitro\.atari\.cuda\.measure", LONG + "it needs a GPU"),
    (r"dqnitro train .*--runner cluster", "tests/run/test_cluster.py"),
    (r"dqnitro train .*--on ", "tests/cluster/test_seeds_on_ray.py::test_a_lost_node_and_ctrl_c_change_nothing"),
    (r"dqnitro train .*(--seeds|runs/pong-auto-s1-8)", "tests/commands/test_seeds_command.py"),
    (r"dqnitro train .*--resume", "tests/commands/test_cli.py::test_train_then_runs_then_play_then_resume"),
    (r"dqnitro train .*all-on-gpu", OTHER + "it needs two GPUs or one with room for all; `make test-gpu`"),
    (r"dqnitro train .*--runner device", OTHER + "it needs an NVIDIA GPU; tests/gpu/test_device_runner.py"),
    (r"dqnitro atari", "tests/lab/test_atari.py"),
    (r"dqnitro train .*processes", "tests/contract/test_runners_contract.py"),
    (r"dqnitro train( |$)", LONG + "its plan is made here; tests/commands/test_cli.py has small runs"),
    (r"dqnitro play", "tests/commands/test_cli.py::test_train_then_runs_then_play_then_resume"),
    (r"dqnitro watch", "tests/cli/test_watch.py"),
    (r"dqnitro export", "tests/test_export.py"),
    (r"dqnitro runs", "tests/commands/test_cli.py::test_train_then_runs_then_play_then_resume"),
    (r"dqnitro env", "tests/commands/test_documented_commands.py::test_quick_ones_run_as_they_are_printed"),
    (r"dqnitro report", "tests/commands/test_documented_commands.py::test_quick_ones_run_as_they_are_printed"),
    (r"dqnitro tune", f"{LAB}::test_tune_env_and_forget"),
    (r"dqnitro ladder .*--solve( |$)", "tests/lab/test_solve.py"),
    (r"dqnitro ladder .*--solved", f"{LAB}::test_ladder_as_json_with_times_from_a_solved_run"),
    (r"dqnitro ladder", f"{LAB}::test_ladder_prints_the_table_and_keeps_the_result"),
    (r"dqnitro sweep", f"{LAB}::test_sweep_shows_both_axes"),
    (r"dqnitro ablate", f"{LAB}::test_ablate_and_ablate_cost"),
    (r"dqnitro compare", f"{LAB}::test_compare_in_words"),
    (r"dqnitro games", "tests/commands/test_games.py::test_check_compares_with_ale"),
    (r"dqnitro profile", "tests/commands/test_bench_and_profile.py::test_profile_writes_a_trace_and_says_what_to_try"),
    (r"dqnitro bench gpu", "tests/lab/test_bench_gpu.py"),
    (r"dqnitro bench (console|learn)", "tests/lab/test_bench_console.py"),
    (r"dqnitro bench", "tests/commands/test_bench_and_profile.py"),
    (r"make (pong|setup|test|lint)( |$)", LONG + "makes an environment; CI runs it (.github/workflows/ci.yml)"),
    (r"make test-gpu", OTHER + "it needs an NVIDIA GPU"),
    (r"make test-cluster", LONG + "a Ray cluster of three nodes, some minutes"),
    (r"make test-bounds", LONG + "the console compiled with a check of every index, some minutes"),
    (r"make chaos|(PYTHONPATH=\S+ )?python -m chaos", "tests/chaos/test_chaos.py"),
    (r"make docs", LONG + "builds the whole site; CI runs it; tests/package/test_site.py reads its parts"),
    (r"\.venv/bin/python -m pytest", LONG + "tests inside a test"),
    (r"\.venv/bin/dqnitro train", LONG + "in an environment of its own; CI runs it with the wheel"),
    (r"\.venv/bin/dqnitro env", "tests/commands/test_documented_commands.py::test_quick_ones_run_as_they_are_printed"),
    (r"python3 -m venv", LONG + "makes an environment; CI runs it"),
    (r"python3 -m http\.server", OTHER + "serves until it is stopped"),
    (r"\.venv/bin/python -m pip wheel", "tests/package/test_distributions.py"),
    (r"(\.venv/bin/python -m )?pip ", LONG + "installs; CI runs it"),
    (r"python -m build", "tests/package/test_distributions.py"),
    (r"python (docs/)?make_|python docs/", "tests/test_docs.py"),
    (r"python examples/", "tests/examples/test_examples.py"),
    (r"docker ", OTHER + "needs Docker; tests/package/test_ci_and_docker.py compares the steps"),
    (r"ray (start|stop|up|get-auth-token)", OTHER + "starts Ray on several machines"),
]  # fmt: skip


def in_blocks(text: str) -> list[str]:
    """Lines of plain code blocks without their remarks; a line that ends with a backslash goes on in the next."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.S | re.M)
    lines = [line for block in blocks for line in re.sub(r" *\\\n\s*", " ", block).splitlines()]
    return [re.split(r"\s{2,}|\s#\s", line.strip())[0] for line in lines]


def in_text(text: str) -> list[str]:
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M)
    codes = [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose)]
    return [code for code in codes if not re.fullmatch(r"dqnitro [a-z]+", code)]  # those are names of commands


def documented() -> dict[str, str]:
    """Every command, and the page where it stands first."""
    found: dict[str, str] = {}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for command in [*in_blocks(text), *in_text(text)]:
            if re.match(rf"{PROGRAMS} [-\w.'\[\"]", command):
                found.setdefault(command, page.name)
    return found


DOCUMENTED = documented()
OURS = sorted(c for c in DOCUMENTED if re.match(r"(\.venv/bin/)?dqnitro (?!COMMAND|-)", c))


def words(command: str) -> list[str]:
    return [STAND_INS.get(w, w) for w in shlex.split(command)[1:] if w not in ("...", "…")]


class Understood(BaseException):
    """The parser has taken the command line."""


@pytest.mark.parametrize("command", OURS)
def test_the_command_is_understood(command, monkeypatch):
    usual = Parser.parse

    def parse(self, args):
        usual(self, args)
        raise Understood

    monkeypatch.setattr(Parser, "parse", parse)
    assert words(command)[0] in COMMANDS
    with pytest.raises(Understood):
        main(words(command))


TRAIN = [
    c
    for c in OURS
    if words(c)[0] == "train" and not re.search(r"--(seeds|resume|on|gpus|device|runner device)|all-on-gpu", c)
]
TRAIN = [c for c in TRAIN if len(words(c)) > 1 and not words(c)[1].startswith("-") and not c.startswith(THE_READERS)]


@pytest.mark.parametrize("command", TRAIN)
def test_a_training_is_planned_up_to_its_first_step(command, monkeypatch, tmp_path):
    def begin(config, run_dir, **more):
        raise Understood(config)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dqnitro.session.train", begin)
    with pytest.raises(Understood) as planned:
        main(words(command))
    (config,) = planned.value.args
    env = words(command)[1]
    assert env.lower() in config.env_id.lower() and config.n_envs >= 1 and not list(tmp_path.iterdir())


def test_quick_ones_run_as_they_are_printed(monkeypatch, tmp_path, capsys):
    assert "dqnitro env" in DOCUMENTED and "dqnitro runs" in DOCUMENTED
    monkeypatch.chdir(tmp_path)
    assert main(["env"]) == 0 and "auto" in capsys.readouterr().out
    assert main(["runs"]) == 0
    one = ROOT / "results" / "pong-2-cores.json"
    assert main(["report", str(one), "--out", "pong.html"]) == 0 and (tmp_path / "pong.html").stat().st_size > 10_000


def test_every_command_is_run_by_a_test_or_listed_with_the_reason():
    used = set()
    for command, page in DOCUMENTED.items():
        fits = [i for i, (pattern, _) in enumerate(RUN) if re.match(pattern, command)]
        assert fits or command.startswith(("dqnitro COMMAND", "dqnitro -")), f"{page}: {command}"
        used.update(fits[:1])
    assert used == set(range(len(RUN))), f"nothing fits {[RUN[i][0] for i in set(range(len(RUN))) - used]}"


@pytest.mark.parametrize("where", sorted({where for _, where in RUN if where.startswith("tests/")}))
def test_the_tests_that_are_named_exist(where):
    path, _, name = where.partition("::")
    assert f"def {name}" in (ROOT / path).read_text(encoding="utf-8")

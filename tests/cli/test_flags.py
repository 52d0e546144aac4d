"""Help in two lengths, options by the names of other trainers, and the list of runs."""

import json

import pytest

from dqnitro.cli import main
from dqnitro.cli.runs import state_text
from dqnitro.cli.terminal.flags import ELSEWHERE, FIRST, GROUPS, NOT_FLAGS, flag_name
from dqnitro.config import FIELDS

WITH_SETTINGS = ["train", "sweep", "ladder", "ablate", "profile"]


def help_of(capsys, *args: str) -> str:
    with pytest.raises(SystemExit) as e:
        main([*args])
    assert e.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", WITH_SETTINGS)
def test_help_shows_own_options_and_help_all_the_settings(command, capsys):
    short, whole = help_of(capsys, command, "--help"), help_of(capsys, command, "--help-all")
    assert "--json" in short and "--learning-rate X" not in short and f"`dqnitro {command} --help-all`" in short
    assert len(short.splitlines()) < 60
    for heading in ("environments", "network", "learning", "schedule", "replay", "speed"):
        assert f"\nsettings: {heading} (in brackets: recipe baseline):\n" in whole
    assert (
        "transitions per update [32]" in whole
        and "double DQN" in whole
        and whole.index("--json") < whole.index("--envs {")
    )


def test_help_all_has_every_setting_once(capsys):
    whole = help_of(capsys, "train", "--help-all")
    for name in FIELDS:
        if name not in NOT_FLAGS:
            assert whole.count(f"\n  {flag_name(name)}") >= 1, name
    assert set(GROUPS) <= set(FIELDS) and set(FIRST) <= set(FIELDS)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "pong", "--lr", "1e-4"], "unknown option --lr; hint: did you mean --learning-rate?"),
        (["train", "pong", "--lr=1e-4"], "unknown option --lr; hint: did you mean --learning-rate?"),
        (["train", "pong", "--eps", "1"], "did you mean --epsilon-start, --epsilon-end, --epsilon-decay-steps?"),
        (["play", "x", "--eps", "1"], "did you mean --epsilon?"),
        (["train", "pong", "--gpu"], "did you mean --device cuda?"),
        (["train", "pong", "--zzz"], "hint: `dqnitro train --help-all` lists the options"),
        (["runs", "--zzz"], "hint: the options are --help, --root, --json"),
    ],
)
def test_an_option_of_another_trainer_leads_to_ours(args, says, capsys):
    assert main(args) == 2
    err = capsys.readouterr().err
    assert says in err and err.count("\n") == 1


def test_every_name_of_other_trainers_leads_somewhere():
    from dqnitro.cli.train import make_parser

    known = {o for a in make_parser()._actions for o in a.option_strings}
    for name, ours in ELSEWHERE.items():
        assert name not in known and any(o.split()[0] in known for o in ours), name


def test_runs_are_listed_with_whole_names_and_states_in_words(tmp_path, capsys):
    for k, state in enumerate(("steps", "minutes", "solved")):
        path = tmp_path / f"a-long-name-of-a-run-that-a-narrow-terminal-would-have-cut-in-two-{k}"
        path.mkdir()
        (path / "config.json").write_text(json.dumps({"config": {"env_id": "pong"}, "recipe": "auto"}))
        (path / "summary.json").write_text(json.dumps({"state": state, "mean_score": 1.5, "steps": 1234}))
    assert main(["runs", "--root", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert len(lines) == 4
    for k, words in enumerate(("reached --steps", "reached --minutes", "solved")):
        assert str(tmp_path / f"a-long-name-of-a-run-that-a-narrow-terminal-would-have-cut-in-two-{k}") in lines[k + 1]
        assert words in lines[k + 1]
    assert main(["runs", "--root", str(tmp_path), "--json"]) == 0
    assert [r["state"] for r in json.loads(capsys.readouterr().out)] == ["steps", "minutes", "solved"]


def test_states_of_several_seeds_in_words():
    assert state_text("3 steps, 1 running") == "3 reached --steps, 1 running"
    assert state_text("damaged config.json") == "damaged config.json"

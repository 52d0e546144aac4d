"""Help in two lengths, options by the names of other trainers, and the list of runs."""

import json

import pytest

from dqnitro.cli import main
from dqnitro.cli.runs import state_text
from dqnitro.cli.terminal.flags import ELSEWHERE, FIRST, GROUPS, NOT_FLAGS, config_changes, flag_name
from dqnitro.cli.train import make_parser
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


PLAYERS = {
    "--players 4": (4, 0, ""),
    "--players 2..8": (2, 8, ""),
    "--players 2 --most-players 8": (2, 8, ""),
    "--most-players 8 --players 2": (2, 8, ""),
    "--players 2..8 --player-changes 0:4": (2, 8, "0:4"),
    "--player-changes 0:4 --players 1": (1, 0, "0:4"),
}


@pytest.mark.parametrize("words", PLAYERS)
def test_players_are_a_number_or_a_range_and_what_was_said_before_about_them_counts_no_more(words):
    changes = config_changes(make_parser().parse(["pong", *words.split()]))
    assert tuple(changes[name] for name in ("players", "most_players", "player_changes")) == PLAYERS[words]


BAD_PLAYERS = {
    "--players 8..2": "--players must name the fewest first, got '8..2'; hint: --players 2..8",
    "--players 2..": "--players: expected a whole number, or two such as 2..8, got '2..'; hint: ",
    "--players 2..8 --n-envs 4 --player-changes 0:3": "cannot be divided among the 3 players from chunk 0 on; hint: ",
    "--players 5..6 --n-envs 8": "8 environments cannot be divided among 5 to 6 players; hint: n_envs 12 can",
    "--players 2..8 --runner inline": "players 2 needs runner cluster, got inline; hint: ",
    "--players-log nowhere": "--players-log nowhere: no record of players from the beginning of a run on; hint: ",
    "--players-log x --player-changes 0:1": "say the same thing; hint: leave one of them out",
}


@pytest.mark.parametrize("words", BAD_PLAYERS)
def test_players_that_cannot_be_are_one_line_with_a_hint(words, capsys):
    assert main(["train", "pong", "--runner", "cluster", *words.split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert BAD_PLAYERS[words] in line

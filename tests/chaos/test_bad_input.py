"""A short form of the campaign: bad input from the command line and from Python."""

import pytest

from chaos import command_lines
from dqnitro.cli import COMMANDS
from dqnitro.cli.terminal.flags import Number, out_file


def run(faults) -> int:
    wrong, done = [], 0
    for name, fault in faults:
        done += 1
        try:
            fault()
        except Exception as e:  # every one is a broken promise, and its name repeats it
            wrong.append(f"{name}: {type(e).__name__}: {str(e)[:300]}")
    assert wrong == []
    return done


def test_bad_command_lines_are_one_line_and_exit_code_2():
    assert run(command_lines.faults(seed=1, n=100)) == 100


def test_bad_settings_from_python_are_config_errors():
    assert run(command_lines.config_faults(seed=1, n=300)) == 300


def test_the_same_seed_draws_the_same_faults():
    names = [[name for name, _ in command_lines.config_faults(seed, 20)] for seed in (3, 3, 4)]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_number_and_every_file_of_a_command_is_checked_while_it_is_parsed(command):
    """A bare `int`, `float` or file name would be checked too late, or not at all."""
    for action in command_lines.parser_of(command)._actions:
        assert action.type not in (int, float), action.option_strings
        if action.metavar == "FILE":
            assert action.type is out_file, action.option_strings
    if command == "train":
        flags = {a.dest for a in command_lines.parser_of(command)._actions if isinstance(a.type, Number)}
        assert set(command_lines.RANGES) <= flags

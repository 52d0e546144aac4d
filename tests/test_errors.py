"""Every error of ours is one line with an exit code, whatever raised it."""

import inspect
import types

import pytest

from dqnitro import errors
from dqnitro.cli import run_command

WHAT = "it\nbroke"
KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, BaseException)]


def made(kind: type) -> BaseException:
    wanted = list(inspect.signature(kind).parameters)
    given = {"update": 7, "loss": float("nan"), "cause": KeyError("the cause"), "trace": "the trace\n"}
    return kind(*(given.get(name, WHAT) for name in wanted))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_of_ours_ends_a_command_in_one_line(kind, monkeypatch, capsys):
    error = made(kind)

    def main(argv):
        raise error

    monkeypatch.setattr("importlib.import_module", lambda name: types.SimpleNamespace(main=main))
    assert run_command("train", []) == error.exit_code > 0
    said = capsys.readouterr().err
    assert "\n" not in str(error) and said.endswith(f"dqnitro train: {error}\n")
    shown = error.trace if error.prints_trace else ""  # a player's has been printed when it died
    assert said == f"{shown}dqnitro train: {error}\n"
    assert bool(shown) == (kind in (errors.EnvFailed, errors.CallbackFailed, errors.PieceFailed))


def test_no_error_is_left_out():
    assert len(KINDS) >= 12 and all(issubclass(kind, errors.DQNitroError) for kind in KINDS)

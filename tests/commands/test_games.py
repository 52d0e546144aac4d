"""`dqnitro games`: the list, the comparison with ale-py, its exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch

Call = Callable[..., tuple[int, str, str]]


def test_the_list_names_every_game(call: Call) -> None:
    code, out, _ = call("games", "--json")
    rows = json.loads(out)
    assert code == 0
    assert len(rows) == 104
    assert sum(r["atari_57"] for r in rows) == 57
    pong = next(r for r in rows if r["game"] == "pong")
    assert (pong["cartridge"], pong["height"], pong["actions"]) == ("2K", 210, 6)


def test_check_compares_with_ale(call: Call) -> None:
    code, out, _ = call("games", "--check", "--games", "pong,Breakout", "--frames", "60", "--json")
    result = json.loads(out)
    assert code == 0
    assert result["different"] == 0
    assert [(g["game"], g["frames"], g["equal"]) for g in result["games"]] == [
        ("pong", 60, True),
        ("breakout", 60, True),
    ]


def test_a_difference_makes_the_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dqnitro.atari import compare_with_ale
    from dqnitro.cli import games

    wrong = compare_with_ale.CheckResult("pong", 7, 1, 0, "RAM in frame 7")
    monkeypatch.setattr(compare_with_ale, "check", lambda *args: iter([wrong]))
    assert games.main(["--check", "--games", "pong"]) == 1
    assert "DIFFERENT: RAM in frame 7" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "says"),
    [(["--games", "pnog"], "pong"), (["--frames", "0"], "--frames"), (["--check", "--device", "gpu"], "cuda:N")],
)
def test_bad_input_is_one_line(args: list[str], says: str, call: Call) -> None:
    code, out, err = call("games", *args)
    assert code == 2
    assert says in err
    assert not out
    assert err.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: tests/gpu compares the consoles on it")
def test_a_check_on_a_gpu_that_is_not_there_is_one_line(call: Call) -> None:
    code, _, err = call("games", "--check", "--games", "pong", "--device", "cuda")
    assert code == 2
    assert "no CUDA device" in err and err.count("\n") == 1

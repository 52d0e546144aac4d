"""`dqnitro games` in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


def run(*args: str) -> tuple[int, str, str]:
    p = subprocess.run([sys.executable, "-m", "dqnitro", "games", *args], capture_output=True, text=True, timeout=300)
    return p.returncode, p.stdout, p.stderr


def test_the_list_names_every_game() -> None:
    code, out, _ = run("--json")
    rows = json.loads(out)
    assert code == 0
    assert len(rows) == 104
    assert sum(r["atari_57"] for r in rows) == 57
    pong = next(r for r in rows if r["game"] == "pong")
    assert (pong["cartridge"], pong["height"], pong["actions"]) == ("2K", 210, 6)


def test_check_compares_with_ale() -> None:
    code, out, _ = run("--check", "--games", "pong,Breakout", "--frames", "60", "--json")
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


@pytest.mark.parametrize(("args", "says"), [(["--games", "pnog"], "pong"), (["--frames", "0"], "--frames")])
def test_bad_input_is_one_line(args: list[str], says: str) -> None:
    code, out, err = run(*args)
    assert code == 2
    assert says in err
    assert not out
    assert err.count("\n") == 1

"""The trained agents that come with the package."""

import json

import pytest

import dqnitro
from dqnitro.agents import BOX, boxed
from dqnitro.cli import main

pytestmark = pytest.mark.skipif(
    not boxed(), reason="no agent is in the package yet; `python docs/make_agent.py RUN` puts one there"
)


@pytest.mark.parametrize("game", boxed() or ["none"])
def test_an_agent_in_the_box_is_small_and_says_how_good_it_is(game):
    files = {p.name: p.stat().st_size for p in (BOX / game).iterdir()}
    assert set(files) == {"config.json", "model.safetensors", "agent.json"} and sum(files.values()) <= 2_000_000
    facts = json.loads((BOX / game / "agent.json").read_text())
    assert len(facts["scores"]["scores"]) >= 100 and facts["protocol"]["backend"] == "ale"
    assert facts["training"]["steps"] > 0


@pytest.mark.parametrize("game", boxed() or ["none"])
def test_it_plays_as_it_says(game):
    told = json.loads((BOX / game / "agent.json").read_text())["scores"]
    assert dqnitro.load(BOX / game).score(games=1, seed=5).mean >= min(told["scores"]) - 3


def test_the_name_of_its_game_is_enough(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["play", boxed()[0], "--games", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"] == str(BOX / boxed()[0])

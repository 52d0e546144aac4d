"""Leaving out: what is said to be left out really is, and everything else goes on."""

import numpy as np
import pytest
import torch

from dqnitro import recipes
from dqnitro.errors import ConfigError
from dqnitro.lab import ablate, race
from dqnitro.lab.race import Budget
from lab import fake_race

SMALL = {"hidden_units": 16, "batch_size": 8}


def parameters(racer):
    return [p.detach().clone() for p in racer.agent.learner.online.parameters()]


def race_one(change):
    racer = race.Racer(recipes.baseline("CartPole-v1").replace(**SMALL), change)
    before = parameters(racer)
    racer.rate(0.03)
    racer.close()
    assert racer.updates > 0 and racer.steps > 0
    moved = not all(torch.equal(a, b) for a, b in zip(before, parameters(racer), strict=True))
    return racer, moved


def test_with_nothing_left_out_the_network_learns():
    assert race_one(None)[1]


def test_without_sampling_one_batch_is_used_again_and_again():
    seen = set()

    def watch(agent):
        ablate.no_sampling(agent)
        update = agent.learner.update
        agent.learner.update = lambda batch: (seen.add(batch.obs_tm1.data_ptr()), update(batch))[1]

    _, moved = race_one(watch)
    assert len(seen) == 1 and moved


def test_without_the_optimiser_there_are_gradients_but_no_steps():
    racer, moved = race_one(ablate.no_optimiser)
    assert not moved and any(p.grad is not None for p in racer.agent.learner.online.parameters())


def test_without_the_loss_nothing_is_computed():
    racer, moved = race_one(ablate.no_loss)
    assert not moved and racer.agent.learner.n_updates == 1  # the one whose result is handed out again


def test_without_reshape_pictures_keep_their_shape_but_are_cut():
    racer = race.Racer(recipes.baseline("pong").replace(hidden_units=16, batch_size=2), ablate.no_reshape)
    obs = racer.agent.obs
    racer.close()
    assert obs.shape == (1, 4, 84, 84) and obs[0, -1].max() > 0
    screen = np.arange(210 * 160, dtype=np.uint32).reshape(210, 160).astype(np.uint8)
    assert (ablate._cut(84)(screen)[:, :80] == screen[:168:2, ::2]).all()


def test_each_rung_is_left_out_once_and_compared_with_the_whole(monkeypatch):
    def speed(config):
        return 100.0 * (2.0 if config.replay == "frames" else 1.0) * (1.5 if "few-calls" in config.wrappers else 1.0)

    fake_race.use(monkeypatch, speed)
    result = ablate.ablate("CartPole-v1", "auto", budget=Budget(0, 3))
    rows = {r["without"]: r for r in result["rows"]}
    assert rows[None]["fps"].mean == pytest.approx(300, rel=0.02)
    assert rows["frame-replay"]["ratio"].mean == pytest.approx(0.5)
    assert rows["few-calls"]["ratio"].mean == pytest.approx(1 / 1.5)
    with pytest.raises(ConfigError, match="uses no rungs"):
        ablate.ablate("CartPole-v1", "baseline")


def test_shares_are_what_leaving_out_saves(monkeypatch):
    fake_race.use(monkeypatch, lambda c: 100.0 if c.clip_rewards else 125.0)
    rows = {r["without"]: r for r in ablate.cost("CartPole-v1", budget=Budget(0, 3))["rows"]}
    assert rows["clipping"]["saves_share"] == pytest.approx(0.2)
    assert rows["sampling"]["saves_share"] == pytest.approx(0.0)
    assert rows["reshape"]["state"] == "skipped" and "not an Atari game" in rows["reshape"]["why"]
    assert ablate.verdict(list(rows.values())).startswith("share of a step's time: clipping 20%")


def test_atari_has_everything_to_leave_out_and_says_what_cannot_be(monkeypatch):
    fake_race.use(monkeypatch, lambda c: 100.0)
    rows = {r["without"]: r["state"] for r in ablate.cost("pong", budget=Budget(0, 2))["rows"]}
    assert set(rows.values()) == {"measured"}
    assert set(rows) == {
        None, "sampling", "optimiser", "loss", "episodic life", "clipping", "episodic life and clipping", "reshape",
    }  # fmt: skip
    row = ablate.cost("pong", budget=Budget(0, 2), changes={"envs": "ale"})["rows"][-1]
    assert (row["without"], row["state"]) == ("reshape", "skipped") and "in compiled code" in row["why"]


def test_real_ablation_of_the_cost():
    result = ablate.cost("CartPole-v1", budget=Budget(0.5, 3, 0.05), changes=SMALL)
    rows = {r["without"]: r for r in result["rows"]}
    assert rows["loss"]["ratio"].mean > 1.2, "a step without learning must be faster"
    assert rows["loss"]["saves_share"] > rows["clipping"]["saves_share"]

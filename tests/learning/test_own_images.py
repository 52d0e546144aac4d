"""Images of any kind, boards, and Dict observations are learned by `auto`, each with a network that fits."""

from __future__ import annotations

import pytest
import torch

import dqnitro
from dqnitro import dqn
from dqnitro.errors import ConfigError
from dqnitro.planning import Wish, planned
from dqnitro.requirements import runner_needs
from dqnitro.run import make_run
from support import fakes_images

# what is observed, with its channels and stack, and the network that learns from it
KINDS = {
    "Colour": ((12, 16, 16), dqn.BoardNetwork),
    "Board": ((4, 10, 10), dqn.BoardNetwork),
    "Stacked": ((2, 12, 12), dqn.BoardNetwork),
    "Large": ((12, 84, 84), dqn.ConvNetwork),
    "Mixed": ((7,), dqn.VectorNetwork),
}
QUICK = {"epsilon_decay_steps": 400, "steps_per_update": 2.0, "learning_rate": 1e-3, "seed": 3, "progress": False}


def plan(name, **changes):
    return planned(Wish(f"support.fakes_images:{name}", changes=changes)).config


@pytest.mark.parametrize("name", KINDS)
def test_the_network_fits_what_is_observed(name):
    shape, network = KINDS[name]
    agent, ticks = make_run(plan(name, replay_capacity=3_000))
    try:
        next(ticks)
        assert agent.envs.spec.obs_shape == shape
        assert isinstance(agent.learner.online, network)
    finally:
        agent.close()


@pytest.mark.parametrize("name", ["Board", "Stacked", "Mixed"])
def test_small_images_and_mixed_observations_are_learned(name):
    result = dqnitro.train(f"support.fakes_images:{name}", max_steps=4_000, **QUICK)
    assert result.ended == "solved", f"mean score {result.mean_score} after {result.steps} steps"


def test_large_images_are_learned():
    result = dqnitro.train(fakes_images.Large, max_steps=2_400, network="small", screen_size=36, **QUICK)
    assert result.ended == "solved", f"mean score {result.mean_score} after {result.steps} steps"


def test_without_its_colours_the_square_says_nothing():
    """The bar means something, and `images` decides."""
    grey = {"images": "grey", "network": "small", "screen_size": 36}
    result = dqnitro.train("support.fakes_images:Colour", max_steps=600, **grey, **QUICK)
    assert result.ended == "steps" and result.mean_score < 0.75


def test_two_processes_carry_colour_images():
    result = dqnitro.train("support.fakes_images:Colour", max_steps=4_000, runner="processes", **QUICK)
    assert result.ended == "solved", f"mean score {result.mean_score} after {result.steps} steps"


@pytest.mark.parametrize("runner", ["device", "hybrid"])
def test_runners_that_cannot_carry_them_say_so(runner):
    config = plan("Colour").replace(runner=runner)
    why = runner_needs(runner, config)
    assert why is not None and ("grey" in why or "not an Atari game" in why)
    with pytest.raises(ConfigError, match=f"runner {runner}: "):
        plan("Colour", runner=runner)


def test_a_network_for_atari_does_not_fit_a_board():
    with pytest.raises(ConfigError, match="nature needs images of at least 36x36 pixels, got 10x10; hint.*board"):
        make_run(plan("Board", network="nature"))


@pytest.mark.parametrize("side", [5, 10, 11, 20, 35])
def test_the_network_of_boards_has_few_features_at_any_size(side):
    network = dqn.make_network((3, side, side), "board", 16, dqn.HeadSpec(2))
    assert network.head.advantage.hidden.in_features <= 3_200
    obs = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8)
    with torch.autocast("cpu", torch.bfloat16):
        low = network(obs)
    torch.testing.assert_close(low, network(obs), atol=0.05, rtol=0.05)


def test_an_own_network_gets_the_shape_of_the_images():
    seen = []

    def mine(obs_shape, n_actions):
        seen.append(obs_shape)
        return torch.nn.Sequential(torch.nn.Flatten(), Floats(), torch.nn.Linear(12 * 16 * 16, n_actions))

    dqnitro.train("support.fakes_images:Colour", network=mine, max_steps=100, **QUICK)
    assert set(seen) == {(12, 16, 16)}


class Floats(torch.nn.Module):
    def forward(self, x):
        return x.float() / 255

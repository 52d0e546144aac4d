"""Implicit quantiles, noisy layers and spectral normalisation, with values worked out by hand."""

import math

import numpy as np
import pytest
import torch

from dqnitro import dqn
from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.heads import (
    ACTING_TAUS,
    COSINES,
    ONLINE,
    SELECT,
    TARGET,
    TARGET_TM1,
    Draws,
    Head,
    HeadSpec,
    NoisyLinear,
    UpdateDraws,
    Wants,
    noise_size,
)
from dqnitro.ladder import fitted
from dqnitro.run import make_run
from dqnitro.run.inline import InlineAgent
from support import fakes_envs

fakes_envs.register()


def test_a_noisy_layer_by_hand():
    layer = NoisyLinear(2, 1, sigma=0.5, place=3)
    assert layer.sigma_weight[0].tolist() == pytest.approx([0.5 / math.sqrt(2)] * 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 2.0]]))
        layer.bias.fill_(0.5)
        layer.sigma_weight.copy_(torch.tensor([[0.1, 0.2]]))
        layer.sigma_bias.fill_(0.3)
    x = torch.tensor([[1.0, 1.0]])
    assert layer(x).item() == pytest.approx(3.5)  # no noise: an ordinary layer
    # f(4) = 2, f(-9) = -3 for the inputs, f(1/4) = 1/2 for the output; three numbers before belong to another layer
    noise = torch.tensor([7.0, 7.0, 7.0, 4.0, -9.0, 0.25])
    weight = [1 + 0.1 * 0.5 * 2, 2 + 0.2 * 0.5 * -3]
    assert layer(x, noise).item() == pytest.approx(sum(weight) + 0.5 + 0.3 * 0.5)


def test_the_layers_of_a_noisy_head_take_different_numbers():
    head = Head(5, 4, HeadSpec(3, dueling=True, noisy_sigma=0.5))
    layers = [m for m in head.modules() if isinstance(m, NoisyLinear)]
    places = sorted((m.place, m.place + m.draws) for m in layers)
    assert [a for a, _ in places[1:]] == [b for _, b in places[:-1]] and places[0][0] == 0
    assert noise_size(head) == places[-1][1] == (5 + 4) + (4 + 3) + (5 + 4) + (4 + 1)


def test_learning_decides_how_large_the_noise_is():
    head = Head(5, 4, HeadSpec(3, noisy_sigma=0.5))
    head(torch.ones(2, 5), Draws(None, torch.ones(noise_size(head)))).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for n, p in head.named_parameters() if "sigma" in n)


def test_implicit_quantiles_by_hand():
    head = Head(1, 1, HeadSpec(1, implicit=2))
    with torch.no_grad():
        for p in head.parameters():
            p.zero_()
        head.embedding.weight[0, 0] = 1.0  # only cos(pi tau) counts
        head.embedding.bias.fill_(2.0)
        head.advantage.hidden.weight.fill_(1.0)
        head.advantage.output.weight.fill_(10.0)
    taus = torch.tensor([[0.0, 0.5], [1.0, 0.25]])
    out = head(torch.tensor([[1.0], [3.0]]), Draws(taus))
    assert out.shape == (2, 1, 2)
    expected = [[10.0 * (2 + 1), 10.0 * 2], [30.0 * (2 - 1), 30.0 * (2 + math.sqrt(0.5))]]
    np.testing.assert_allclose(out[:, 0].detach(), expected, rtol=1e-5)
    assert head(torch.tensor([[1.0]])).shape == (1, 1, ACTING_TAUS)
    assert head(torch.tensor([[1.0]])).mean().item() == pytest.approx(20.0, rel=1e-5)  # midpoints: cosines cancel


def test_a_head_of_implicit_quantiles_keeps_samples_and_actions_apart():
    torch.manual_seed(0)
    head = Head(6, 8, HeadSpec(3, dueling=True, implicit=4))
    x, taus = torch.rand(5, 6), torch.rand(5, 4)
    out = head(x, Draws(taus))
    assert out.shape == (5, 3, 4)
    alone = torch.cat([head(x[i : i + 1], Draws(taus[i : i + 1])) for i in range(5)])
    torch.testing.assert_close(out, alone)
    one = head(x, Draws(taus[:, 2:3]))
    torch.testing.assert_close(out[:, :, 2:3], one)
    assert head.embedding.in_features == COSINES


def test_the_quantile_loss_at_given_places_by_hand():
    # quantiles 0.1 and 0.9 of the action taken are 0 and 1; the target is 3 for sure
    out = torch.tensor([[[9.0, 9.0], [0.0, 1.0]]])
    loss = dqn.quantile_huber_loss(out, torch.tensor([1]), torch.tensor([[3.0]]), torch.tensor([[0.1, 0.9]]))
    assert loss.item() == pytest.approx(0.1 * 2.5 + 0.9 * 1.5)


def test_the_random_numbers_of_an_update():
    wants = Wants(taus=3, noise=7)
    draws = wants.draw(5, torch.device("cpu"), torch.Generator().manual_seed(1))
    assert draws is not None and draws.taus is not None and draws.noise is not None
    assert draws.taus.shape == (5, 4, 3) and draws.noise.shape == (4, 7)
    assert float(draws.taus.min()) >= 0 and float(draws.taus.max()) < 1
    both = draws.of_target(both=True)
    assert both.taus is not None and both.noise is not None
    assert torch.equal(both.taus, torch.cat((draws.taus[:, TARGET], draws.taus[:, TARGET_TM1])))
    assert torch.equal(both.noise, draws.noise[TARGET])
    assert len({tuple(draws.noise[i].tolist()) for i in (ONLINE, TARGET, SELECT)}) == 3
    assert wants.named(draws.tensors) == draws
    assert Wants().draw(5, torch.device("cpu")) is None and Wants().named(()) is None
    assert Wants(noise=7).named((draws.noise,)) == UpdateDraws(None, draws.noise)


@pytest.mark.parametrize("shape", [(16, 144), (3, 2), (1, 4)])
def test_the_spectral_norm_is_the_largest_singular_value(shape):
    torch.manual_seed(3)
    weights = torch.randn(4, *shape)
    np.testing.assert_allclose(dqn.spectral_norm(weights), torch.linalg.matrix_norm(weights, 2), rtol=3e-3)
    by_hand = torch.tensor([[3.0, 0.0], [0.0, -5.0]], requires_grad=True)  # of a diagonal matrix the largest entry
    value = dqn.spectral_norm(by_hand)
    assert value.item() == pytest.approx(5.0)
    value.backward()
    assert by_hand.grad is not None
    np.testing.assert_allclose(by_hand.grad, [[0.0, 0.0], [0.0, -1.0]], atol=1e-6)  # left and right vectors' product
    assert torch.isfinite(dqn.spectral_norm(torch.zeros(2, 3)))


def test_a_residual_block_with_spectral_normalisation_does_not_care_how_large_its_weights_are():
    block = dqn.Residual(4, "spectral")
    with torch.no_grad():
        for convolution in (block.first, block.second):
            assert convolution.bias is not None
            convolution.bias.zero_()
    x = torch.randn(2, 4, 6, 6)
    before = block(x)
    with torch.no_grad():
        block.first.weight.mul_(100.0)
    torch.testing.assert_close(block(x), before, rtol=1e-4, atol=1e-4)
    first = block.first.weight.flatten(1) / dqn.spectral_norm(block.first.weight.flatten(1))
    assert torch.linalg.matrix_norm(first, 2).item() == pytest.approx(1.0, rel=3e-3)


CATCH = Config(
    env_id="dqnitro_test/Catch-v0", envs="gym-sync", frame_stack=2, screen_size=36, n_envs=4, hidden_units=16,
    first_fill_steps=40, batch_size=8, replay_capacity=4 * 200, target_sync_steps=20, steps_per_update=8.0,
    torch_threads=1, epsilon_end=0.1, epsilon_decay_steps=60, n_step=2, network="small",
    wrappers=("no-grad", "fused-adam"),
)  # fmt: skip
WANTING = {
    "implicit": {"implicit_quantiles": 4, "munchausen": True, "dueling": True},
    "noisy": {"noisy_sigma": 0.5, "double": True},
    "both": {"implicit_quantiles": 4, "noisy_sigma": 0.5, "prioritized": True, "double": True},
}


def weights(agent) -> list[torch.Tensor]:
    return [p.detach().clone() for p in agent.learner.online.parameters()]


@pytest.mark.parametrize("name", WANTING)
@pytest.mark.parametrize("runner", ["inline", "hybrid"])
def test_a_run_with_random_passes_goes_on_where_it_was_saved(runner, name):
    config = CATCH.replace(runner=runner, **WANTING[name])
    agent, ticks = make_run(config)
    for _ in range(40):
        next(ticks)
    assert agent.clock.updates > 5
    arrays, record = agent.get_state()
    arrays = {group: {k: np.asarray(v).copy() for k, v in values.items()} for group, values in arrays.items()}
    went_on = [next(ticks)[:3] for _ in range(20)]
    other, others = make_run(config)
    other.set_state(arrays, record)
    again = [next(others)[:3] for _ in range(20)]
    assert went_on == again
    assert all(torch.equal(x, y) for x, y in zip(weights(agent), weights(other), strict=True))
    agent.close()
    other.close()


def test_noise_is_drawn_for_every_choice_and_not_outside_of_training():
    agent, ticks = make_run(CATCH.replace(noisy_sigma=0.5))
    next(ticks)
    assert isinstance(agent, InlineAgent)
    act = agent.learner.actor.values
    quiet = act(agent.obs)
    assert torch.equal(act(agent.obs), quiet)
    rng = np.random.default_rng(1)
    noise = [torch.from_numpy(rng.standard_normal(agent.learner.wants.noise, dtype=np.float32)) for _ in range(2)]
    assert not torch.equal(act(agent.obs, noise[0]), act(agent.obs, noise[1]))
    agent.close()


def test_passes_that_draw_nothing_are_refused_and_left_out():
    config = CATCH.replace(noisy_sigma=0.5, wrappers=("no-grad", "written-out"))
    with pytest.raises(ConfigError, match="wrapper written-out: its passes draw no random numbers, which noisy_sigma"):
        make_run(config)
    fits, rungs, why = fitted(config, ("written-out", "double"))
    assert fits.wrappers == ("no-grad",) and rungs == ("double",) and why and "leaving out written-out" in why
    with pytest.raises(ConfigError, match="two heads for the same thing"):
        CATCH.replace(quantiles=8, implicit_quantiles=8)

"""Targets, losses and heads against values worked out by hand."""

import numpy as np
import pytest
import torch

from dqnitro import dqn
from dqnitro.dqn import HeadSpec


def t(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)


def test_the_target_bootstraps_from_the_best_next_value_and_not_after_an_end():
    q_t = torch.tensor([[1.0, 3.0], [5.0, 2.0]])
    y = dqn.td_target(t(1.0, -1.0), t(0.5, 0.0), q_t, q_t)
    assert y.tolist() == [1.0 + 0.5 * 3.0, -1.0]


def test_double_lets_the_online_network_pick_and_the_target_network_value():
    q_target, q_online = torch.tensor([[1.0, 3.0]]), torch.tensor([[9.0, 8.0]])
    assert dqn.td_target(t(0.0), t(1.0), q_target, q_online).tolist() == [1.0]


def test_mse_and_huber_by_hand():
    q = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    loss, td = dqn.td_loss(q, t(0, 1, dtype=torch.int64), t(1.5, 5.0), "mse")
    assert td.tolist() == [0.5, 3.0] and loss.tolist() == [0.25, 9.0]
    loss, _ = dqn.td_loss(q, t(0, 1, dtype=torch.int64), t(1.5, 5.0), "huber")
    assert loss.tolist() == [0.125, 2.5]


def test_gradients_flow_through_the_prediction_only():
    q = torch.tensor([[1.0, 0.0]], requires_grad=True)
    target = torch.tensor([3.0], requires_grad=True)
    dqn.td_loss(q, t(0, dtype=torch.int64), target, "mse")[0].sum().backward()
    assert q.grad.tolist() == [[-4.0, 0.0]] and target.grad is None


def test_the_dueling_head_is_value_plus_centred_advantage():
    head = dqn.Head(2, 3, HeadSpec(n_actions=2, dueling=True))
    x = torch.randn(4, 2)
    a, v = head.advantage(x).view(4, 2, 1), head.value(x).view(4, 1, 1)
    assert torch.allclose(head(x), v + a - (a[:, :1] + a[:, 1:]) / 2)


ATOMS = torch.linspace(-1.0, 1.0, 3)  # -1, 0, 1


def test_the_categorical_projection_splits_mass_between_neighbours():
    # return = 0.25 + 0.5 * atom: -0.25, 0.25, 0.75
    p = dqn.categorical_projection(t(0.25), t(0.5), torch.tensor([[0.2, 0.3, 0.5]]), ATOMS)
    expected = [0.2 * 0.25, 0.2 * 0.75 + 0.3 * 0.75 + 0.5 * 0.25, 0.3 * 0.25 + 0.5 * 0.75]
    assert p[0].tolist() == pytest.approx(expected)


def test_the_categorical_projection_clips_at_the_borders_and_keeps_all_mass():
    p = dqn.categorical_projection(t(5.0, -5.0), t(0.9, 0.0), torch.tensor([[0.2, 0.3, 0.5]] * 2), ATOMS)
    assert p.tolist() == [[0.0, 0.0, pytest.approx(1.0)], [pytest.approx(1.0), 0.0, 0.0]]


def test_an_end_puts_all_mass_on_the_reward():
    p = dqn.categorical_projection(t(0.5), t(0.0), torch.tensor([[0.2, 0.3, 0.5]]), ATOMS)
    assert p[0].tolist() == pytest.approx([0.0, 0.5, 0.5])


def test_the_categorical_loss_is_the_cross_entropy_of_the_action_taken():
    out = torch.log(torch.tensor([[[0.1, 0.2, 0.7], [0.3, 0.3, 0.4]]]))
    loss = dqn.categorical_loss(out, t(1, dtype=torch.int64), torch.tensor([[0.0, 0.5, 0.5]]))
    assert loss.item() == pytest.approx(-0.5 * np.log(0.3) - 0.5 * np.log(0.4))


def test_expected_values_of_a_distribution():
    out = torch.log(torch.tensor([[[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]]]) + 1e-12)
    assert dqn.q_values(out, ATOMS)[0].tolist() == pytest.approx([0.6, -0.5], abs=1e-5)


def test_the_quantile_loss_by_hand():
    # quantiles 1/4 and 3/4 of the action taken are 0 and 1; two samples of the target: 0.5 and 3
    out = torch.tensor([[[9.0, 9.0], [0.0, 1.0]]])
    loss = dqn.quantile_huber_loss(out, t(1, dtype=torch.int64), torch.tensor([[0.5, 3.0]]))
    low = 0.25 * (0.5 * 0.5**2 + (3.0 - 0.5)) / 2  # both samples are above 0
    high = (0.25 * 0.5 * 0.5**2 + 0.75 * (2.0 - 0.5)) / 2  # one below 1, one above
    assert loss.item() == pytest.approx(low + high)


def test_the_quantile_loss_is_least_at_the_quantiles():
    """Of a target that is 0, 1, 2 or 3, the quantiles at 1/4 and 3/4 lie between 0 and 1 and between 2 and 3."""
    target = torch.tensor([[0.0, 1.0, 2.0, 3.0]]) * 1000  # far apart, so that the Huber loss is nearly absolute
    theta = torch.zeros(1, 1, 2, requires_grad=True)
    for _ in range(4000):
        theta.grad = None
        dqn.quantile_huber_loss(theta, t(0, dtype=torch.int64), target).sum().backward()
        with torch.no_grad():
            theta -= 5.0 * theta.grad
    low, high = theta.detach().flatten().tolist()
    assert -10 <= low <= 1010 and 1990 <= high <= 3010


def test_the_value_of_quantiles_is_their_mean():
    assert dqn.q_values(torch.tensor([[[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]]]), None).tolist() == [[3.0, 1.0]]


def test_munchausen_targets_by_hand():
    m = dqn.Munchausen(temperature=0.5, scale=0.9, floor=-1.0)
    # two actions whose values differ by 0.5 * ln 3 have the probabilities 3/4 and 1/4
    q = torch.tensor([[0.5 * np.log(3.0), 0.0]], dtype=torch.float32)
    reward = dqn.munchausen_reward(t(2.0), q, t(1, dtype=torch.int64), m)
    assert reward.item() == pytest.approx(2.0 + 0.9 * 0.5 * np.log(0.25))
    hopeless = torch.tensor([[100.0, 0.0]])
    assert dqn.munchausen_reward(t(2.0), hopeless, t(1, dtype=torch.int64), m).item() == pytest.approx(2.0 - 0.9)
    value = dqn.soft_value(q.unsqueeze(-1), q, m)
    by_hand = 0.75 * (0.5 * np.log(3.0) - 0.5 * np.log(0.75)) + 0.25 * (0.0 - 0.5 * np.log(0.25))
    assert value.shape == (1, 1) and value.item() == pytest.approx(by_hand)


def test_a_cold_munchausen_target_without_a_bonus_is_the_ordinary_one():
    q, quantiles = torch.tensor([[1.0, 3.0]]), torch.tensor([[[0.0, 2.0], [2.0, 4.0]]])
    m = dqn.Munchausen(temperature=1e-3, scale=0.0, floor=-1.0)
    assert dqn.soft_value(q.unsqueeze(-1), q, m).tolist() == [[pytest.approx(3.0)]]
    assert dqn.soft_value(quantiles, q, m)[0].tolist() == pytest.approx([2.0, 4.0])
    assert dqn.munchausen_reward(t(1.0), q, t(0, dtype=torch.int64), m).tolist() == [1.0]


def test_every_environment_flips_its_own_coin():
    rng = np.random.default_rng(0)
    greedy = np.full(1000, 7)
    actions = dqn.epsilon_greedy(greedy, 0.5, 4, rng)
    assert 400 < (actions == 7).sum() < 600  # one coin for all would give 0 or 1000
    assert (dqn.epsilon_greedy(greedy, 0.0, 4, rng) == 7).all()
    assert set(dqn.epsilon_greedy(greedy, 1.0, 4, rng)) == {0, 1, 2, 3}


def test_the_nature_network_has_the_papers_size():
    net = dqn.make_network((4, 84, 84), "nature", 512, HeadSpec(6))
    assert sum(p.numel() for p in net.parameters()) == 1_687_206
    assert net(torch.zeros(2, 4, 84, 84, dtype=torch.uint8)).shape == (2, 6, 1)


def test_kaiming_keeps_the_signals_size_through_the_layers():
    torch.manual_seed(0)
    sizes = []
    for rule in (lambda _: None, dqn.kaiming):
        network = dqn.ConvNetwork((4, 84, 84), "nature", 512, dqn.HeadSpec(6))
        rule(network)
        x = network.convolutions(torch.randn(8, 4, 84, 84))
        sizes.append(x.square().mean().item())
    assert sizes[0] < 0.05 < 0.3 < sizes[1] < 3.0
    assert all((m.bias == 0).all() for m in network.modules() if isinstance(m, torch.nn.Conv2d | torch.nn.Linear))


@pytest.mark.parametrize("norm", ["none", "layer", "spectral"])
def test_the_impala_network_has_the_papers_layers_and_a_pooled_head(norm):
    net = dqn.make_network((4, 84, 84), "impala", 512, HeadSpec(6), dqn.Impala(2, norm))
    convolutions = [m for m in net.modules() if isinstance(m, torch.nn.Conv2d)]
    assert [c.out_channels for c in convolutions] == [32] * 5 + [64] * 5 + [64] * 5
    assert net.head.advantage.hidden.in_features == 64 * 6 * 6
    assert sum(isinstance(m, torch.nn.GroupNorm) for m in net.modules()) == 6 * (norm == "layer")
    obs = torch.randint(0, 256, (3, 4, 84, 84), dtype=torch.uint8)
    assert net(obs).shape == (3, 6, 1)


def test_the_impala_network_scales_pixels_in_any_precision():
    net = dqn.make_network((4, 84, 84), "impala", 64, HeadSpec(3), dqn.Impala(1, "layer"))
    obs = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    with torch.no_grad():
        plain = net(obs)
        first = net.stages[0][0]
        x = torch.nn.functional.conv2d(obs.float() / 255.0, first.weight, first.bias, padding=1)
        x = net.stages[1:](net.stages[0][1:](x))
        by_hand = net.head(torch.relu(net.pool(x)).flatten(1))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            short = net(obs)
    assert torch.allclose(plain, by_hand, atol=1e-5) and torch.allclose(plain, short, atol=0.02)
    assert not torch.equal(plain[0], plain[1])

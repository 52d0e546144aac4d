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

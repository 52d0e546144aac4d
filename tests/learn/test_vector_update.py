"""The update of networks for vectors in few calls, beside the one that torch makes."""

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.dqn import Batch
from dqnitro.envs.base import EnvSpec
from dqnitro.errors import ConfigError, DivergedError
from dqnitro.learn.cpu.vector_update import FlatAdam, VectorActing, is_flat
from dqnitro.learn.learner import Learner
from dqnitro.learn.transforms import wrap
from dqnitro.planning import Wish, planned

SPEC = EnvSpec(3, 4, (5,), np.dtype(np.float32), 1, 1, False)
PLAIN = Config(
    env_id="CartPole-v1", batch_size=24, hidden_units=40, learning_rate=1e-2, seed=3, frame_stack=1, double=True,
    loss="huber", grad_clip=0.5,
)  # fmt: skip


def learners(**changes) -> tuple[Learner, Learner]:
    config = PLAIN.replace(**changes)
    return Learner(config, SPEC, "cpu"), Learner(config.replace(wrappers=("no-grad", "few-calls")), SPEC, "cpu")


def batch(seed: int, scale: float = 1.0) -> Batch:
    rng = np.random.default_rng(seed)
    n, floats = PLAIN.batch_size, np.float32
    arrays = (
        rng.normal(0, 1, (n, 5)).astype(floats), rng.integers(0, 4, n), (scale * rng.normal(0, 2, n)).astype(floats),
        rng.choice([0.0, 0.9], n).astype(floats), rng.normal(0, 1, (n, 5)).astype(floats),
        rng.uniform(0.2, 1.0, n).astype(floats),
    )  # fmt: skip
    return Batch(*map(torch.from_numpy, arrays))


def difference(a: Learner, b: Learner) -> float:
    pairs = zip(a.online.parameters(), b.online.parameters(), strict=True)
    return max(float((p - q).detach().abs().max()) for p, q in pairs)


@pytest.mark.parametrize(
    "changes",
    [{}, {"double": False}, {"loss": "mse"}, {"grad_clip": 0.0}, {"grad_clip": 1e9, "loss": "mse", "double": False}],
)
def test_every_update_is_torchs_but_for_rounding(changes):
    slow, fast = learners(**changes)
    assert difference(slow, fast) == 0.0
    first = {k: v.clone() for k, v in slow.online.state_dict().items()}
    for i in range(30):
        (a, td_a), (b, td_b) = slow.update(batch(i)), fast.update(batch(i))
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(td_a, td_b, rtol=1e-3, atol=1e-4)
        if i % 10 == 9:
            slow.sync_target()
            fast.sync_target()
        assert difference(slow, fast) < 1e-4
    moved = max(float((first[k] - v).abs().max()) for k, v in slow.online.state_dict().items())
    assert moved > 0.05 and fast.n_updates == 30


def test_what_one_saves_the_other_continues():
    slow, fast = learners()
    for i in range(5):
        fast.update(batch(i))
    saved = fast.get_state()
    slow.update(batch(9))
    slow.set_state(saved)
    assert difference(slow, fast) == 0.0
    for i in range(5, 10):
        slow.update(batch(i))
        fast.update(batch(i))
    assert difference(slow, fast) < 1e-5
    other = learners()[1]
    other.update(batch(0))
    other.set_state(slow.get_state())
    assert is_flat(other.online)
    for i in range(10, 15):
        slow.update(batch(i))
        other.update(batch(i))
    assert difference(slow, other) < 1e-5
    mine, theirs = other.get_state(), slow.get_state()
    assert set(mine) == set(theirs) and all(mine[k].shape == v.shape for k, v in theirs.items())
    assert mine["adam.0.step"] == mine["adam.5.step"] == 15


def test_acting_is_the_networks_own_pass_wherever_its_memory_is():
    _, fast = learners()
    obs = np.random.default_rng(0).normal(0, 1, (3, 5)).astype(np.float32)
    for i in range(3):
        expected = fast.online(torch.from_numpy(obs))[:, :, 0].argmax(1).numpy()
        assert fast.greedy(obs).tolist() == expected.tolist()
        fast.update(batch(i))
    act = wrap(("no-grad", "few-calls"), "cpu").act
    assert isinstance(act, VectorActing)
    torch.testing.assert_close(act(fast.online, torch.from_numpy(obs)), fast.online(torch.from_numpy(obs)))
    for p in fast.online.parameters():  # holes in the memory: torch's pass
        p.data = (p.data * 2).clone()
    assert not is_flat(fast.online)
    torch.testing.assert_close(act(fast.online, torch.from_numpy(obs)), fast.online(torch.from_numpy(obs)))


def test_parameters_that_are_neighbours_in_two_pieces_of_memory_take_torchs_pass():
    _, fast = learners()
    network, obs = fast.online, torch.ones(3, 5)
    assert is_flat(network)
    parameters = list(network.parameters())
    memory = np.concatenate([p.detach().numpy().ravel() for p in parameters])
    ends = np.cumsum([p.numel() for p in parameters])[:-1]
    for p, piece in zip(parameters, np.split(memory, ends), strict=True):
        p.data = torch.from_numpy(piece).view(p.shape)
    assert not is_flat(network)
    torch.testing.assert_close(wrap(("no-grad", "few-calls"), "cpu").act(network, obs), network(obs))


@pytest.mark.parametrize("setting", [{"dueling": True}, {"categorical": True}])
def test_a_config_whose_update_is_another_one_is_refused(setting):
    with pytest.raises(ConfigError, match=r"wrapper few-calls: its update is written for .* --without few-calls"):
        learners(**setting)


def test_what_diverges_stays_out_of_the_parameters():
    _, fast = learners(loss="mse")
    before = fast.get_state()
    with pytest.raises(DivergedError):
        fast.update(batch(0, scale=1e30))
    after = fast.get_state()
    assert all(torch.equal(before[k], after[k]) for k in before)


def test_warming_up_changes_nothing():
    _, fast = learners()
    fast.update(batch(0))
    before = fast.get_state()
    fast.warm_up(SPEC, PLAIN.batch_size)
    after = fast.get_state()
    assert set(before) == set(after) and all(torch.equal(before[k], after[k]) for k in before)


def test_other_networks_keep_torchs_update():
    image = EnvSpec(1, 2, (1, 8, 8), np.dtype(np.uint8), 1, 1, True)
    config = PLAIN.replace(network="board", wrappers=("no-grad", "few-calls"), n_envs=1)
    learner, plain = Learner(config, image, "cpu"), Learner(config.replace(wrappers=("no-grad",)), image, "cpu")
    assert isinstance(learner.optimizer, FlatAdam)
    n = config.batch_size
    obs = torch.randint(0, 255, (n, 1, 8, 8), dtype=torch.uint8)
    transitions = Batch(obs, torch.zeros(n, dtype=torch.int64), torch.ones(n), torch.ones(n), obs, torch.ones(n))
    for _ in range(3):
        learner.update(transitions)
        plain.update(transitions)
    assert difference(learner, plain) < 1e-6


def test_settings_that_it_is_not_written_for_take_another_transform():
    made = planned(Wish("CartPole-v1"))
    assert "few-calls" in made.rungs and "few-calls" in made.config.wrappers
    other = planned(Wish("CartPole-v1", changes={"dueling": True}))
    assert "few-calls" not in other.config.wrappers and "fused-adam" in other.config.wrappers
    assert any("fused-adam instead of few-calls" in note and "dueling True" in note for note in other.notes)
    with pytest.raises(ConfigError, match="exclude each other"):
        wrap(("few-calls", "compile"), "cpu")

"""Actions from the update's own pass: the run of the ordinary loop, in which acting has a pass of its own."""

import copy
import itertools

import numpy as np
import pytest
import torch

from dqnitro import ladder, recipes
from dqnitro.config import Config
from dqnitro.dqn import ConvNetwork, HeadSpec, joined, q_values
from dqnitro.errors import ConfigError
from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses
from dqnitro.learn.cpu.patch_dedup import PatchDedup
from dqnitro.learn.transforms import wrap
from dqnitro.run.inline import loop as ticks_of
from dqnitro.run.inline import make_agent
from dqnitro.session import train
from support import fakes_envs
from support.fakes_player import in_threads

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", n_envs=2, frame_stack=4, screen_size=36, network="small", hidden_units=64,
    batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, torch_threads=1, replay="frames", epsilon_start=0.3,
    epsilon_end=0.1, epsilon_decay_steps=60, learning_rate=1e-3,
)  # fmt: skip
FAST = ("no-grad", "channels-last", "bfloat16", "distinct-patches", "one-pass-adam", "split-network")
CASES = {
    "one environment": {"n_envs": 1},
    "two updates a step": {"n_envs": 1, "steps_per_update": 0.5},
    "an update every third step": {"n_envs": 1, "steps_per_update": 3.0},
    "two environments, double": {"double": True, "dueling": True},
    "a replay of ten steps": {"n_envs": 1, "replay_capacity": 10, "first_fill_steps": 8, "n_step": 3},
    "prioritised, categorical": {"prioritized": True, "categorical": True, "double": True},
    "a vector": {"env_id": "CartPole-v1", "frame_stack": 1, "first_fill_steps": 60, "batch_size": 32},
    "all the rest": {"wrappers": FAST, "double": True},
}
TICKS = 110
# A pass over a larger batch may round otherwise (it does on most Intel CPUs), and training is chaotic: 1e-8 after one
# update is 1e-2, and another action, after a hundred. So the runs are brought together again every few ticks.
TICKS_APART = 5


def tolerance(config: Config) -> float:
    """What rounding may change in Q-values within so few updates. Without rounding at all they would be equal."""
    return 2e-3 if "bfloat16" in config.wrappers else 1e-4


def with_it(config: Config) -> Config:
    return config.replace(wrappers=(*config.wrappers, "one-pass-acting"))


class Tape:
    """A run tick by tick: what was done, what it led to, and how often a pass was made for acting alone.

    A tape that follows another takes its actions, and checks that the network would have chosen them, or equally good
    ones.
    """

    def __init__(self, config: Config, follow: "Tape | None" = None) -> None:
        self.agent = a = make_agent(config)
        self.calls: list[str] = []
        self.rows: list[tuple] = []
        self.choices: list[np.ndarray] = []
        self._follow, self._greedy = follow, a.learner.greedy
        for owner, name in (
            (a.learner.actor, "greedy"),
            (a.learner, "begin"),
            (a.envs, "send"),
            (a.learner, "update"),
        ):
            setattr(owner, name, self._counted(name, getattr(owner, name)))
        a.learner.greedy = self._choose  # type: ignore[method-assign]
        add = a.replay.add
        a.replay.add = lambda actions, step: (self._row(actions, step), add(actions, step))[1]  # type: ignore[method-assign]
        self.ticks = ticks_of(a)

    def _counted(self, name, f):
        return lambda *args: (self.calls.append(name), f(*args))[1]

    def _choose(self, obs: np.ndarray, *others: object) -> np.ndarray:
        choice = mine = self._greedy(obs)
        if self._follow is not None:
            choice = self._follow.choices[len(self.choices)]
            q, rows = values(self.agent, torch.from_numpy(obs)), np.arange(len(obs))
            assert (np.abs(q[rows, mine] - q[rows, choice]) <= 2 * tolerance(self.agent.config)).all(), "another action"
        self.choices.append(choice)
        return choice

    def _row(self, actions, step) -> None:
        self.rows.append((actions.tolist(), step.reward_t.tolist(), step.reset.tolist(), int(step.obs_t.sum())))

    def run(self, n: int):
        return [(t.steps, t.updates, t.epsilon, t.ends) for t in itertools.islice(self.ticks, n)]


def values(agent, obs: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return q_values(agent.learner.online(obs), agent.learner.atoms).numpy()


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_the_run_of_the_ordinary_loop_but_for_rounding(case):
    config = CATCH.replace(**CASES[case])
    slow = Tape(config)
    fast = Tape(with_it(config), follow=slow)
    moved = []
    for _ in range(0, TICKS, TICKS_APART):
        before = copy.deepcopy(slow.agent.learner.online)
        assert slow.run(TICKS_APART) == fast.run(TICKS_APART)
        assert slow.rows == fast.rows and len(slow.choices) == len(fast.choices)
        obs = slow.agent.replay.sample(16, np.random.default_rng(0), 1.0).batch.obs_tm1.contiguous()
        a, b = values(slow.agent, obs), values(fast.agent, obs)
        with torch.no_grad():
            moved.append(np.abs(a - q_values(before(obs), slow.agent.learner.atoms).numpy()).max())
        np.testing.assert_allclose(b, a, rtol=0, atol=tolerance(config))
        assert abs((a - b).mean()) < tolerance(config) / 3
        fast.agent.learner.set_state(slow.agent.learner.get_state())
    assert np.median([m for m in moved if m]) > 5 * tolerance(config), "too little was learned to see a difference"
    assert any(row[2][0] for row in slow.rows), "no game ended"
    assert "begin" not in slow.calls and slow.calls.count("update") == fast.calls.count("update") > 20
    assert 0 < fast.calls.count("greedy") < slow.calls.count("greedy")


def test_acting_has_no_pass_of_its_own_where_an_update_is_owed():
    tape = Tape(
        with_it(CATCH.replace(n_envs=1, steps_per_update=3.0, first_fill_steps=8, epsilon_start=0.0, epsilon_end=0.0))
    )
    tape.run(8)
    assert set(tape.calls) == {"greedy", "send"}
    tape.calls.clear()
    updates = [t.updates for t in itertools.islice(tape.ticks, 30)]
    assert updates[-1] == 10
    for tick, calls in enumerate(" ".join(tape.calls).split("send")[1:]):
        # what follows a `send`: this tick's update, and the next tick's way to its action
        assert calls.split() in (["update", "greedy"], ["greedy"], ["begin"], ["update"], []), (tick, calls)
    assert tape.calls.count("begin") == tape.calls.count("update") == 10
    assert tape.calls.count("greedy") + tape.calls.count("begin") + sum(r[2][0] for r in tape.rows[8:]) >= 30
    order = [c for c in tape.calls if c != "greedy"]
    at = order.index("begin")
    assert order[at : at + 3] == ["begin", "send", "update"]


@pytest.mark.parametrize(("steps_per_update", "ticks"), [(1.0, 40), (3.0, 40), (3.0, 41), (3.0, 42), (1.0, 3)])
def test_a_run_that_was_saved_between_two_ticks_goes_on_as_if_it_was_not(steps_per_update, ticks):
    """With an update owed and without one, and before the first."""
    config = with_it(CATCH.replace(wrappers=FAST, double=True, steps_per_update=steps_per_update))
    whole = Tape(config)
    whole.run(ticks)
    arrays, record = copy.deepcopy(whole.agent.get_state())
    arrays["learner"] = {k: v.numpy() for k, v in arrays["learner"].items()}  # as a file holds them
    again = Tape(config)
    again.agent.set_state(arrays, record)
    assert whole.run(25) == again.run(25) and whole.rows[ticks:] == again.rows
    pairs = zip(whole.agent.learner.online.parameters(), again.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_observations_that_go_along_change_no_value_and_no_gradient():
    torch.manual_seed(2)
    network = wrap(("channels-last",), "cpu").prepare(ConvNetwork((4, 36, 36), "nature", 24, HeadSpec(3, dueling=True)))
    rng = torch.Generator().manual_seed(1)
    obs, one, two = (torch.randint(0, 256, (n, 4, 36, 36), dtype=torch.uint8, generator=rng) for n in (6, 1, 2))
    assert isinstance(network, ConvNetwork)
    for by_hand in (HandwrittenPasses(), HandwrittenPasses(PatchDedup())):
        out, a, b = by_hand.forward_also(network, obs, one, two)
        assert out.requires_grad and not a.requires_grad and not b.requires_grad
        for got, x in ((out, obs), (a, one), (b, two)):
            torch.testing.assert_close(got.detach(), by_hand.forward_no_grad(network, x), rtol=1e-2, atol=1e-3)
        gradients = torch.autograd.grad(out.square().sum(), list(network.parameters()))
        alone = torch.autograd.grad(by_hand.forward(network, obs).square().sum(), list(network.parameters()))
        for g, h in zip(gradients, alone, strict=True):
            assert (g - h).norm() < 1e-2 * h.norm()


def test_batches_are_joined_in_the_order_of_the_first():
    a = torch.arange(2 * 4 * 6 * 6, dtype=torch.uint8).view(2, 4, 6, 6).contiguous(memory_format=torch.channels_last)
    b = a.flip(0).contiguous()
    both = joined(a, b, a[:1])
    assert torch.equal(both, torch.cat([a, b, a[:1]])) and both.stride() == a.stride() and joined(a) is a


def test_it_is_refused_where_actions_are_chosen_elsewhere():
    rung = ladder.RUNGS["one-pass-acting"]
    config = recipes.baseline("CartPole-v1")
    assert rung.needs(config) is None
    assert rung.needs(config.replace(runner="processes")) == "the runner processes chooses actions elsewhere"
    assert rung.needs(config.replace(act_device="cpu")) == "actions are chosen on cpu with a copy of the network"
    with pytest.raises(
        ConfigError, match="one-pass-acting is for a learner on the CPU; hint: on a GPU take cuda-graphs"
    ):
        wrap(("one-pass-acting",), "cuda")
    with pytest.raises(ConfigError, match="exclude each other"):
        wrap(("compile", "one-pass-acting"), "cpu")


def test_with_another_player_it_changes_nothing(monkeypatch):
    in_threads(monkeypatch)
    config = CATCH.replace(max_steps=90, runner="processes")
    a, b = train(config), train(with_it(config))
    pairs = zip(a.agent.learner.online.parameters(), b.agent.learner.online.parameters(), strict=True)
    assert a.updates == b.updates > 10 and all(torch.equal(x, y) for x, y in pairs)

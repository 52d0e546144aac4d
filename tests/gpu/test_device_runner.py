"""The device runner on a GPU: counted, resumed, recorded, and without needless waits."""

from __future__ import annotations

import copy
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dqnitro import dqn
from dqnitro.config import Config
from dqnitro.run.gpu.agent import UPDATES
from dqnitro.run.gpu.device import STEPS_PER_GRAPH, DeviceAgent, Graphs, ticks
from support.own_kernels_checks import same_weights

pytestmark = pytest.mark.gpu
PAGE = Path(__file__).parents[2] / "docs" / "cuda-console.md"


def config(**changes: Any) -> Config:
    base = Config(
        env_id="pong", n_envs=32, screen_size=84, network="small", hidden_units=32, replay="frames",
        replay_capacity=32 * 600, first_fill_steps=700, batch_size=32, steps_per_update=32.0, target_sync_steps=2_048,
        max_episode_frames=600, runner="device", device="cuda", wrappers=("no-grad", "fused-adam"),
        # Every action is drawn: what is played then depends on no rounding of the network's.
        epsilon_start=1.0, epsilon_end=1.0,
    )  # fmt: skip
    return base.replace(**changes)


OWN = {"network": "nature", "hidden_units": 128, "wrappers": ("no-grad", "fused-adam", "bfloat16", "own-kernels")}
ATOMS = {**OWN, "categorical": True, "double": True, "dueling": True, "n_step": 3}
both = pytest.mark.parametrize(
    "changes", [{}, OWN, {**ATOMS, "prioritized": True}], ids=["plain", "own-kernels", "own-kernels-atoms"]
)


def start(c: Config) -> tuple[DeviceAgent, Graphs, Any]:
    agent = DeviceAgent(c, torch.device("cuda"))
    graphs = Graphs(agent)
    graphs.prepare()
    return agent, graphs, ticks(agent, graphs)


def numbers(run: Any, n: int) -> list[tuple[Any, ...]]:
    return [(t.steps, t.updates, t.ends) for t in itertools.islice(run, n)]


def test_steps_updates_and_games_are_counted():
    agent, graphs, run = start(config())
    seen = numbers(run, 25)
    assert graphs.cuda and len(graphs._graphs) >= 2, "graphs were recorded"
    steps = [s for s, _, _ in seen]
    # none at all where the limit ended all games in one step, and every console is resetting
    gained = [b - a for a, b in itertools.pairwise(steps)]
    assert all(0 <= g <= 32 * graphs.per_graph for g in gained) and sum(g == 0 for g in gained) <= len(gained) // 4
    filled = next(i for i, s in enumerate(steps) if s >= 700)
    # one update a vector step, from the second graph after the fill on: the host is a graph behind
    assert seen[-1][1] == (len(seen) - 1 - filled - 1) * graphs.per_graph
    ends = [end for _, _, games in seen for end in games]
    assert ends and all(0 < end.steps <= 150 and -21 <= end.score <= 21 for end in ends)
    assert int(agent.ring.filled) == (len(seen) + 1) * graphs.per_graph, "one graph is ahead of the numbers"
    agent.close()


@both
def test_training_changes_the_network(changes):
    agent, _, run = start(config(**changes))
    before = [p.detach().clone() for p in agent.learner.online.parameters()]
    numbers(run, 8)
    assert any(not torch.equal(x, y) for x, y in zip(before, agent.learner.online.parameters(), strict=True))
    agent.close()


@both
def test_the_target_is_copied_inside_the_graph(changes):
    """Often, and never: as many copies as the clock owes, and with our own kernels the packed weights follow."""
    for period in (96, 10**9):
        agent, graphs, run = start(config(target_sync_steps=period, **changes))
        assert graphs.per_graph == STEPS_PER_GRAPH
        before = [p.detach().clone() for p in agent.learner.target.parameters()]
        numbers(run, 12)
        torch.cuda.synchronize()
        updates = int(agent.report[UPDATES])
        # one update a vector step, drawn alone: the last copy was owed before the last update
        assert updates > 50 and int(agent.syncs) == int((700 + (updates - 1) * 32.0) // period)
        same = [torch.equal(x, y) for x, y in zip(before, agent.learner.target.parameters(), strict=True)]
        assert all(same) if period == 10**9 else not any(same)
        if changes:
            assert same_weights(agent.update.target_weights, agent.update.masters.packed(agent.learner.target))
        agent.close()


def test_games_end_and_begin_while_it_trains():
    """Several games of every console, in a few graphs of one pattern; scores and lengths are those of whole games."""
    changes = {"env_id": "breakout", "n_envs": 64, "replay_capacity": 64 * 600, "target_sync_steps": 100}
    agent, graphs, run = start(config(max_episode_frames=108_000, **changes))
    ends = [end for _, _, games in numbers(run, 150) for end in games]
    assert len(graphs._graphs) <= 2, "no game and no copy of the target needs another graph"
    per_env = [sum(end.env == m for end in ends) for m in range(64)]
    assert min(per_env) >= 2 and all(end.steps >= 20 and end.score >= 0 for end in ends)
    assert any(end.score > 0 for end in ends)
    valid = agent.ring.valid[: int(agent.ring.filled)].float().mean()
    assert 0.7 < float(valid) < 0.99, "starts take a share of the steps, and no more"
    agent.close()


@both
def test_a_saved_run_goes_on_as_if_it_had_not_stopped(changes, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    whole, _, run = start(config(**changes))
    expected = numbers(run, 14)
    a, _, run = start(config(**changes))
    first = numbers(run, 9)
    arrays, record = a.get_state()
    b, _, more = start(config(**changes))
    b.set_state(arrays, record)
    again, _ = b.get_state()
    if changes:
        for kept in ("weights", "target_weights"):
            assert same_weights(*(getattr(agent.update, kept) for agent in (a, b))), kept
    for group, kept in arrays.items():
        for key, value in kept.items():
            assert np.array_equal(np.asarray(value), np.asarray(again[group][key])), (group, key)
    assert first + numbers(more, 5) == expected
    torch.cuda.synchronize()
    assert torch.equal(whole.ring.frames, b.ring.frames) and torch.equal(whole.ring.action, b.ring.action)
    # Adam turns the sign of a tiny gradient into a whole step.
    rounding = float(b.report[UPDATES]) * b.config.learning_rate
    for x, y in zip(whole.learner.online.parameters(), b.learner.online.parameters(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=rounding)
    for agent in (whole, a, b):
        agent.close()


@both
def test_the_steady_state_waits_for_nothing_but_the_last_graphs_numbers(changes):
    agent, _, run = start(config(**changes))
    numbers(run, 8)  # every pattern of updates is recorded by now
    torch.cuda.set_sync_debug_mode("error")
    try:
        after = numbers(run, 4)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert after[-1][1] > after[0][1]
    agent.close()


@pytest.mark.parametrize("own", [OWN, ATOMS], ids=["values", "atoms"])
def test_own_kernels_play_and_learn_what_the_plain_learner_does(own, monkeypatch):
    """The same draws, the same random actions: the same experience, and the same function but for rounding."""
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)
    seen, agents, first = [], [], None
    for changes in ({**own, "wrappers": ("no-grad", "fused-adam", "bfloat16")}, own):
        agent, _, run = start(config(**changes))  # seeds the GPU's random numbers
        first = copy.deepcopy(agent.learner.online)
        agents.append(agent)
        seen.append(numbers(run, 10))
        torch.cuda.synchronize()
    a, b = agents
    assert seen[0] == seen[1] and seen[0][-1][1] > 50
    assert torch.equal(a.ring.frames, b.ring.frames) and torch.equal(a.ring.action, b.ring.action)
    b.ring.see(b.player.obs[:, -1], b.age)  # as `choose` begins
    here = b.player.resetting == 0
    said = dqn.q_values(a.update.act(b.learner.online, b.player.obs), b.learner.atoms).float()
    torch.testing.assert_close(b.values()[here], said[here], rtol=0, atol=1e-2)
    obs = a.ring.stacks((a.ring.head - 1).expand(32), torch.arange(32, device="cuda"))
    x, y, z = (network(obs).detach() for network in (a.learner.online, b.learner.online, first))
    assert (x - y).abs().max() < (x - z).abs().max() / 4
    for agent in agents:
        agent.close()


def test_a_sync_would_be_seen():
    """Otherwise the test above would prove nothing."""
    x = torch.ones(1, device="cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="synchroniz"):
            x.item()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("number", range(len(re.findall(r"```python\n", PAGE.read_text()))))
def test_the_examples_of_the_page_run(number):
    namespace: dict[str, Any] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)[number], namespace)
    assert namespace["loss"].isfinite() and namespace["loss"].is_cuda

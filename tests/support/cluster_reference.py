"""What the runner `cluster` is compared with: the inline loop with the same ages of weights and epsilon."""

import json
from collections.abc import Sequence

import numpy as np
import torch

from dqnitro.config import Config
from dqnitro.run.cluster.crew import slack_chunks
from dqnitro.run.cluster.layout import new_rngs
from dqnitro.run.cluster.player import envs_each, first_rng
from dqnitro.run.inline import choose_actions, learn_owed, make_agent, remember
from dqnitro.run.processes.player import pack_rng, unpack_rng

CORRIDOR = Config(
    env_id="dqnitro_test/Corridor-v0", n_envs=4, frame_stack=1, clip_rewards=False, hidden_units=16, batch_size=8,
    first_fill_steps=40, replay_capacity=160, target_sync_steps=10, epsilon_start=0.5, epsilon_decay_steps=200,
    max_steps=220, torch_threads=1, n_step=2, double=True, checkpoint_every_s=0.0, learning_rate=5e-3,
    runner="cluster", players=2, chunk_vector_steps=3,
)  # fmt: skip


def _chosen(a, rng, epsilon: float, mine: slice) -> np.ndarray:
    """What a player chooses for its environments."""
    idle, last = (None if x is None else x[mine] for x in (a.envs.idle, a.envs.last_actions))
    return choose_actions(
        rng, epsilon, a.pending[mine], a.envs.spec.n_actions, lambda: a.learner.greedy(a.obs[mine], rng), idle, last
    )


def log_of(run):
    """What metrics.jsonl says about players."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [x for x in lines if x["event"] == "players"]


def inline_by_the_log(config: Config, run):
    """The reference implementation, with as many players as the log of a run says, when it says so."""
    (chunk, players), *changes = [(x["chunk"], x["players"]) for x in log_of(run)]
    assert chunk == 0
    return inline_with_the_same_ages(config.replace(players=players, most_players=0, player_changes=""), changes)


def inline_with_the_same_ages(config: Config, changes: Sequence[tuple[int, int]] = ()):
    """The reference implementation: one process, one loop, and weights and epsilon of `slack` chunks ago.

    `changes`: from these chunks on, so many players.
    """
    a = make_agent(config.replace(runner="inline", players=1, slack_steps=0))
    online, generators = list(a.learner.online.parameters()), []
    for i in range(config.players):
        generators.append(np.random.Generator(np.random.PCG64()))
        generators[i].bit_generator.state = unpack_rng(first_rng(config.seed, i))
    kept, slack, m, tick = [], slack_chunks(config), envs_each(config), 0
    while a.clock.steps < config.max_steps:
        if tick % config.chunk_vector_steps == 0:
            for players in [n for chunk, n in changes if chunk == tick // config.chunk_vector_steps]:
                words = new_rngs([pack_rng(rng) for rng in generators], players)
                generators, m = [np.random.Generator(np.random.PCG64()) for _ in words], config.n_envs // players
                for rng, w in zip(generators, words, strict=True):
                    rng.bit_generator.state = unpack_rng(w)
            kept.append(([p.detach().clone() for p in online], a.clock.epsilon()))
        weights, epsilon = kept[max(0, len(kept) - 1 - slack)]
        current = [p.data for p in online]
        for p, old in zip(online, weights, strict=True):
            p.data = old
        parts = [slice(i * m, i * m + m) for i in range(len(generators))]
        actions = np.concatenate([_chosen(a, rng, epsilon, mine) for rng, mine in zip(generators, parts, strict=True)])
        for p, now in zip(online, current, strict=True):
            p.data = now
        a.envs.send(actions)
        learn_owed(a)
        remember(a, actions, a.envs.recv())
        tick += 1
    a.close()
    return a


def same(a, b) -> None:
    assert (a.clock.steps, a.clock.updates) == (b.clock.steps, b.clock.updates) and a.clock.updates > 20
    for x, y in ((a.learner.online, b.learner.online), (a.learner.target, b.learner.target)):
        assert all(torch.equal(i, j) for i, j in zip(x.parameters(), y.parameters(), strict=True))
    x, y = (r.replay.sample(16, np.random.default_rng(0), 1.0).batch for r in (a, b))
    assert all(torch.equal(i, j) for i, j in zip(x, y, strict=True))

"""The engines for compiled vector environments, over a small one whose games have different lengths."""

from __future__ import annotations

import numpy as np
import pytest

from dqnitro.config import Config
from dqnitro.envs.ale import AleEngine
from dqnitro.envs.bookkeeping import Engine, Games, episode_seed
from dqnitro.envs.console import ConsoleEngine

N = 3


class FakeVec:
    """AtariVectorEnv in small: the observation is (seed, steps, sum of actions) in bytes, a game lasts 1 to 5 steps."""

    def __init__(self, n: int) -> None:
        self.n = self.num_envs = n
        self.single_action_space = type("Space", (), {"n": 4})
        self.single_observation_space = type("Space", (), {"shape": (4,)})
        self.state = np.zeros((n, 4), np.int64)  # seed, steps, sum of actions, over
        self.ale = self
        self.pending: list[int] | None = None
        self.closed = False

    def reset(self, *args, seed=None, options=None):
        which = np.flatnonzero(options["reset_mask"]) if options else np.array(args[0] if args else [0])
        seeds = [seed] if isinstance(seed, int) else args[1] if args else seed
        assert len(seeds) == len(which)
        for i, s in zip(which, seeds, strict=True):
            self.state[i] = s, 0, 0, 0
        return self._obs(), self._info()

    def get_state(self):
        return {"state": self.state.copy()}

    def put_state(self, i, state):
        assert self.pending is None, "between recv and send"
        self.state[i] = state["state"][0]

    def send(self, actions, strengths=None, look=None):
        assert self.pending is None, "two sends without a recv"
        self.pending = list(actions)
        self.look = np.zeros(self.n, bool) if look is None else look.copy()

    def recv(self):
        assert self.pending is not None, "recv without send would wait for ever"
        for s, action, look in zip(self.state, self.pending, self.look, strict=True):
            if look:
                continue
            if s[3]:
                s[:] = 0  # an autoreset without our seed
            else:
                s[1:3] += 1, action
                s[3] = s[1] > s[0] % 5
        self.pending = None
        return self._obs(), self.state[:, 2].copy(), self.state[:, 3] > 0, np.zeros(self.n, bool), self._info()

    def step(self, actions):
        self.send(actions)
        return self.recv()

    def _obs(self):
        return (self.state % 251).astype(np.uint8)

    def _info(self):
        return {"lives": 5 - self.state[:, 1] // 2}

    def close(self):
        self.closed = True


def make(kind: str, **settings) -> Games:
    config = Config(n_envs=N, seed=2, episodic_life=True, **settings)
    one = lambda: FakeVec(1)  # noqa: E731
    engine: Engine = AleEngine(one, config) if kind == "ale" else ConsoleEngine(FakeVec(N), one, config.seed, 0, 2)
    return Games(engine, config, is_image=False, frames_per_step=4)


def tick(games: Games, action: np.ndarray):
    games.send(action)
    return games.recv()


@pytest.mark.parametrize("kind", ["ale", "vector"])
@pytest.mark.parametrize("env_threads", [0, 2])
def test_every_game_has_its_own_seed_and_its_own_length(kind: str, env_threads: int) -> None:
    games = make(kind, env_threads=env_threads)
    obs = games.reset()
    game, steps = [0] * N, [0] * N
    for t in range(40):
        for i in range(N):
            assert obs[i, 0] == episode_seed(2, i, game[i]) % 251
            assert obs[i, 1] == steps[i]
        step = tick(games, np.full(N, t % 4))
        ended = [end.env for end in step.ends]
        for i in range(N):
            game[i], steps[i] = (game[i] + 1, 0) if step.reset[i] else (game[i], steps[i] + 1)
            assert (i in ended) == (not step.reset[i] and steps[i] > episode_seed(2, i, game[i]) % 5)
            # A life goes in every second step of this game, and none by the reset.
            assert step.terminated[i] == (not step.reset[i] and (i in ended or steps[i] % 2 == 0))
        obs = step.obs_t
    assert min(game) > 5 and len(set(game)) > 1
    games.close()


@pytest.mark.parametrize("kind", ["ale", "vector"])
def test_a_state_of_every_moment_continues_whatever_the_others_do(kind: str) -> None:
    whole, resumed = make(kind), make(kind)
    actions = np.random.default_rng(0).integers(0, 4, (30, N))
    obs, states, steps = [whole.reset()], [whole.get_state()], []
    for action in actions:
        steps.append(tick(whole, action))
        states.append(whole.get_state())
        obs.append(steps[-1].obs_t)
    just_begun = [s["steps"] == 0 for s in states]
    assert any(b.any() and not b.all() for b in just_begun), "some begin while others are in the middle"
    assert any(s["ended"].any() and not s["ended"].all() for s in states)
    for t, state in enumerate(states[:-8]):
        np.testing.assert_array_equal(resumed.set_state(state), obs[t], err_msg=f"moment {t}")
        for k in range(8):
            a, b = tick(resumed, actions[t + k]), steps[t + k]
            for x, y in zip(a[:5], b[:5], strict=True):
                np.testing.assert_array_equal(x, y, err_msg=f"moment {t}, {k} later")
            assert a.ends == b.ends
    whole.close(), resumed.close()


def test_an_interrupted_recv_does_not_hang_the_next_reset_or_close() -> None:
    games = make("ale")
    first = games.reset().copy()
    games.send(np.zeros(N, np.int64))
    engine = games.engine
    assert isinstance(engine, AleEngine)
    engine._play[0].recv()  # as if Ctrl-C had come when this was fetched and not yet written down
    games._sent = None
    np.testing.assert_array_equal(games.reset(), first)
    tick(games, np.zeros(N, np.int64))
    games.close()


def test_closing_the_vector_engine_closes_what_it_was_given() -> None:
    games = make("vector")
    engine = games.engine
    assert isinstance(engine, ConsoleEngine)
    vec = engine._vec
    games.close()
    assert vec.closed

"""What every environment backend promises, whatever it plays."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator

import gymnasium as gym
import numpy as np
import pytest

from dqnitro import envs as envs_package
from dqnitro.config import Config
from dqnitro.envs.base import Envs, Step

ANY_ENV = ("wrappers", "gym-sync", "gym-async")
ATARI_ONLY = ("ale", "console")
N_ENVS = 2


class Walk(gym.Env):
    """A seeded walk that ends, or is cut off, after a few steps; the observation tells everything."""

    action_space = gym.spaces.Discrete(3)
    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float64)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.steps, self.length = 0.0, 0, int(self.np_random.integers(2, 9))
        return self._obs(), {"lives": 3}

    def step(self, action):
        self.at += float(self.np_random.normal()) + int(action)
        self.steps += 1
        over = self.steps >= self.length
        return self._obs(), np.float32(self.at), over and self.length % 2 == 0, over and self.length % 2 == 1, {}

    def _obs(self):
        return np.array([self.at, self.steps, self.length])


class Noise(Walk):
    """The same walk, seen as a picture."""

    observation_space = gym.spaces.Box(0, 255, (40, 30, 3), np.uint8)

    def _obs(self):
        return np.random.default_rng(int(abs(self.at) * 1e6) + self.steps).integers(0, 256, (40, 30, 3), np.uint8)


gym.register("ContractWalk-v0", Walk)
gym.register("ContractNoise-v0", Noise)

# Games are cut off early, so that a short test sees several ends, but not too many: ale-py takes 90 ms for a reset.
GAMES = {
    "breakout": {"max_episode_frames": 41, "episodic_life": True},
    "ContractWalk-v0": {},
    "ContractNoise-v0": {"frame_stack": 2, "screen_size": 36, "clip_rewards": False},
}
CASES = [(part, game) for game in GAMES for part in (*ANY_ENV, *(ATARI_ONLY if game == "breakout" else ()))]


@pytest.fixture(autouse=True)
def console_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the native console is not there yet, ale-py's vector environment, which has its interface, stands in."""
    try:
        from dqnitro.atari import AtariVec  # noqa: F401
    except ImportError:
        import ale_py

        stand_in = types.ModuleType("dqnitro.atari")
        stand_in.AtariVec = ale_py.AtariVectorEnv  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "dqnitro.atari", stand_in)


class Maker:
    """Makes parts and closes them all at the end, also when a test fails."""

    def __init__(self, part: str, game: str) -> None:
        self.config = Config(env_id=game, envs=part, n_envs=N_ENVS, seed=3, **GAMES[game])
        self.made: list[Envs] = []

    def __call__(self, **changes) -> Envs:
        self.made.append(envs_package.make_envs(self.config.replace(**changes)))
        return self.made[-1]


@pytest.fixture(params=CASES, ids=lambda case: "-".join(case))
def make(request: pytest.FixtureRequest) -> Iterator[Maker]:
    maker = Maker(*request.param)
    yield maker
    for made in maker.made:
        made.close()


def play(envs: Envs, actions: np.ndarray) -> list[Step]:
    steps = []
    for a in actions:
        envs.send(a)
        steps.append(envs.recv())
    return steps


def some_actions(envs: Envs, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, envs.spec.n_actions, (count, envs.spec.n_envs))


def assert_same(a: Step, b: Step) -> None:
    for name in ("obs_t", "reward_t", "terminated", "truncated", "reset"):
        x, y = getattr(a, name), getattr(b, name)
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y, err_msg=name)
    assert a.ends == b.ends


def test_shapes_and_types_are_those_of_the_spec(make: Maker) -> None:
    envs = make()
    spec = envs.spec
    assert isinstance(envs, Envs)
    assert spec.n_envs == N_ENVS
    first = envs.reset()
    step = play(envs, some_actions(envs, 1))[0]
    for obs in (first, step.obs_t):
        assert obs.shape == (N_ENVS, *spec.obs_shape)
        assert obs.dtype == spec.obs_dtype
    assert step.reward_t.shape == (N_ENVS,) and step.reward_t.dtype == np.float32
    for flags in (step.terminated, step.truncated, step.reset):
        assert flags.shape == (N_ENVS,) and flags.dtype == np.bool_
    if spec.is_image:
        assert spec.obs_shape == (make.config.frame_stack, make.config.screen_size, make.config.screen_size)
        assert spec.frame_stack == make.config.frame_stack
        assert spec.obs_dtype == np.uint8
    else:
        assert spec.frame_stack == 1
        assert spec.obs_dtype == np.float32
    assert spec.frames_per_step == (4 if make.config.env_id == "breakout" else 1)


def test_a_new_game_begins_in_the_tick_after_an_end_and_only_there(make: Maker) -> None:
    envs = make()
    first = envs.reset()
    steps = play(envs, some_actions(envs, 26))
    ended = np.zeros(N_ENVS, bool)
    games, length = 0, np.zeros(N_ENVS, int)
    for step in steps:
        np.testing.assert_array_equal(step.reset, ended)
        assert not (step.reset & (step.terminated | step.truncated)).any()
        assert not step.reward_t[step.reset].any()
        length = np.where(step.reset, 0, length + 1)
        ended = np.zeros(N_ENVS, bool)
        for end in step.ends:
            ended[end.env] = True
            assert end.steps == length[end.env]
        assert (step.terminated | step.truncated)[ended].all()
        assert not step.truncated[~ended].any()
        assert not (step.terminated & step.truncated).any()
        games += len(step.ends)
    assert games >= 4
    if envs.spec.is_image:
        for step in steps:
            assert not step.obs_t[step.reset][:, :-1].any(), "the stack of a new game begins with zeros"
        assert not first[:, :-1].any()


def test_the_action_of_a_reset_tick_is_ignored(make: Maker) -> None:
    a, b = make(), make()
    np.testing.assert_array_equal(a.reset(), b.reset())
    ended = np.zeros(N_ENVS, bool)
    ignored = 0
    for action in some_actions(a, 14):
        other = np.where(ended, (action + 1) % a.spec.n_actions, action)
        ignored += int(ended.sum())
        step = play(a, action[None])[0]
        assert_same(step, play(b, other[None])[0])
        ended = np.isin(np.arange(N_ENVS), [end.env for end in step.ends])
    assert ignored >= 2


def test_a_caller_may_reuse_its_action_array_at_once(make: Maker) -> None:
    a, b = make(), make()
    a.reset(), b.reset()
    buffer = np.empty(N_ENVS, np.int64)
    for action in some_actions(a, 5):
        a.send(action)
        buffer[:] = action
        b.send(buffer)
        buffer[:] = (action + 1) % b.spec.n_actions
        assert_same(a.recv(), b.recv())
    np.testing.assert_array_equal(a.get_state()["actions"], b.get_state()["actions"])


def test_an_observation_is_not_overwritten_by_the_next_step(make: Maker) -> None:
    envs = make()
    kept = [envs.reset()]
    copies = [kept[0].copy()]
    for step in play(envs, some_actions(envs, 3)):
        kept.append(step.obs_t)
        copies.append(step.obs_t.copy())
    for obs, copy in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(obs, copy)


def test_a_seed_decides_everything_and_another_seed_plays_another_game(make: Maker) -> None:
    a, b, other = make(), make(), make(seed=4)
    actions = some_actions(a, 14)
    a.reset(), b.reset(), other.reset()
    steps_a, steps_b, steps_other = (play(e, actions) for e in (a, b, other))
    for x, y in zip(steps_a, steps_b, strict=True):
        assert_same(x, y)
    assert any((x.obs_t != y.obs_t).any() for x, y in zip(steps_a, steps_other, strict=True))


def test_an_environment_plays_the_same_alone_as_in_company(make: Maker) -> None:
    alone, company = make(n_envs=1), make()
    actions = some_actions(company, 14)
    np.testing.assert_array_equal(alone.reset()[0], company.reset()[0])
    for x, y in zip(play(alone, actions[:, :1]), play(company, actions), strict=True):
        np.testing.assert_array_equal(x.obs_t[0], y.obs_t[0])
        assert x.reward_t[0] == y.reward_t[0]


def test_a_saved_state_continues_byte_for_byte_from_any_moment(make: Maker) -> None:
    whole = make()
    actions = some_actions(whole, 30, seed=1)
    obs = [whole.reset()]
    states = [whole.get_state()]
    steps = []
    for action in actions:
        steps += play(whole, action[None])
        states.append(whole.get_state())
        obs.append(steps[-1].obs_t)
    at_end = next(t + 1 for t, s in enumerate(steps) if s.ends)
    moments = {0, at_end, at_end + 1, int(np.random.default_rng(7).integers(1, 28))}
    resumed = make()
    for moment in sorted(moments, reverse=True):
        for name, array in states[moment].items():
            assert isinstance(array, np.ndarray) and array.dtype != object, name
        np.testing.assert_array_equal(resumed.set_state(states[moment]), obs[moment])
        for name, array in resumed.get_state().items():
            np.testing.assert_array_equal(array, states[moment][name])
        for x, y in zip(play(resumed, actions[moment : moment + 10]), steps[moment:], strict=False):
            assert_same(x, y)


def test_closing_twice_and_in_the_middle_of_a_step_is_fine(make: Maker) -> None:
    never_used, in_step = make(), make()
    never_used.close()
    in_step.reset()
    in_step.send(np.zeros(N_ENVS, np.int64))
    for envs in (never_used, in_step):
        envs.close()
        envs.close()


def test_a_reset_in_the_middle_of_a_step_begins_anew(make: Maker) -> None:
    envs = make()
    first = envs.reset()
    actions = some_actions(envs, 3)
    steps = play(envs, actions)
    envs.send(actions[0])
    np.testing.assert_array_equal(envs.reset(), first)
    for x, y in zip(play(envs, actions), steps, strict=True):
        assert_same(x, y)


def test_wrong_calls_say_so(make: Maker) -> None:
    envs = make()
    with pytest.raises(RuntimeError, match="after reset"):
        envs.send(np.zeros(N_ENVS, np.int64))
    envs.reset()
    with pytest.raises(RuntimeError, match="after send"):
        envs.recv()
    with pytest.raises(ValueError, match="actions must be in"):
        envs.send(np.full(N_ENVS, envs.spec.n_actions))
    with pytest.raises(ValueError, match="shape"):
        envs.send(np.zeros(N_ENVS + 1, np.int64))
    envs.send(np.zeros(N_ENVS, np.int64))
    with pytest.raises(RuntimeError, match="only once"):
        envs.send(np.zeros(N_ENVS, np.int64))
    with pytest.raises(RuntimeError, match="between send and recv"):
        envs.get_state()
    envs.recv()

"""`AtariVec` behind the interfaces of other libraries: the same games, and what each library expects of them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from dqnitro.atari import AtariVec, adapters

CUT = {"num_threads": 1, "max_num_frames_per_episode": 40}


def library(name: str, extra: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed; pip install -c constraints.txt -e '.[{extra}]'")


def test_stable_baselines3_sees_the_games_of_same_step_mode() -> None:
    library("stable_baselines3", "sb3")
    from dqnitro.atari.adapters import Sb3AtariVec

    ours, plain = Sb3AtariVec("breakout", 2, seed=5, **CUT), AtariVec("breakout", 2, autoreset_mode="SameStep", **CUT)
    np.testing.assert_array_equal(ours.reset(), plain.reset(seed=5)[0])
    ends = 0
    for step in range(25):
        actions = np.array([step % 4, 1])
        obs, reward, done, infos = ours.step(actions)
        expected = plain.step(actions)
        np.testing.assert_array_equal(obs, expected[0])
        assert reward.dtype == np.float32 and np.array_equal(reward, expected[1])
        assert np.array_equal(done, expected[2] | expected[3])
        for i in np.flatnonzero(done):
            np.testing.assert_array_equal(infos[i]["terminal_observation"], expected[4]["final_obs"][i])
            assert infos[i]["TimeLimit.truncated"] and infos[i]["episode"]["l"] == infos[i - 1]["episode"]["l"]
            ends += 1
    assert ends >= 4
    ours.seed(5)
    np.testing.assert_array_equal(ours.reset(), plain.reset(seed=5)[0])
    assert ours.get_attr("num_envs", 0) == [2] and ours.env_is_wrapped(object) == [False, False]
    ours.close()


def test_stable_baselines3_takes_the_policy_for_images() -> None:
    sb3 = library("stable_baselines3", "sb3")
    from stable_baselines3.common.policies import ActorCriticCnnPolicy

    from dqnitro.atari.adapters import Sb3AtariVec

    envs = Sb3AtariVec("pong", 1, num_threads=1)
    model = sb3.DQN("CnnPolicy", envs, buffer_size=50, learning_starts=4, batch_size=2, train_freq=1, device="cpu")
    model.learn(6)
    assert model._n_updates == 2 and model.get_env() is envs, "nothing was wrapped around it"
    assert ActorCriticCnnPolicy(envs.observation_space, envs.action_space, lambda _: 1e-4) is not None


@pytest.mark.parametrize("options", [{"batch_size": 1}, {"autoreset_mode": "NextStep"}])
def test_what_an_adapter_decides_itself_is_refused(options: dict[str, Any]) -> None:
    library("stable_baselines3", "sb3")
    from dqnitro.atari.adapters import Sb3AtariVec

    with pytest.raises(ValueError, match="hint: leave out"):
        Sb3AtariVec("pong", 2, **options)


def test_torchrl_finds_the_specs_right_and_resets_by_mask() -> None:
    library("torchrl", "torchrl")
    import torch
    from torchrl.envs.utils import check_env_specs

    from dqnitro.atari.adapters import TorchRLAtari

    env = TorchRLAtari("breakout", 2, seed=5, **CUT)
    check_env_specs(env)
    env.close()
    env, plain = TorchRLAtari("breakout", 2, seed=5, **CUT), AtariVec("breakout", 2, **CUT)
    state, ends = env.reset(), 0
    np.testing.assert_array_equal(state["pixels"], plain.reset(seed=5)[0])
    for step in range(25):
        actions = torch.tensor([step % 4, 1])
        after, state = env.step_and_maybe_reset(state.set("action", actions))
        obs, reward, terminated, truncated, _ = plain.step(actions.numpy())
        np.testing.assert_array_equal(after["next", "pixels"], obs)
        np.testing.assert_array_equal(after["next", "reward"][:, 0], reward)
        np.testing.assert_array_equal(after["next", "truncated"][:, 0], truncated)
        ended = terminated | truncated
        if ended.any():
            obs, _ = plain.reset(options={"reset_mask": ended})
            ends += 1
        np.testing.assert_array_equal(state["pixels"], obs)
    assert ends >= 2
    env.close()


def test_jax_sees_the_same_numbers_and_keeps_them() -> None:
    jax = library("jax", "jax")
    from dqnitro.atari.adapters import JaxAtari

    ours, plain = JaxAtari("breakout", 2, num_threads=1), AtariVec("breakout", 2, num_threads=1)
    obs, info = ours.reset(seed=5)
    expected = plain.reset(seed=5)[0]
    assert isinstance(obs, jax.Array) and isinstance(info["lives"], jax.Array)
    kept = [(obs, np.array(expected))]
    for step in range(12):
        actions = jax.numpy.array([step % 4, 1])
        obs, reward, *_ = ours.step(actions)
        again = plain.step(np.asarray(actions))
        kept.append((obs, np.array(again[0])))
        np.testing.assert_array_equal(reward, again[1])
    del obs
    for array, copy in kept:  # memory that is used again would show another picture here
        np.testing.assert_array_equal(array, copy)
    ours.close()


@pytest.mark.parametrize(
    ("adapter", "module", "install"),
    [
        ("Sb3AtariVec", "stable_baselines3", "stable-baselines3"),
        ("TorchRLAtari", "torchrl", "torchrl"),
        ("JaxAtari", "jax", "jax"),
    ],
)
def test_a_library_that_is_missing_is_one_line(
    adapter: str, module: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = {"Sb3AtariVec": "sb3", "TorchRLAtari": "torchrl", "JaxAtari": "jax"}[adapter]
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"dqnitro.atari.adapters.{file}", raising=False)
    with pytest.raises(ImportError, match=f"^{adapter} needs .*, which is not installed. hint: pip install {install}$"):
        getattr(adapters, adapter)


def test_another_name_is_no_adapter() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        adapters.Nothing  # noqa: B018

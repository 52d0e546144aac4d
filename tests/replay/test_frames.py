"""The frame ring beside the list: same draws, same batches, through seams, ends, lost lives and time limits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.replay import check_memory, make_replay
from dqnitro.replay.frames import FrameReplay
from dqnitro.replay.plain import PlainReplay
from support import fakes


def same(a, b) -> None:
    for name in ("obs_tm1", "action_tm1", "reward_t", "discount_t", "weight"):
        assert torch.equal(getattr(a, name), getattr(b, name)), name
    alive = a.discount_t != 0  # behind an end, obs_t is multiplied by zero and may be anything
    assert torch.equal(a.obs_t[alive], b.obs_t[alive])


@settings(max_examples=40, deadline=None)
@given(
    n_envs=st.integers(1, 4), stack=st.integers(1, 4), n_step=st.integers(1, 5), seed=st.integers(0, 10_000),
    per_env=st.integers(8, 30), ticks=st.integers(12, 150), channels=st.sampled_from([1, 3]),
)  # fmt: skip
def test_frames_returns_the_batches_of_the_list(n_envs, stack, n_step, seed, per_env, ticks, channels):
    stream = fakes.Stream(n_envs, stack, seed, channels=channels)
    spec = stream.spec
    plain, frames = (kind(per_env * n_envs, spec, n_step, 0.9) for kind in (PlainReplay, FrameReplay))
    for replay in (plain, frames):
        replay.start(stream.obs)
    a, b = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(ticks):
        actions, step = stream.step()
        plain.add(actions, step)
        frames.add(actions, step)
        assert len(plain) == len(frames)
        if len(plain) > 2 * n_envs:
            same(plain.sample(16, a, 1.0).batch, frames.sample(16, b, 1.0).batch)


@pytest.mark.parametrize("n_step", [1, 3])
def test_channels_last_stacks_differ_only_in_memory_order(n_step):
    stream = fakes.Stream(3, 4, 5)
    plain, last = (FrameReplay(60, stream.spec, n_step, 0.9, "cpu", wish) for wish in (False, True))
    for replay in (plain, last):
        replay.start(stream.obs)
    a, b = np.random.default_rng(1), np.random.default_rng(1)
    blank = 0
    for _ in range(150):  # round the ring twice
        actions, step = stream.step()
        plain.add(actions, step)
        last.add(actions, step)
        if len(plain) > 10:
            x, y = plain.sample(16, a).batch, last.sample(16, b).batch
            assert all(torch.equal(u, v) for u, v in zip(x, y, strict=True))
            assert y.obs_tm1.stride() == (16, 1, 8, 4) and x.obs_tm1.is_contiguous()
            blank += int((x.obs_tm1[:, 0] == 0).all((1, 2)).sum())
    assert blank > 100, "no stack reached over the start of a game"


@pytest.mark.parametrize("n_step", [1, 3])
def test_compiled_batches_of_vectors_are_those_of_the_list(n_step):
    spec = fakes.EnvSpec(3, 4, (2, 3), np.dtype(np.float32), 1, 1, False)
    stream = fakes.Stream(3, 1, 5)  # of its steps only the observations are replaced
    rng, a, b = (np.random.default_rng(1) for _ in range(3))
    plain, compiled = PlainReplay(60, spec, n_step, 0.9), FrameReplay(60, spec, n_step, 0.9, compiled=True)
    first = rng.random((3, 2, 3), np.float32)
    for replay in (plain, compiled):
        replay.start(first)
    cut = 0
    for _ in range(150):  # round the ring twice
        actions, step = stream.step()
        step = step._replace(obs_t=rng.random((3, 2, 3), np.float32))
        cut += int(step.truncated.sum())
        plain.add(actions, step)
        compiled.add(actions, step)
        if len(plain) > 10:
            same(plain.sample(16, a).batch, compiled.sample(16, b).batch)
    assert cut > 0, "no game was cut off"


def test_channels_last_is_ignored_where_it_is_not_supported():
    for stack in (1, 2, 3):
        spec = fakes.spec(1, stack) if stack > 1 else fakes.EnvSpec(1, 4, (1, 2, 2), np.dtype(np.uint8), 1, 4, True)
        replay = FrameReplay(10, spec, 1, 0.9, "cpu", channels_last=True)
        assert replay.gather(np.zeros(2, int), np.zeros(2, int)).obs_tm1.is_contiguous()


def test_channels_last_comes_from_either_replay():
    for prioritized in (False, True):
        config = Config(
            env_id="pong", replay="frames", replay_capacity=100, first_fill_steps=50, prioritized=prioritized
        )
        for last, strides in ((False, (16, 4, 2, 1)), (True, (16, 1, 8, 4))):
            replay = make_replay(config, fakes.spec(1, 4), "cpu", channels_last=last)
            assert isinstance(replay, FrameReplay)
            assert replay.gather(np.zeros(2, int), np.zeros(2, int)).obs_tm1.stride() == strides


def test_n_step_sums_by_hand_across_the_seam():
    replay = FrameReplay(6, fakes.spec(1, 2), 3, 0.5)
    frame = 0

    def obs():
        return np.full((1, 2, 2, 2), frame, np.uint8)

    replay.start(obs())
    for frame in range(1, 40):
        false = np.zeros(1, bool)
        replay.add(np.array([frame % 4]), fakes.Step(obs(), np.array([frame], np.float32), false, false, false, ()))
        head = int(replay._head[0])
        if head < 9:
            continue
        for position in range(head - 8, head - 2):
            batch = replay.gather(np.array([0]), np.array([position]))
            first = position + 1  # the reward of the step from `position` was position + 1
            assert batch.reward_t.item() == first + 0.5 * (first + 1) + 0.25 * (first + 2)
            assert batch.discount_t.item() == 0.125
            assert batch.obs_tm1[0, :, 0, 0].tolist() == [position - 1, position]
            assert batch.obs_t[0, :, 0, 0].tolist() == [position + 2, position + 3]


def test_a_time_limit_bootstraps_from_the_final_observation_and_an_end_does_not():
    for truncated in (True, False):
        replay = FrameReplay(50, fakes.spec(1, 2), 3, 0.5)
        replay.start(np.full((1, 2, 2, 2), 10, np.uint8))
        no, yes = np.zeros(1, bool), np.ones(1, bool)
        for i, (term, trunc, reset) in enumerate(
            [(no, no, no), (no if truncated else yes, yes if truncated else no, no), (no, no, yes)] + [(no, no, no)] * 5
        ):
            obs = np.full((1, 2, 2, 2), 11 + i, np.uint8)
            replay.add(
                np.array([0]), fakes.Step(obs, np.array([0.0 if reset[0] else 1.0], np.float32), term, trunc, reset, ())
            )
        batch = replay.gather(np.array([0]), np.array([0]))
        assert batch.reward_t.item() == 1.5
        assert batch.discount_t.item() == (0.25 if truncated else 0.0)
        if truncated:
            assert batch.obs_t[0, -1, 0, 0].item() == 12


@pytest.mark.parametrize("kind", [PlainReplay, FrameReplay])
@pytest.mark.parametrize("ticks", [0, 1, 7, 60])
def test_a_restored_replay_goes_on_as_the_saved_one(kind, ticks):
    stream = fakes.Stream(3, 4, 5)
    one = kind(60, stream.spec, 2, 0.9)
    one.start(stream.obs)
    for _ in range(ticks):
        one.add(*stream.step())
    two = kind(60, stream.spec, 2, 0.9)
    two.set_state({k: np.array(v) for k, v in one.get_state().items()})
    a, b = np.random.default_rng(1), np.random.default_rng(1)
    for _ in range(50):
        actions, step = stream.step()
        one.add(actions, step)
        two.add(actions, step)
        if len(one) > 6:
            same(one.sample(8, a, 1.0).batch, two.sample(8, b, 1.0).batch)


def test_frames_takes_at_most_7300_bytes_a_transition():
    spec = fakes.EnvSpec(1, 6, (4, 84, 84), np.dtype(np.uint8), 4, 4, True)
    assert FrameReplay(10_000, spec, 3, 0.99).bytes_per_transition < 7300


def test_a_capacity_that_does_not_fit_is_refused_with_the_number():
    with pytest.raises(ConfigError, match=r"65\.8 GiB.*hint: --replay-capacity \d+ fits"):
        check_memory(7064 * 10_000_000, 24 * 2**30, 10_000_000, "main")
    spec = fakes.EnvSpec(1, 6, (4, 84, 84), np.dtype(np.uint8), 4, 4, True)
    with pytest.raises(ConfigError, match="GiB of main memory"):
        make_replay(Config(replay_capacity=10**9), spec, "cpu", channels_last=False)

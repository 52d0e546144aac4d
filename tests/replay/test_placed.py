"""The replay whose samples are places: the batches of the list, draw by draw, put together from what was copied."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.replay import make_replay
from dqnitro.replay.frames import FrameReplay
from dqnitro.replay.placed import PIECES, Outbox, PlacedReplay, fields_in, n_bytes
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
def test_places_are_those_of_the_lists_batches(n_envs, stack, n_step, seed, per_env, ticks, channels):
    stream = fakes.Stream(n_envs, stack, seed, channels=channels)
    plain = PlainReplay(per_env * n_envs, stream.spec, n_step, 0.9)
    placed = PlacedReplay(per_env * n_envs, stream.spec, n_step, 0.9, "cpu", 16)
    for replay in (plain, placed):
        replay.start(stream.obs)
    a, b = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(ticks):
        actions, step = stream.step()
        plain.add(actions, step)
        placed.add(actions, step)
        assert len(plain) == len(placed)
        if len(plain) > 2 * n_envs:
            same(plain.sample(16, a, 1.0).batch, placed.sample(16, b, 1.0).batch.fetch())


@pytest.mark.parametrize("n_envs", [1, 3])
def test_its_state_is_that_of_frames_and_goes_on_in_either(n_envs):
    stream = fakes.Stream(n_envs, 4, 5)
    frames, placed = FrameReplay(60, stream.spec, 2, 0.9), PlacedReplay(60, stream.spec, 2, 0.9, "cpu", 8)
    for replay in (frames, placed):
        replay.start(stream.obs)
    for _ in range(90):
        actions, step = stream.step()
        frames.add(actions, step)
        placed.add(actions, step)
    one, two = ({k: np.array(v) for k, v in r.get_state().items()} for r in (frames, placed))
    assert one.keys() == two.keys() and all(np.array_equal(one[k], two[k]) for k in one)
    again = PlacedReplay(60, stream.spec, 2, 0.9, "cpu", 8)
    again.set_state(one)
    a, b = np.random.default_rng(1), np.random.default_rng(1)
    blank = 0
    for _ in range(50):
        actions, step = stream.step()
        frames.add(actions, step)
        again.add(actions, step)
        x, y = frames.sample(8, a).batch, again.sample(8, b).batch.fetch()
        same(x, y)
        blank += int((y.obs_tm1[:, 0] == 0).all((1, 2)).sum())
    assert blank > 10, "no stack reached over the start of a game"


def test_vectors_are_placed_as_well():
    spec = fakes.EnvSpec(3, 4, (2, 3), np.dtype(np.float32), 1, 1, False)
    stream = fakes.Stream(3, 1, 5)  # of its steps only the observations are replaced
    rng, a, b = (np.random.default_rng(1) for _ in range(3))
    plain, placed = PlainReplay(60, spec, 3, 0.9), PlacedReplay(60, spec, 3, 0.9, "cpu", 16)
    first = rng.random((3, 2, 3), np.float32)
    for replay in (plain, placed):
        replay.start(first)
    for _ in range(150):
        actions, step = stream.step()
        step = step._replace(obs_t=rng.random((3, 2, 3), np.float32))
        plain.add(actions, step)
        placed.add(actions, step)
        if len(plain) > 10:
            same(plain.sample(16, a).batch, placed.sample(16, b).batch.fetch())


def test_a_sample_says_in_a_few_kilobytes_where_its_frames_lie():
    spec = fakes.EnvSpec(1, 6, (4, 84, 84), np.dtype(np.uint8), 4, 4, True)
    placed = PlacedReplay(10_000, spec, 1, 0.99, "cpu", 32)
    assert placed.drawn.memory.numel() < 3_000 < 32 * 8 * 84 * 84
    where = placed.drawn.memory.data_ptr()
    placed.start(np.ones((1, 4, 84, 84), np.uint8))
    placed.place(np.zeros(32, int), np.zeros(32, int))
    batch = placed.drawn.fetch()
    assert placed.drawn.memory.data_ptr() == where, "a graph knows it by address"
    assert batch.obs_tm1.shape == (32, 4, 84, 84) and batch.obs_tm1.dtype == torch.uint8


def test_an_outbox_uses_its_pieces_in_turn():
    """The host may be many steps ahead of a GPU's copies: what was sent must not be overwritten at once."""
    fields = ((torch.float32, (3,)), (torch.int64, (2,)))
    box, there = Outbox(fields, torch.device("cpu")), torch.zeros(n_bytes(fields), dtype=torch.uint8)
    opened = []
    for k in range(2 * PIECES):
        floats, ints = box.open()
        opened.append(floats)
        floats[:], ints[:] = k, -k
        box.send(there)
        got = fields_in(there, fields)
        assert got[0].tolist() == [k] * 3 and got[1].tolist() == [-k] * 2
    assert len({x.ctypes.data for x in opened}) == PIECES
    assert [x[0] for x in opened[:PIECES]] == list(range(PIECES, 2 * PIECES))


def test_what_it_does_not_fit_is_refused():
    with pytest.raises(ConfigError, match="made of the replay frames, got plain; hint: use --replay frames"):
        make_replay(Config(replay="plain"), fakes.spec(1, 4), "cpu", channels_last=False, placed=True)

"""`AtariVec` as a thing to use: send and recv, partial resets, saved states, what is reused, what is refused."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import ale_py
import numpy as np
import pytest
from ale_py import AtariVectorEnv

from dqnitro.atari import AtariVec
from dqnitro.atari.vector.batch import Buffers

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


def equal(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            equal(a[key], b[key])
    elif isinstance(a, tuple):
        for x, y in zip(a, b, strict=True):
            equal(x, y)
    else:
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def both(game: str, n: int, **options: Any) -> tuple[AtariVec, AtariVectorEnv]:
    return AtariVec(game, n, num_threads=1, **options), AtariVectorEnv(game, n, num_threads=1, **options)


# ---- send and recv


def test_send_and_recv_are_step_in_two_halves() -> None:
    ours, theirs = both("breakout", 3)
    equal(ours.reset(seed=1), theirs.reset(seed=1))
    for k in range(20):
        actions = np.full(3, k % 4)
        ours.send(actions)
        theirs.send(actions)
        actions[:] = 99  # the caller's array is its own again after send
        equal(ours.recv(), theirs.recv())


def test_two_sends_then_two_recvs_are_two_steps() -> None:
    """(ale-py lets the second action overtake the first here.) Two threads must not work on one machine at once."""
    one, two = AtariVec("breakout", 8, num_threads=2), AtariVec("breakout", 8, num_threads=2)
    equal(one.reset(seed=1), two.reset(seed=1))
    for k in range(10):
        first, second = np.full(8, k % 4), np.full(8, k % 3)
        one.send(first)
        one.send(second)
        equal(one.recv(), two.step(first))
        equal(one.recv(), two.step(second))


def test_steps_and_sends_in_turn_with_threads_are_those_of_one_thread() -> None:
    """After a send all threads are awake when the caller of a step begins to work as well."""
    one, many = AtariVec("breakout", 9, num_threads=1), AtariVec("breakout", 9, num_threads=3)
    for turn in range(60):
        if turn % 20 == 0:
            equal(many.reset(seed=turn), one.reset(seed=turn))
        actions = np.arange(9) * turn % 4
        many.send(actions)
        equal(many.recv(), one.step(actions))
        equal(many.step(actions), one.step(actions))
    one.close()
    many.close()


@pytest.mark.parametrize(("n", "batch"), [(4, 2), (5, 2), (3, 1)])
def test_smaller_batches_come_in_order(n: int, batch: int) -> None:
    """With one thread ale-py answers first come, first served; ours does so with any number."""
    ours, theirs = both("breakout", n, batch_size=batch)
    equal(ours.reset(seed=1), theirs.reset(seed=1))
    for k in range(25):
        actions = np.arange(batch) % 4 + k % 2
        equal(ours.step(actions), theirs.step(actions))


def test_send_returns_before_the_work_is_done() -> None:
    env = AtariVec("pong", 64, num_threads=1)
    env.reset(seed=0)
    env.step(np.zeros(64, np.int64))
    whole, mine = time.process_time(), time.thread_time()
    env.send(np.zeros(64, np.int64))
    mine = time.thread_time() - mine
    deadline = time.monotonic() + 60
    while not env._flight[0].job.done and time.monotonic() < deadline:
        time.sleep(0.001)
    assert env._flight[0].job.done, "without `recv` nobody worked"
    assert mine < (time.process_time() - whole) / 2, "send worked in the caller"
    env.recv()
    assert any(t.name.startswith("atari-") for t in threading.enumerate())
    env.close()


def test_one_thread_steps_in_the_caller() -> None:
    before = threading.active_count()
    env = AtariVec("pong", 3, num_threads=1)
    env.reset(seed=0)
    env.step(np.zeros(3, np.int64))
    assert threading.active_count() == before, "nothing was sent, so no thread was needed"
    env.send(np.zeros(3, np.int64))
    assert threading.active_count() == before + 1
    env.recv()
    env.close()
    assert threading.active_count() == before


def test_new_games_are_handed_out_first() -> None:
    """They take as long as many steps: taken last, they would keep everybody waiting."""
    env = AtariVec("breakout", 6, num_threads=2, episodic_life=True)
    env.reset(seed=1)
    actions, seen = np.ones(6, np.int64), 0
    for _ in range(120):
        _, _, terminated, truncated, _ = env.step(actions)
        ended = terminated | truncated
        batch = env._batch_of(actions)
        order = batch.tasks.order.tolist()
        assert sorted(order) == list(range(6)) and batch.long == ended.sum()
        assert set(order[: batch.long]) == set(np.flatnonzero(ended).tolist())
        seen += batch.long
    assert seen > 0
    env.close()


def test_an_environment_that_nobody_closed_lets_the_interpreter_end() -> None:
    code = """
import numpy as np
from dqnitro.atari import AtariVec
env = AtariVec("pong", 4, num_threads=2)
env.reset(seed=0)
env.step(np.zeros(4, np.int64))
env.send(np.zeros(4, np.int64))
kept = [env]
kept.append(kept)  # only the end of the interpreter finds it
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=300).returncode == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_steps_and_sends() -> None:
    """Threads stay behind in the parent; the child starts its own."""
    env = AtariVec("pong", 4, num_threads=2)
    env.reset(seed=0)
    actions = np.array([0, 1, 2, 3])
    env.step(actions)
    state = env.get_state()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            env.step(actions)
            env.send(actions)
            env.recv()
            env.close()
            status = 0
        finally:
            os._exit(status)
    assert wait_for(child, within_s=300) == 0
    env.set_state(state)
    env.step(actions)
    env.close()


def wait_for(child: int, within_s: float) -> int:
    """Exit status of a child; -1 if it hangs."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -1


# ---- resets


def test_partial_resets_equal_ale() -> None:
    ours, theirs = both("breakout", 4)
    equal(ours.reset(seed=1), theirs.reset(seed=1))
    rng = np.random.default_rng(0)
    for k in range(12):
        actions = rng.integers(0, 4, 4)
        equal(ours.step(actions), theirs.step(actions))
        mask = rng.random(4) < 0.5
        seed = [None, int(rng.integers(1000)), rng.integers(-1, 50, int(mask.sum()))][k % 3]
        options = {"reset_mask": mask}
        equal(ours.reset(seed=seed, options=options), theirs.reset(seed=seed, options=options))


@pytest.mark.parametrize("seed", [7, np.array([5, 5, 9]), None], ids=str)
def test_later_resets_equal_ale(seed: Any) -> None:
    ours, theirs = both("seaquest", 3)
    equal(ours.reset(seed=1), theirs.reset(seed=1))
    for _ in range(5):
        equal(ours.step(np.array([1, 2, 3])), theirs.step(np.array([1, 2, 3])))
    equal(ours.reset(seed=seed), theirs.reset(seed=seed))


def test_first_reset_without_a_seed_differs_between_environments() -> None:
    frames = AtariVec("breakout", 32).reset()[1]["frame_number"]
    assert len(set(frames.tolist())) > 5


# ---- states


@pytest.mark.parametrize("game", ["breakout", "seaquest", "pitfall2", "klax", "tetris"])
def test_a_restored_environment_goes_on_byte_for_byte(game: str, tmp_path: Any) -> None:
    options = {"repeat_action_probability": 0.25, "max_num_frames_per_episode": 90}
    env = AtariVec(game, 3, **options)
    env.reset(seed=11)
    rng = np.random.default_rng(1)
    actions = rng.integers(0, env.single_action_space.n, (60, 3))  # type: ignore[attr-defined]
    for k in range(17):
        env.step(actions[k])
    np.savez(tmp_path / "state.npz", **env.get_state())
    there = [env.step(actions[k]) for k in range(17, 60)]
    other = AtariVec(game, 3, **options)
    other.set_state(dict(np.load(tmp_path / "state.npz")))
    for k in range(17, 60):
        equal(other.step(actions[k]), there[k - 17])
    assert any((r[2] | r[3]).any() for r in there), "no episode ended after the restore"


def test_restore_in_the_middle_of_smaller_batches() -> None:
    env, other = AtariVec("pong", 5, batch_size=2), AtariVec("pong", 5, batch_size=2)
    env.reset(seed=1)
    env.step(np.array([1, 2]))
    while env._flight:
        env.recv()
    state = env.get_state()
    other.set_state(state)
    for _ in range(7):
        env.send(np.array([3, 4]))
        other.send(np.array([3, 4]))
        if env._flight:
            equal(env.recv(), other.recv())


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("pong", {}),
        ("qbert", {}),  # machines that keep their screens
        ("breakout", {"autoreset_mode": "SameStep", "max_num_frames_per_episode": 300}),
    ],
)
def test_parts_that_share_threads_play_what_all_together_play(game: str, options: dict[str, Any]) -> None:
    """Each part has a step under way while the others are received; its states are those of an environment of its
    size.
    """
    whole, parts = AtariVec(game, 6, num_threads=2, **options), AtariVec(game, 6, num_threads=2, **options).split(3)
    obs, _ = whole.reset(seed=3)
    for k, part in enumerate(parts):
        assert part.num_envs == 2 and part.observation_space.shape == (2, 4, 84, 84)
        assert np.array_equal(part.reset(seed=3 + 2 * k)[0], obs[2 * k : 2 * k + 2])
    actions = np.random.default_rng(0).integers(0, 4, (150, 6))
    for k, part in enumerate(parts):
        part.send(actions[0, 2 * k : 2 * k + 2])
    finals = 0
    for t in range(150):
        expected = whole.step(actions[t])
        for k, part in enumerate(parts):
            mine, got = slice(2 * k, 2 * k + 2), part.recv()
            for x, y in zip(expected[:4], got[:4], strict=True):
                assert np.array_equal(x[mine], y), (t, k)
            for key in ("lives", "frame_number", "episode_frame_number"):
                assert np.array_equal(expected[4][key][mine], got[4][key])
            assert got[4]["env_id"].tolist() == [0, 1]
            if "final_obs" in got[4]:
                finals += 1
                assert np.array_equal(expected[4]["final_obs"][mine], got[4]["final_obs"])
            if t < 149:
                part.send(actions[t + 1, mine])
    assert finals > 3 or "autoreset_mode" not in options
    alone = AtariVec(game, 2, num_threads=1, **options)
    alone.set_state(parts[1].get_state())
    equal(alone.step(actions[0, :2]), parts[1].step(actions[0, :2]))
    parts[0].close()
    parts[1].step(actions[0, :2])  # the threads come back for who is left
    before = parts[2].get_state()
    alone.reset(seed=9)
    parts[1].split(2)[1].reset(seed=10)  # a part of a part: the fourth machine of all
    assert np.array_equal(parts[1].get_state()["ram"][1], alone.get_state()["ram"][1])
    assert all(np.array_equal(x, before[key]) for key, x in parts[2].get_state().items())
    for env in (*parts, whole, alone):
        env.close()


def test_parts_that_cannot_be_are_refused() -> None:
    for env, parts in ((AtariVec("pong", 4), 3), (AtariVec("pong", 4, batch_size=2), 2), (AtariVec("pong", 4), 0)):
        with pytest.raises(ValueError, match="hint: equal parts"):
            env.split(parts)


def test_states_of_other_environments_are_refused() -> None:
    state = AtariVec("pong", 2).get_state()
    with pytest.raises(ValueError, match="hint"):
        AtariVec("breakout", 2).set_state(state)
    with pytest.raises(ValueError, match="hint"):
        AtariVec("pong", 2, frameskip=2).set_state(state)
    with pytest.raises(ValueError, match="num_envs"):
        AtariVec("pong", 3).set_state(state)


def test_state_while_stepping_is_refused() -> None:
    env = AtariVec("pong", 2)
    env.reset(seed=1)
    env.send(np.array([0, 0]))
    with pytest.raises(RuntimeError, match=r"recv\(\) first"):
        env.get_state()
    env.recv()


# ---- the footgun: memory that is used again


def test_an_observation_that_is_kept_never_changes() -> None:
    env = AtariVec("breakout", 2)
    kept = [env.reset(seed=1)[0]]
    copies = [kept[0].copy()]
    for k in range(30):
        obs = env.step(np.array([k % 4, 1]))[0]
        kept.append(obs[1, 2:] if k % 2 else obs)  # a view must protect the array as well
        copies.append(kept[-1].copy())
    for a, b in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_observation_that_nobody_keeps_is_used_again() -> None:
    """Otherwise every step would pay for fresh pages."""
    env = AtariVec("breakout", 2)
    env.reset(seed=1)
    places = set()
    for _ in range(20):
        places.add(env.step(np.array([0, 1]))[0].ctypes.data)
    gc.collect()
    assert len(places) <= 2


def test_changing_an_observation_does_not_change_the_next() -> None:
    ours, theirs = both("breakout", 2)
    equal(ours.reset(seed=1), theirs.reset(seed=1))
    for _ in range(6):
        a, b = ours.step(np.array([2, 3])), theirs.step(np.array([2, 3]))
        equal(a, b)
        a[0][:] = 77
        a[4]["lives"][:] = 0


def test_buffers_count_references() -> None:
    buffers = Buffers((4,))
    first = buffers.take()
    view = first[1:]
    assert buffers.take() is not first
    del first
    assert view.base is not buffers.take(), "a view is still held"
    del view
    gc.collect()
    assert len(buffers._made) <= 3


# ---- what is refused


def test_wrong_use_is_refused_with_a_hint() -> None:
    with pytest.raises(KeyError, match="did you mean"):
        AtariVec("breakot", 1)
    with pytest.raises(Exception, match="frameskip"):
        AtariVec("pong", 1, frameskip=0)
    with pytest.raises(ValueError, match="hint"):
        AtariVec("pong", 2, batch_size=3)
    with pytest.raises(ValueError, match="autoreset_mode"):
        AtariVec("pong", 1, autoreset_mode="Disabled")
    env = AtariVec("pong", 2)
    with pytest.raises(RuntimeError, match=r"reset\(\) first"):
        env.step(np.array([0, 0]))
    with pytest.raises(RuntimeError, match="first reset"):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action_space"):
        env.step(np.array([0, 6]))
    with pytest.raises(AssertionError, match="shape"):
        env.step(np.array([0]))
    with pytest.raises(RuntimeError, match=r"without a send"):
        env.recv()
    with pytest.raises(TypeError, match="seed"):
        env.reset(seed=2**31)
    with pytest.raises(TypeError, match="boolean"):
        env.reset(options={"reset_mask": [True, False]})

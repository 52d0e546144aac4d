"""`AtariVec` in the hands of its users: lists and tensors, Ctrl-C, environments that nobody closes, ale-py's errors."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch
from ale_py.vector_env import AtariVectorEnv
from gymnasium.error import ClosedEnvironmentError

from dqnitro.atari import AtariVec
from dqnitro.atari.vector import state_check


@pytest.mark.parametrize("make", [list, tuple, torch.tensor, lambda a: np.array(a, np.uint8)])
def test_actions_may_be_lists_tensors_and_small_integers(make: Any) -> None:
    one, two = AtariVec("breakout", 3, num_threads=1), AtariVec("breakout", 3, num_threads=1)
    one.reset(seed=1), two.reset(seed=1)
    for k in range(5):
        actions = [k % 4, 1, 3]
        assert np.array_equal(one.step(make(actions))[0], two.step(np.array(actions))[0])


def test_continuous_actions_may_be_lists_but_must_be_finite() -> None:
    env = AtariVec("breakout", 1, continuous=True)
    env.reset(seed=1)
    env.step([[1.0, 0.5, 1.0]])
    for bad in ([[np.nan, 0, 0]], [[1e30, 0, 0]], [[1.0, 0.0]], [["a", 0, 0]]):
        with pytest.raises(ValueError, match="actions"):
            env.step(bad)


def test_a_closed_environment_refuses_everything_but_close() -> None:
    env = AtariVec("pong", 2)
    env.reset(seed=1)
    state = env.get_state()
    env.close()
    env.close()
    zeros = np.zeros(2, np.int64)
    for call in (env.reset, env.recv, env.get_state, lambda: env.step(zeros), lambda: env.send(zeros),
                 lambda: env.set_state(state), lambda: env.put_state(0, state), lambda: env.split(2)):  # fmt: skip
        with pytest.raises(ClosedEnvironmentError, match="hint"):
            call()


@pytest.mark.parametrize("split", [False, True])
def test_an_environment_that_is_dropped_ends_its_threads(split: bool) -> None:
    gc.collect()
    before = threading.active_count()
    env: Any = AtariVec("pong", 4, num_threads=2)
    users = env.split(2) if split else [env]
    for user in users:
        user.reset(seed=1)
        user.send(np.zeros(user.num_envs, np.int64))
    assert threading.active_count() > before
    del env, user
    while users:
        assert threading.active_count() > before, "the threads ended while somebody needed them"
        users.pop()
        gc.collect()
    assert threading.active_count() == before


def interrupted(call: Any) -> float:
    """Seconds from a Ctrl-C in the middle of a call to its KeyboardInterrupt."""
    sent = [0.0]

    def send() -> None:
        time.sleep(0.3)
        sent[0] = time.monotonic()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        call()
    took = time.monotonic() - sent[0]
    thread.join()
    return took


def test_ctrl_c_ends_a_reset_with_long_no_op_starts() -> None:
    """All of it takes minutes; a thread only finishes the game that it has begun."""
    env = AtariVec("pong", 400, num_threads=2, noop_max=10_000)
    assert interrupted(lambda: env.reset(seed=1)) < 30
    with pytest.raises(RuntimeError, match=r"reset\(\) first"):
        env.step(np.zeros(400, np.int64))
    env.close()


def test_a_patient_environment_plays_the_same_games() -> None:
    """Its caller waits in Python, and the results are those of a caller that works."""
    patient, usual = (
        AtariVec("pong", 3, num_threads=2, noop_max=1000),
        AtariVec("pong", 3, num_threads=2, noop_max=1000),
    )
    usual._pool.patient = usual._patient = False
    for a, b in ((patient.reset(seed=5), usual.reset(seed=5)),
                 *((patient.step([1, 2, 3]), usual.step([1, 2, 3])) for _ in range(5))):  # fmt: skip
        assert np.array_equal(a[0], b[0])


MASKS: dict[str, Any] = {
    "none": None, "one": np.array([True, False, False]), "all": np.ones(3, bool), "list": [True, False, False],
    "ints": np.array([1, 0, 0]), "short": np.ones(2, bool),
}  # fmt: skip
SEEDS: dict[str, Any] = {
    "none": None, "int": 5, "one": np.array([7]), "three": np.array([1, 2, 3]), "list": [1, 2, 3], "word": "x",
    "large": 2**31,
}  # fmt: skip

# mask, seed, batch size, and the words that both errors have (empty: the kind of error must do). All 42 pairs agree as
# well; making an AtariVectorEnv takes half a second.
MISUSE = [
    ("one", "three", 0, "one entry per sub-environment"),
    ("one", "list", 0, "Unsupported seed type"),
    ("list", "none", 0, "must be a boolean numpy array"),
    ("ints", "none", 0, "must be a boolean numpy array"),
    ("short", "three", 0, "must have shape (3,)"),
    ("one", "none", 2, "batch_size < num_envs"),
    ("all", "large", 0, ""),
]
FIRST_RESET = [("one", "none", 0, "must reset every environment")]


def outcome(env: Any, first: bool, seed: Any, mask: Any) -> tuple[str, str]:
    """The name of the error and what it says; two empty strings without one."""
    try:
        if first:
            env.reset(seed=1)
        env.reset(seed=seed, options=None if mask is None else {"reset_mask": mask})
    except Exception as error:
        return type(error).__name__, str(error)
    finally:
        env.close()
    return "", ""


@pytest.mark.parametrize("first", [False, True], ids=["never reset", "reset before"])
def test_misuse_of_reset_raises_what_ale_raises(first: bool) -> None:
    different = []
    for mask, seed, batch_size, words in MISUSE if first else FIRST_RESET:
        what = first, SEEDS[seed], MASKS[mask]
        ours, says = outcome(AtariVec("pong", 3, num_threads=1, batch_size=batch_size), *what)
        theirs, said = outcome(AtariVectorEnv("pong", 3, num_threads=1, batch_size=batch_size), *what)
        if ours != theirs or not ours or words not in says or words not in said:
            different.append((mask, seed, batch_size, ours, says, theirs, said))
    assert different == []


@pytest.mark.parametrize(
    "actions", [np.zeros(3), np.zeros(2, np.int64), 1, torch.zeros(3)], ids=["floats", "two", "one", "float tensor"]
)
def test_actions_that_ale_asserts_against_are_refused_with_words(actions: Any) -> None:
    ours, theirs = AtariVec("pong", 3, num_threads=1), AtariVectorEnv("pong", 3, num_threads=1)
    for env in (ours, theirs):
        env.reset(seed=1)
        with pytest.raises(AssertionError) as caught:
            env.step(actions)
        env.close()
        assert env is theirs or "actions must" in str(caught.value)


def test_states_of_many_games_are_within_the_bounds() -> None:
    """A bound that is too narrow would refuse a state that is right."""
    for k, game in enumerate(("pitfall2", "qbert", "tetris", "asteroids", "breakout", "skiing", "montezuma_revenge")):
        env = AtariVec(game, 2, num_threads=1, repeat_action_probability=0.25, frameskip=1 + k % 4)
        env.reset(seed=k)
        for step in range(40):
            env.step(np.array([step % 3, 2]))
            if step % 8 == 0:
                env.set_state(env.get_state())
        env.close()


def test_every_number_of_a_console_has_bounds() -> None:
    assert "" not in state_check.NAMES and (state_check.LOW <= state_check.HIGH).all()


@pytest.mark.parametrize(
    ("key", "place", "value", "says"),
    [
        ("state", (0, state_check.layout.S_BUFFER), 2, "S_BUFFER"),
        ("state", (1, state_check.layout.S_BANK), 4096, "S_BANK"),
        ("state", (0, state_check.layout.S_LOGGED), 1025, "S_LOGGED"),
        ("episode", (0, 3), 4, "E_SLOT"),
        ("rng_actions", (0, 624), 625, "rng_actions"),
        ("source", (0, 0), -1, "source"),
        ("last_ids", (0,), 2, "last_ids"),
    ],
)
def test_a_state_that_leads_out_of_an_array_is_refused_and_changes_nothing(key, place, value, says) -> None:
    env = AtariVec("pong", 2, num_threads=1)
    env.reset(seed=1)
    before = env.get_state()
    state = {k: v.copy() for k, v in before.items()}
    state[key][place] = value
    with pytest.raises(ValueError, match=says):
        env.set_state(state)
    assert all(np.array_equal(v, before[k]) for k, v in env.get_state().items())

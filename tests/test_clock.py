"""Every schedule by hand values, for strides of 1, 3 and 16."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dqnitro.clock import Clock, Every, linear


def clock(**changes) -> Clock:
    settings = {
        "first_fill_steps": 10,
        "steps_per_update": 1.0,
        "target_sync_steps": 5,
        "epsilon_start": 1.0,
        "epsilon_end": 0.2,
        "epsilon_decay_steps": 8,
    }
    return Clock(**(settings | changes))


def run(c: Clock, stride: int, ticks: int) -> list[tuple[int, int, list[int]]]:
    """(steps before the tick, updates done in it, indices of the updates that a sync came before)."""
    tape = []
    for _ in range(ticks):
        done, synced = 0, []
        while c.owes_update():
            if c.owes_sync():
                synced.append(c.updates)
                c.count_sync()
            c.count_update()
            done += 1
        tape.append((c.steps, done, synced))
        c.count_steps(stride)
    return tape


def test_one_environment_updates_once_a_step_from_the_first_fill_on():
    tape = run(clock(), 1, 17)
    assert [done for _, done, _ in tape] == [0] * 10 + [1] * 7
    # update u stands at step 10 + u; syncs fall at multiples of 5: steps 10, 15
    assert [s for _, _, syncs in tape for s in syncs] == [0, 5]


def test_three_environments_owe_three_updates_a_tick():
    tape = run(clock(), 3, 7)
    #  steps at the tick:       0  3  6  9  12 15 18
    assert [d for _, d, _ in tape] == [0, 0, 0, 0, 3, 3, 3]
    assert [s for _, _, syncs in tape for s in syncs] == [0, 5]


def test_sixteen_environments_owe_all_at_once():
    tape = run(clock(), 16, 3)
    assert [d for _, d, _ in tape] == [0, 7, 16]  # at 16 steps: 16 - 10 + 1
    assert [s for _, _, syncs in tape for s in syncs] == [0, 5, 10, 15, 20]


@pytest.mark.parametrize(
    ("stride", "expected"),
    [(1, [0] * 10 + [1, 0, 0, 0, 1, 0, 0, 0, 1]), (3, [0, 0, 0, 0, 1, 1, 1]), (16, [0, 2, 4, 4])],
)
def test_four_steps_per_update(stride, expected):
    tape = run(clock(steps_per_update=4.0), stride, len(expected))
    assert [d for _, d, _ in tape] == expected


def test_two_updates_a_step():
    assert [d for _, d, _ in run(clock(steps_per_update=0.5), 1, 13)] == [0] * 10 + [1, 2, 2]


@pytest.mark.parametrize(
    ("stride", "expected"),
    [
        (1, [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.2]),
        (3, [1.0, 0.7, 0.4, 0.2, 0.2]),
        (16, [1.0, 0.2, 0.2]),
    ],
)
def test_epsilon_falls_in_a_straight_line_and_stays(stride, expected):
    c, seen = clock(), []
    for _ in expected:
        seen.append(c.epsilon())
        c.count_steps(stride)
    assert seen == pytest.approx(expected)


def test_the_importance_correction_grows_to_one():
    c = clock(priority_beta=0.4, priority_beta_steps=10)
    seen = []
    for _ in range(4):
        seen.append(c.beta())
        c.count_steps(5)
    assert seen == pytest.approx([0.4, 0.7, 1.0, 1.0])


@given(
    stride=st.integers(1, 40), fill=st.integers(0, 50), every=st.sampled_from([0.25, 0.5, 1.0, 3.0, 4.0, 7.0]),
    sync=st.integers(1, 30), ticks=st.integers(1, 60),
)  # fmt: skip
def test_the_stride_changes_neither_the_updates_nor_the_syncs(stride, fill, every, sync, ticks):
    """The same number of steps in strides of 1 or of many: as many updates, and syncs before the same ones."""
    many, one = (clock(first_fill_steps=fill, steps_per_update=every, target_sync_steps=sync) for _ in range(2))
    a = [s for _, _, syncs in run(many, stride, ticks + 1) for s in syncs]
    b = [s for _, _, syncs in run(one, 1, ticks * stride + 1) for s in syncs]
    assert (many.updates, a) == (one.updates, b)


def test_a_restored_clock_owes_what_the_saved_one_owed():
    a, b = clock(), clock()
    run(a, 3, 6)
    b.set_state(a.get_state())
    assert run(a, 3, 5) == run(b, 3, 5)


def test_linear_by_hand():
    assert [linear(1.0, 0.0, 4, t) for t in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    assert linear(1.0, 0.5, 0, 0) == 0.5


def test_every_is_due_once_a_period_and_never_when_off():
    now = [0.0]
    every, never = Every(2.0, lambda: now[0]), Every(0.0, lambda: now[0])
    seen = []
    for t in (0.0, 1.9, 2.0, 2.1, 3.9, 4.0, 9.0, 9.1):
        now[0] = t
        seen.append(every.due())
        assert not never.due()
    assert seen == [False, False, True, False, False, True, True, False]

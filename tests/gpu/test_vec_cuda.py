"""The console on a GPU compared with the one on the CPU: every byte of every result."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dqnitro.atari import AtariVec

pytestmark = pytest.mark.gpu

GAMES = [
    "pong", "breakout", "seaquest", "qbert", "space_invaders", "ms_pacman", "beam_rider", "enduro", "freeway",
    "montezuma_revenge", "double_dunk", "air_raid", "tetris", "entombed", "asterix", "kangaroo",
]  # fmt: skip
OPTIONS: list[dict[str, Any]] = [
    {},
    {"episodic_life": True},
    {"life_loss_info": True},
    {"maxpool": False},
    {"maxpool": False, "frameskip": 1, "max_num_frames_per_episode": 21},
    {"frameskip": 7, "stack_num": 2, "max_num_frames_per_episode": 55},
    {"noop_max": 0, "use_fire_reset": False},
    {"reward_clipping": False, "full_action_space": True},
    {"max_num_frames_per_episode": 50},
    {"repeat_action_probability": 0.25},
    {"repeat_action_probability": 1.0, "stack_num": 1},
    {"grayscale": False, "max_num_frames_per_episode": 52},
    {"grayscale": False, "img_height": 210, "img_width": 160},
    {"img_height": 64, "img_width": 100},
    {"img_height": 105, "img_width": 80},
    {"img_height": 300, "img_width": 200},
]  # fmt: skip


def on_host(value: Any) -> np.ndarray:
    return value.cpu().numpy() if torch.is_tensor(value) else value


def same(ours: Any, theirs: Any, where: str) -> None:
    if isinstance(theirs, dict):
        assert list(ours) == list(theirs), where
        for key in theirs:
            same(ours[key], theirs[key], f"{where} {key}")
        return
    ours = on_host(ours)
    assert ours.dtype == theirs.dtype, where
    np.testing.assert_array_equal(ours, theirs, err_msg=where)


def actions_of(vec: Any, steps: int, seed: int) -> np.ndarray:
    """Actions that are held for a while play more of a game than fresh noise in every step."""
    rng = np.random.default_rng(seed)
    fresh = rng.integers(0, vec.single_action_space.n, (steps, vec.num_envs))
    return fresh[np.arange(steps) // 3]


def side_by_side(game: str, steps: int, n: int = 5, seed: int = 0, per_warp: int = 0, **options: Any) -> int:
    """Step both; returns how many episodes ended."""
    theirs = AtariVec(game, n, **options)
    ours = AtariVec(game, n, device="cuda", machines_per_warp=per_warp, **options)  # type: ignore[call-arg]
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    for first, second in zip(ours.reset(seed=seed), theirs.reset(seed=seed), strict=True):
        same(first, second, "reset")
    ends = 0
    for t, actions in enumerate(actions_of(theirs, steps, seed)):
        a, b = ours.step(actions), theirs.step(actions)
        for name, x, y in zip(("observation", "reward", "terminated", "truncated", "info"), a, b, strict=True):
            same(x, y, f"{game} step {t} {name}")
        ends += int((b[2] | b[3]).sum())
    # a second seeded start, and one that goes on with the machine's own chance
    same(ours.reset(seed=7)[0], theirs.reset(seed=7)[0], "second reset")
    same(ours.reset()[0], theirs.reset()[0], "unseeded reset")
    ours.close()
    theirs.close()
    return ends


@pytest.mark.parametrize("game", GAMES)
def test_games_equal_the_cpu(game):
    assert side_by_side(game, 110, seed=3, max_num_frames_per_episode=200, repeat_action_probability=0.25) > 0


@pytest.mark.parametrize("game", GAMES)
def test_games_of_full_warps_equal_the_cpu(game):
    """Another loop over instructions (`phases`), another program: what many machines run."""
    options = {"max_num_frames_per_episode": 200, "repeat_action_probability": 0.25}
    assert side_by_side(game, 60, n=40, seed=5, per_warp=32, **options) > 0


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("game", ["breakout", "seaquest"])
def test_options_equal_the_cpu(game, options):
    side_by_side(game, 50, seed=3, **options)


@pytest.mark.parametrize("n", [1, 31, 32, 33, 100])
def test_groups_that_are_not_full_equal_the_cpu(n):
    side_by_side("breakout", 40, n=n, max_num_frames_per_episode=60)


@pytest.mark.parametrize("machines_per_warp", [1, 2, 8, 32])
def test_how_machines_share_a_warp_changes_nothing(machines_per_warp):
    side = [AtariVec("pong", 70, device="cuda", machines_per_warp=k) for k in (0, machines_per_warp)]  # type: ignore[call-arg]
    for vec in side:
        vec.reset(seed=1)
    for actions in actions_of(side[0], 40, 0):
        a, b = (vec.step(actions) for vec in side)
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b[:4], strict=True))


@pytest.mark.parametrize("game", ["pong", "seaquest", "breakout"])
def test_new_games_in_the_same_step_equal_the_cpu(game):
    """But for `final_obs`, which the CPU leaves out of steps without an end: looking whether there is one would wait
    for the GPU.
    """
    options = {"autoreset_mode": "SameStep", "max_num_frames_per_episode": 90, "episodic_life": True}
    theirs, ours = AtariVec(game, 5, **options), AtariVec(game, 5, device="cuda", **options)
    theirs.reset(seed=3), ours.reset(seed=3)
    ends = 0
    for t, actions in enumerate(actions_of(theirs, 120, 3)):
        a, b = ours.step(actions), theirs.step(actions)
        final = on_host(a[4].pop("final_obs"))
        expected = b[4].pop("final_obs", np.zeros_like(final))
        np.testing.assert_array_equal(final, expected, err_msg=f"step {t}")
        for name, x, y in zip(("observation", "reward", "terminated", "truncated", "info"), a, b, strict=True):
            same(x, y, f"{game} step {t} {name}")
        ends += int((b[2] | b[3]).sum())
    assert ends >= 10


def test_some_environments_reset_as_on_the_cpu():
    theirs, ours = AtariVec("breakout", 6), AtariVec("breakout", 6, device="cuda")
    theirs.reset(seed=3), ours.reset(seed=3)
    mask = np.array([True, False, False, True, True, False])
    for t, actions in enumerate(actions_of(theirs, 60, 3)):
        if t in (10, 30):
            given = None if t == 10 else np.array([5, 6, 7])
            for x, y in zip(*(v.reset(seed=given, options={"reset_mask": mask}) for v in (ours, theirs)), strict=True):
                same(x, y, f"reset at {t}")
        for x, y in zip(ours.step(actions)[:4], theirs.step(actions)[:4], strict=True):
            same(x, y, f"step {t}")


@pytest.mark.parametrize("game", ["breakout", "seaquest"])
def test_continuous_actions_equal_the_cpu(game):
    theirs, ours = AtariVec(game, 5, continuous=True), AtariVec(game, 5, device="cuda", continuous=True)
    assert ours.action_space == theirs.action_space
    theirs.reset(seed=3), ours.reset(seed=3)
    theirs.action_space.seed(0)
    for t in range(100):
        sticks = theirs.action_space.sample()
        for x, y in zip(ours.step(sticks)[:4], theirs.step(sticks)[:4], strict=True):
            same(x, y, f"{game} step {t}")


def test_what_comes_out_lies_on_the_card_and_keeps_its_place():
    """Nothing is copied: the next step overwrites what the last one gave."""
    vec = AtariVec("pong", 4, device="cuda")
    first = vec.reset(seed=1)[0]
    places = set()
    kept = first.clone()
    for actions in actions_of(vec, 20, 0):
        out = vec.step(torch.as_tensor(actions, device="cuda"))[:4]
        assert all(x.is_cuda for x in out)
        places.add(tuple(x.data_ptr() for x in out))
    assert len(places) == 1 and first.data_ptr() == out[0].data_ptr()
    assert not torch.equal(kept, first), "the footgun: clone() what you want to keep"


def test_steps_in_a_cuda_graph_are_the_same_steps():
    eager, recorded = (AtariVec("breakout", 40, device="cuda", max_num_frames_per_episode=80) for _ in range(2))
    eager.reset(seed=5)
    recorded.reset(seed=5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded.launch_step()  # type: ignore[attr-defined]
    assert torch.equal(eager._tensors["state"], recorded._tensors["state"]), "recording plays nothing"  # type: ignore[attr-defined]
    ends = 0
    for actions in actions_of(eager, 60, 2):
        a = eager.step(actions)
        recorded.actions.copy_(torch.as_tensor(actions))  # type: ignore[attr-defined]
        graph.replay()
        b = recorded.obs, recorded.rewards, recorded.terminated, recorded.truncated  # type: ignore[attr-defined]
        assert all(torch.equal(x, y) for x, y in zip(a[:4], b, strict=True))
        ends += int(a[3].sum())
    assert ends > 0


def test_a_step_comes_after_what_its_stream_was_given_before():
    """The footgun: a kernel on another stream would read actions that are not there yet."""
    plain, other = (AtariVec("breakout", 40, device="cuda") for _ in range(2))
    plain.reset(seed=5)
    other.reset(seed=5)
    stream, script = torch.cuda.Stream(), actions_of(plain, 20, 2)
    given, late = torch.zeros(40, dtype=torch.int64, device="cuda"), torch.as_tensor(script).pin_memory()
    torch.cuda.synchronize()
    for t, actions in enumerate(script):
        wanted = [x.clone() for x in plain.step(actions)[:4]]
        given.zero_()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(5_000_000)  # some milliseconds
            given.copy_(late[t], non_blocking=True)
            got = [x.clone() for x in other.step(given)[:4]]
        torch.cuda.synchronize()
        assert all(torch.equal(x, y) for x, y in zip(got, wanted, strict=True)), t


def test_a_state_goes_on_elsewhere_as_here():
    options = {"max_num_frames_per_episode": 150, "repeat_action_probability": 0.25}
    vec, other = (AtariVec("seaquest", 37, device="cuda", **options) for _ in range(2))
    vec.reset(seed=2)
    script = actions_of(vec, 90, 4)
    for actions in script[:50]:
        vec.step(actions)
    state = vec.get_state()
    expected = [[on_host(x).copy() for x in vec.step(actions)[:4]] for actions in script[50:]]
    other.set_state(state)
    for actions, wanted in zip(script[50:], expected, strict=True):
        for x, y in zip(other.step(actions)[:4], wanted, strict=True):
            same(x, y, "after set_state")
    with pytest.raises(ValueError, match="num_envs"):
        AtariVec("seaquest", 70, device="cuda", **options).set_state(state)


def story_on_the_cpu(game: str, seed: int, script: np.ndarray, **options: Any) -> list[Any]:
    """What one machine shows: the first observation of each game, and what came of each decision."""
    vec = AtariVec(game, 1, num_threads=1, **options)
    story: list[Any] = [vec.reset(seed=seed)[0][0].copy()]
    for action in script:
        obs, reward, terminated, truncated, _ = vec.step(np.array([action]))
        story.append((obs[0].copy(), int(reward[0]), bool(terminated[0]), bool(truncated[0])))
        if terminated[0] or truncated[0]:
            story.append(vec.step(np.array([0]))[0][0].copy())
    return story


@pytest.mark.parametrize("per_warp", [1, 8, 32])
@pytest.mark.parametrize("game", ["breakout", "qbert", "double_dunk"])
def test_games_that_begin_in_steps_are_the_same_games(game, per_warp):
    """No frame of a game is lost or seen twice, whatever the consoles of the same warp do meanwhile."""
    n, decisions = 6, 100
    options = {"max_num_frames_per_episode": 90, "repeat_action_probability": 0.25, "noop_max": 12}
    vec: Any = AtariVec(game, n, device="cuda", resets_aside=True, machines_per_warp=per_warp, **options)  # type: ignore[call-arg]
    script = np.random.default_rng(0).integers(0, 4, (n, decisions))
    first = on_host(vec.reset(seed=3)[0])
    stories: list[list[Any]] = [[first[m].copy()] for m in range(n)]
    taken, returns = np.zeros(n, int), 0
    for _ in range(decisions * 100):
        here = on_host(vec.away) == 0
        playing = here & (taken < decisions)
        vec.step(np.where(playing, script[np.arange(n), np.minimum(taken, decisions - 1)], 0))
        out = [on_host(x) for x in (vec.obs, vec.rewards, vec.terminated, vec.truncated)]
        assert not out[1][~here].any() and not out[2][~here].any() and not out[3][~here].any()
        back = np.flatnonzero(~here & (on_host(vec.away) == 0))
        returns += len(back)
        for m in back[taken[back] < decisions]:
            stories[m].append(out[0][m].copy())
        for m in np.flatnonzero(playing):
            stories[m].append((out[0][m].copy(), int(out[1][m]), bool(out[2][m]), bool(out[3][m])))
        taken += playing
        if (taken == decisions).all():
            break
    assert (taken == decisions).all() and returns >= n
    for m, story in enumerate(stories):
        expected = story_on_the_cpu(game, 3 + m, script[m], **options)
        for k, (x, y) in enumerate(zip(story, expected, strict=False)):
            assert isinstance(x, tuple) == isinstance(y, tuple), f"console {m}, entry {k}"
            for u, v in zip(x if isinstance(x, tuple) else (x,), y if isinstance(y, tuple) else (y,), strict=True):
                np.testing.assert_array_equal(u, v, err_msg=f"console {m}, entry {k}")
        assert abs(len(story) - len(expected)) <= 1  # the last game may not have begun again


@pytest.mark.parametrize("game", ["pong", "breakout", "qbert", "seaquest", "space_invaders"])
@pytest.mark.parametrize(("n", "per_warp"), [(256, 1), (4096, 4), (8192, 32)])
def test_starts_do_not_lengthen_a_step(game, n, per_warp):
    """A start has other frames than a game, and some are longer; but a step with starts has no more of them."""
    vec: Any = AtariVec(game, n, device="cuda", resets_aside=True, machines_per_warp=per_warp)  # type: ignore[call-arg]
    vec.reset(seed=1)

    def ms(steps: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(steps):
            vec.actions.copy_(torch.randint(0, 4, (n,), device="cuda"))
            vec.launch_step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / steps

    plain, some = [], []
    for k in range(3):  # in turns, and the shortest of each: other programs may use the GPU, too
        ms(40)  # until those that were restarted play again
        plain.append(ms(12))
        vec.restart(torch.arange(n, device="cuda") % 8 == k)
        some.append(ms(12))
        assert bool((vec.away != 0).any()), "they are still starting"
    plain, some = min(plain), min(some)
    print(f"{game}, {n} consoles: {plain:.2f} ms a step, {some:.2f} ms with starts in one console of eight")
    assert some < 1.4 * plain


def test_more_machines_than_fit_are_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (2**20, 2**34))
    with pytest.raises(RuntimeError, match="of GPU memory.*hint: .* would fit"):
        AtariVec("pong", 64, device="cuda")

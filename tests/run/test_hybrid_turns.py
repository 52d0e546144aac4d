"""The hybrid runner with its environments in parts that take turns, both halves on the CPU, on the console itself."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.run import make_run

N = 6
BREAKOUT = Config(
    env_id="breakout", envs="console", runner="hybrid", screen_size=36, n_envs=N, network="small", hidden_units=32,
    steps_per_update=4.0, first_fill_steps=120, epsilon_decay_steps=400, n_step=3, batch_size=16, target_sync_steps=60,
    replay_capacity=N * 60, torch_threads=1, env_threads=2, max_episode_frames=130, episodic_life=True, seed=5,
    wrappers=("no-grad", "fused-adam"),
)  # fmt: skip


def record(agent):
    """What the environments showed and were told, by environment and step: frames, actions, rewards, ends."""
    seen: list[list[dict]] = [[] for _ in range(N)]
    envs, each = agent.envs, agent.envs.n_each
    recv, send = envs.recv, envs.send

    def see(k, obs, step=None):
        for i in range(each):
            entry = {"obs": blocks(obs[i].copy())}
            if step is not None:
                last = seen[k * each + i][-1]
                last |= {"reward": step.reward_t[i], "done": step.terminated[i], "cut": step.truncated[i]}
                last["real"] = not step.reset[i]
            seen[k * each + i].append(entry)

    def watched_send(k, actions):
        for i in range(each):
            seen[k * each + i][-1]["action"] = int(actions[i])
        send(k, actions)

    def watched_recv(k):
        step = recv(k)
        see(k, step.obs_t, step)
        return step

    for k, player in enumerate(agent.players):
        see(k, player.obs.numpy())
    envs.recv, envs.send = watched_recv, watched_send
    return seen


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_what_is_learned_from_is_what_the_environments_showed(parts):
    """Every drawn transition, also the newest ones that may be drawn: through ends, cuts and the ring's seam."""
    agent, ticks = make_run(BREAKOUT.replace(env_parts=parts))
    assert len(agent.players) == parts
    seen, learn, ring, newest = record(agent), agent.learn, agent.ring, []

    def checked(updates, k):
        readable = agent.groups[k]
        head, size = int(readable.head), int(readable.filled.clamp(max=ring.slots - 8)) - 3 - 4
        back = torch.arange(size).repeat_interleave(N)
        env = torch.arange(N).repeat(size)
        t = (head - 3 - back) % ring.slots
        batch = ring.transitions(t, env, 3, 0.99)
        weight, action, reward, discount = (
            x.tolist() for x in (batch.weight, batch.action_tm1, batch.reward_t, batch.discount_t)
        )
        moment = agent.moment  # steps that every environment has completed and shown, at the last fixing
        for row in range(len(t)):
            story = seen[int(env[row])]
            first = moment - 3 - int(back[row])
            entry = story[first]
            assert weight[row] == entry["real"]
            if not entry["real"]:
                continue
            total, steps, bootstrap = 0.0, 0, True
            for j in range(3):
                now = story[first + j]
                if not now["real"]:
                    break
                total, steps = total + 0.99**j * now["reward"], steps + 1
                if now["done"] or now["cut"]:
                    bootstrap = not now["done"]
                    break
            assert action[row] == entry["action"]
            assert abs(reward[row] - total) < 1e-6
            assert abs(discount[row] - (0.99**steps if bootstrap else 0.0)) < 1e-6
            assert torch.equal(batch.obs_tm1[row], entry["obs"])
            if bootstrap:
                assert torch.equal(batch.obs_t[row], story[first + steps]["obs"])
        newest.append(moment)
        learn(updates, k)

    choose = agent.choose

    def watched_choose(k=0):
        choose(k)
        if k == parts - 1:
            agent.moment = min(len(s) for s in seen) - 1

    agent.learn, agent.choose = checked, watched_choose
    for tick in ticks:
        if tick.steps > 620:
            break
    assert len(newest) > 40 and newest[-1] > 100 > ring.slots  # more than once around
    assert sum(not e["real"] for s in seen for e in s[:-2]) > 10
    agent.close()


def blocks(obs):
    """A stack (4, 36, 36) as the ring gives it: 4x4 pixels are channels."""
    from dqnitro.replay.gpu_ring import space_to_depth

    depth = space_to_depth(torch.from_numpy(obs))  # (4, 9, 9, 16)
    return depth.permute(1, 2, 0, 3).reshape(9, 9, 64).permute(2, 0, 1).contiguous()


def test_parts_play_what_the_environments_together_would_play():
    from dqnitro.envs.turns import make_env_groups

    whole, halves = make_env_groups(BREAKOUT.replace(env_parts=1)), make_env_groups(BREAKOUT)
    assert len(whole.groups) == 1 and len(halves.groups) == 2 and halves.spec == whole.spec
    assert np.array_equal(whole.reset(), halves.reset())
    rng, ends = np.random.default_rng(0), 0
    told = rng.integers(0, 4, (150, N))
    for k in range(2):
        halves.send(k, told[0, 3 * k : 3 * k + 3])
    for t in range(149):
        whole.send(0, told[t])
        one, two = whole.recv(0), []
        for k in range(2):
            two.append(halves.recv(k))
            halves.send(k, told[t + 1, 3 * k : 3 * k + 3])
        for name in ("obs_t", "reward_t", "terminated", "truncated", "reset"):
            assert np.array_equal(getattr(one, name), np.concatenate([getattr(x, name) for x in two])), (t, name)
        assert one.ends == (*two[0].ends, *two[1].ends)
        ends += len(one.ends)
    assert ends > 10
    whole.send(0, told[149])
    whole.recv(0), halves.recv(0), halves.recv(1)
    a, b = whole.get_state(), halves.get_state()
    assert a.keys() == b.keys() and all(np.array_equal(a[k], b[k]) for k in a)
    # and each goes on from what the other saved
    assert np.array_equal(whole.set_state(b), halves.set_state(a))
    whole.close(), halves.close()


def test_each_part_acts_on_what_was_learned_after_its_last_turn():
    """So a choice never waits for the updates that follow the other part's turn."""
    agent, ticks = make_run(BREAKOUT.replace(steps_per_update=1.0))
    values, learn_owed, newest = agent.values, agent.learn_owed, {}
    acted = []

    def parameters(network):
        return torch.cat([p.detach().flatten() for p in network.parameters()])

    def watched_values(k=0):
        acted.append((torch.equal(parameters(agent.acting.weights[k]), newest[k]), agent.clock.updates))
        return values(k)

    def watched_learn(k):
        learn_owed(k)
        newest[k] = parameters(agent.learner.online)

    newest = dict.fromkeys(range(2), parameters(agent.learner.online))
    agent.values, agent.learn_owed = watched_values, watched_learn
    for _ in range(150):
        next(ticks)
    assert all(same for same, _ in acted) and acted[-1][1] > 50
    assert not torch.equal(newest[0], newest[1])
    agent.close()


def numbers(ticks, n):
    return [(t.steps, t.updates, t.epsilon, t.ends) for t in itertools.islice(ticks, n)]


@pytest.fixture(scope="module")
def whole():
    """A run that nobody stops: its numbers, and its agent."""
    agent, ticks = make_run(BREAKOUT)
    told = numbers(ticks, TICKS)
    yield told, agent
    agent.close()


TICKS = 120


@pytest.mark.parametrize("stop_at", [1, 2, 61, 62])
def test_a_saved_run_goes_on_as_if_it_had_not_stopped(stop_at, whole):
    """Saved while one part is at play; the run that saves goes on like the one that does not, and so does the resumed
    one.
    """
    expected, agent = whole
    saving, first = make_run(BREAKOUT)
    before = numbers(first, stop_at)
    arrays, told = saving.get_state()
    told = json.loads(json.dumps(told))
    assert told["parts"]["playing"] and told["parts"]["early"]
    arrays = {k: {name: np.array(np.asarray(x)) for name, x in v.items()} for k, v in arrays.items()}
    assert before + numbers(first, TICKS - stop_at) == expected
    resumed, more = make_run(BREAKOUT)
    resumed.set_state(arrays, told)
    assert before + numbers(more, TICKS - stop_at) == expected
    assert expected[-1][1] > 50 and any(ends for *_, ends in expected)
    for other in (saving, resumed):
        for x, y in zip(agent.learner.online.parameters(), other.learner.online.parameters(), strict=True):
            assert torch.equal(x, y)
        assert torch.equal(agent.ring.frames, other.ring.frames) and torch.equal(agent.ring.action, other.ring.action)
        other.close()


def test_a_checkpoint_of_before_there_were_parts_can_be_resumed():
    one, ticks = make_run(BREAKOUT.replace(env_parts=1))
    for _ in range(40):
        next(ticks)
    arrays, told = one.get_state()
    agent = {k: v for k, v in arrays["agent"].items() if k not in ("heads", "readable") and "chance" not in k}
    two, more = make_run(BREAKOUT)
    two.set_state({**arrays, "agent": agent}, {k: v for k, v in told.items() if k != "parts"})
    assert all(int(p.ring.head) == int(one.ring.head) for p in two.groups)
    shown = np.concatenate([p.obs.numpy() for p in two.players])
    assert np.array_equal(shown, one.players[0].obs.numpy())
    for _ in range(40):
        next(more)
    assert two.clock.steps > one.clock.steps and two.clock.updates > one.clock.updates
    one.close(), two.close()


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"env_parts": 4}, "equal groups"),
        ({"env_parts": 2, "envs": "ale"}, "needs the console"),
        ({"env_parts": 2, "runner": "inline"}, "needs runner hybrid"),
    ],
)
def test_parts_that_cannot_be_are_refused_in_a_line(changes, says):
    with pytest.raises(ConfigError, match=says):
        make_run(BREAKOUT.replace(**changes))


def test_an_odd_number_of_environments_stays_whole():
    agent, ticks = make_run(BREAKOUT.replace(n_envs=5, replay_capacity=5 * 60))
    assert len(agent.players) == 1
    next(ticks)
    agent.close()

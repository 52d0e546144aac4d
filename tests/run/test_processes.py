"""Play and train apart: the same run as inline with slack 0, a known run with more, and both resume bit for bit."""

import math
import threading

import gymnasium as gym
import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.envs.base import EnvSpec, GameEnd, Step
from dqnitro.errors import ConfigError, PlayerDied
from dqnitro.run import make_run
from dqnitro.run.build import make_generators
from dqnitro.run.inline import learn_owed, make_agent, remember
from dqnitro.run.processes import remote, slack_ticks, thread_budget
from dqnitro.run.processes.player import pack_rng, unpack_rng
from dqnitro.run.processes.shared_memory import Report, Ring, SharedMemory, WeightRing
from dqnitro.session import resume, train
from dqnitro.store import checkpoint
from support import fakes_envs
from support.fakes_player import in_threads

fakes_envs.register()
CORRIDOR = Config(
    env_id="dqnitro_test/Corridor-v0", n_envs=3, frame_stack=1, clip_rewards=False, hidden_units=16, batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, epsilon_start=0.5, epsilon_decay_steps=200,
    max_steps=180, torch_threads=1, n_step=2, double=True, checkpoint_every_s=0.0, learning_rate=5e-3,
)  # fmt: skip
VARIANTS = {
    "corridor": {},
    "plain, one env": {"replay": "plain", "n_envs": 1, "max_steps": 100},
    "prioritized": {"prioritized": True},
    "categorical": {"categorical": True, "dueling": True},
    "pixels": {"env_id": "dqnitro_test/Catch-v0", "frame_stack": 2, "screen_size": 36, "max_steps": 80, "n_envs": 2},
    "channels-last": {
        "env_id": "dqnitro_test/Catch-v0", "frame_stack": 2, "screen_size": 36, "max_steps": 80, "n_envs": 2,
        "wrappers": ("no-grad", "channels-last"),
    },
    "idle": {
        "env_id": "dqnitro_test/Catch-v0", "frame_stack": 2, "screen_size": 36, "max_steps": 80, "n_envs": 2,
        "idle_frames": 4, "epsilon_start": 0.1,
    },
    "torchscript": {"wrappers": ("no-grad", "torchscript")},
    "few-calls": {"wrappers": ("no-grad", "few-calls"), "loss": "huber"},
    "four steps an update": {"steps_per_update": 4.0},
}  # fmt: skip


@pytest.fixture
def threads(monkeypatch):
    in_threads(monkeypatch)


def same_run(a, b) -> None:
    assert (a.steps, a.updates, a.games, a.mean_score) == (b.steps, b.updates, b.games, b.mean_score)
    for x, y in ((a.agent.learner.online, b.agent.learner.online), (a.agent.learner.target, b.agent.learner.target)):
        assert all(torch.equal(i, j) for i, j in zip(x.parameters(), y.parameters(), strict=True))
    assert a.agent.rng_act.bit_generator.state == b.agent.rng_act.bit_generator.state
    x, y = (r.agent.replay.sample(16, np.random.default_rng(0), 1.0).batch for r in (a, b))
    assert all(torch.equal(i, j) for i, j in zip(x, y, strict=True))


def lagging_inline(config: Config, ticks: int):
    """The reference implementation of slack: the inline loop, acting on weights that are `ticks` ticks old."""
    a = make_agent(config)
    online = list(a.learner.online.parameters())
    versions = []
    while a.clock.steps < config.max_steps:
        versions.append([p.detach().clone() for p in online])
        current = [p.data for p in online]
        for p, old in zip(online, versions[max(0, len(versions) - 1 - ticks)], strict=True):
            p.data = old
        actions = a.choose_actions()
        for p, now in zip(online, current, strict=True):
            p.data = now
        a.envs.send(actions)
        learn_owed(a)
        remember(a, actions, a.envs.recv())
    a.close()
    return a


@pytest.mark.parametrize("name", VARIANTS)
def test_slack_0_is_the_inline_run_bit_for_bit(name, threads):
    config = CORRIDOR.replace(**VARIANTS[name])
    inline, apart = train(config), train(config.replace(runner="processes"))
    assert inline.updates > 10
    same_run(inline, apart)


@pytest.mark.parametrize("slack", [1, 3])
@pytest.mark.parametrize("name", ["corridor", "pixels", "four steps an update"])
def test_slack_means_weights_of_exactly_that_age_and_nothing_else(name, slack, threads):
    config = CORRIDOR.replace(**VARIANTS[name], epsilon_start=0.2)
    apart = train(config.replace(runner="processes", slack_steps=slack * config.n_envs))
    twin = lagging_inline(config, slack)
    assert (apart.steps, apart.updates) == (twin.clock.steps, twin.clock.updates)
    pairs = zip(apart.agent.learner.online.parameters(), twin.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_slack_changes_the_run(threads):
    """Otherwise the test above would prove nothing."""
    config = CORRIDOR.replace(**VARIANTS["pixels"], epsilon_start=0.2, runner="processes")
    a, b = train(config), train(config.replace(slack_steps=6))
    pairs = zip(a.agent.learner.online.parameters(), b.agent.learner.online.parameters(), strict=True)
    assert not all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("slack", [0, 5, 150])
def test_the_ratio_of_steps_to_updates_is_the_configs_after_every_tick(slack, threads):
    config = CORRIDOR.replace(runner="processes", slack_steps=slack, steps_per_update=2.0)
    agent, ticks = make_run(config)
    before = 0
    for _ in range(120):
        tick = next(ticks)
        owed = 0 if before < 40 else math.floor((before - 40) / 2) + 1  # what was due when the tick began
        assert tick.updates == owed
        assert agent.envs._permitted - agent.envs._next <= slack // 3, "play was allowed too far ahead"
        before = tick.steps
    assert len(agent.envs.get_state()["ahead.action"]) == slack // 3, "play did not run ahead"
    agent.close()


@pytest.mark.parametrize("slack", [0, 7])
@pytest.mark.parametrize("name", ["corridor", "pixels"])
def test_a_run_stopped_and_resumed_twice_is_the_run_that_never_stopped(name, slack, threads, tmp_path):
    config = CORRIDOR.replace(**VARIANTS[name], runner="processes", slack_steps=slack)
    whole = train(config)
    third = config.max_steps // 3
    train(config.replace(max_steps=third), tmp_path / "run")
    resume(tmp_path / "run", max_steps=2 * third)
    same_run(whole, resume(tmp_path / "run", max_steps=config.max_steps))


def test_with_slack_0_a_checkpoint_has_nothing_ahead_and_with_more_it_has_the_slack(threads):
    for slack, ahead in ((0, 0), (7, 2)):
        agent, ticks = make_run(CORRIDOR.replace(runner="processes", slack_steps=slack))
        for _ in range(5):
            next(ticks)
        state = agent.envs.get_state()
        assert len(state["ahead.action"]) == ahead and len(state["log"]) == 0
        agent.close()


class Fragile(fakes_envs.Corridor):
    """Breaks in its 60th step of the process, as often as `left` says."""

    steps, left = 0, 0

    def step(self, action):
        Fragile.steps += 1
        if Fragile.left and Fragile.steps >= 60:
            Fragile.left -= 1
            Fragile.steps = 0
            self.open_the_wrong_door()
        return super().step(action)

    def open_the_wrong_door(self):
        raise KeyError("the wrong door")


gym.register("dqnitro_test/Fragile-v0", entry_point=Fragile)


@pytest.mark.parametrize("slack", [0, 7])
def test_a_player_that_failed_by_accident_is_revived_and_nothing_of_the_run_changes(slack, threads, capfd):
    config = CORRIDOR.replace(env_id="dqnitro_test/Fragile-v0", runner="processes", slack_steps=slack)
    whole = train(config)
    Fragile.steps, Fragile.left = 0, 2
    broken = train(config)
    assert broken.agent.envs.restarts == 2
    same_run(whole, broken)
    err = capfd.readouterr().err
    assert "open_the_wrong_door" in err and "starting it again (2 of 3)" in err


def test_a_player_that_fails_again_and_again_ends_the_run_with_a_checkpoint(threads, tmp_path, capfd):
    config = CORRIDOR.replace(env_id="dqnitro_test/Fragile-v0", runner="processes", slack_steps=7)
    Fragile.steps, Fragile.left = 0, 4
    with pytest.raises(
        PlayerDied, match=r"died 4 times within 1000 vector steps, at last because /.*_processes.py:\d+: KeyError"
    ) as e:
        train(config, tmp_path / "run")
    assert e.value.exit_code == 4 and "\n" not in str(e.value) and "open_the_wrong_door" in e.value.trace
    assert capfd.readouterr().err.count("Traceback") == 4
    assert '"state": "crashed"' in (tmp_path / "run" / "summary.json").read_text()
    _, record = checkpoint.load(tmp_path / "run")
    assert record["clock"]["steps"] > 40
    Fragile.left = 0  # repaired
    result = resume(tmp_path / "run", max_steps=180)
    assert result.ended == "steps" and result.updates > 130


class Moody(Fragile):
    """Shows in its later steps how often it was made: playing a game again gives another picture."""

    lives = 0

    def __init__(self):
        super().__init__()
        Moody.lives += 1

    def _obs(self):
        return super()._obs() + np.float32(Moody.lives if self.t > 0 else 0)


gym.register("dqnitro_test/MoodyPlayer-v0", entry_point=Moody)
AT_FIRST, LATER = 1000, 5  # ticks between two states of the player: only actions are played again, or a saved state


@pytest.mark.parametrize(
    ("state_ticks", "says"),
    [(AT_FIRST, "its games did not come out the same"), (LATER, "cannot be revived: environment . did not replay")],
)
def test_games_that_do_not_come_out_the_same_again_end_the_run(state_ticks, says, threads, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "STATE_TICKS", state_ticks)
    Fragile.steps, Fragile.left = 0, 1
    config = CORRIDOR.replace(env_id="dqnitro_test/MoodyPlayer-v0", runner="processes")
    with pytest.raises(PlayerDied, match=says):
        train(config, tmp_path / "run")
    assert checkpoint.load(tmp_path / "run")[1]["clock"]["steps"] > 30


def test_an_environment_that_the_player_cannot_make_is_the_users_error(threads):
    with pytest.raises(ConfigError, match="unknown game or environment 'NoSuch-v0'"):
        make_run(CORRIDOR.replace(env_id="NoSuch-v0", runner="processes"))
    lock = threading.Lock()  # nothing that holds one can be sent to another process
    gym.register("dqnitro_test/Local-v0", entry_point=lambda: fakes_envs.Corridor(6 if lock else 0))
    with pytest.raises(ConfigError, match="cannot be made in another process .*hint: give a class or function"):
        make_run(CORRIDOR.replace(env_id="dqnitro_test/Local-v0", runner="processes"))


def test_slack_needs_the_runner_and_memory(threads, monkeypatch):
    with pytest.raises(ConfigError, match="slack_steps 8 needs runner processes"):
        CORRIDOR.replace(slack_steps=8)
    with pytest.raises(
        ConfigError, match="slack_steps 195 is over 64 steps of each of 3 environments; hint: at most 194"
    ):
        CORRIDOR.replace(slack_steps=195, runner="processes")
    import psutil

    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("M", (), {"available": 1e5, "total": 1e5})())
    with pytest.raises(ConfigError, match="slack_steps 150 keeps .* of weights.*hint: --slack-steps"):
        make_run(CORRIDOR.replace(slack_steps=150, runner="processes"))


# -- the pieces

SPEC = EnvSpec(2, 4, (3,), np.dtype(np.float32), 1, 1, False)


def a_step(ends=()) -> tuple[np.ndarray, Step, Report]:
    obs = np.arange(6, dtype=np.float32).reshape(2, 3)
    flags = (np.array([i == k for i in range(2)]) for k in (0, 1, 5))
    step = Step(obs, np.array([0.5, -1], np.float32), *flags, ends)
    return np.array([3, 1]), step, Report(np.arange(6, dtype=np.uint64), np.array([0.25, 0.5]))


def test_a_slot_that_was_not_written_is_found_at_once():
    ring = Ring(SharedMemory().allocate(Ring.size(SPEC, 2)), SPEC, 2)
    assert np.isnan(ring.slots["reward"]).all() and (ring.slots["action"] == -1).all(), (
        "magic that is loud in every type"
    )
    with pytest.raises(RuntimeError, match="step 0 was expected, its slot was never written"):
        ring.read(0)
    ring.write(0, *a_step())
    with pytest.raises(RuntimeError, match="step 2 was expected, its slot holds step 0"):
        ring.read(2)
    ring.read(0)
    with pytest.raises(RuntimeError, match="never written"):
        ring.read(0)


def test_a_step_comes_out_of_the_ring_as_it_went_in_and_stays_when_the_slot_is_used_again():
    memory = SharedMemory()
    writer = Ring(memory.allocate(Ring.size(SPEC, 1)), SPEC, 1)
    reader = Ring(memory.map(), SPEC, 1)
    actions, step, report = a_step((GameEnd(1, 21.0, 900),))
    writer.write(0, actions, step, report)
    got_actions, got, got_report = reader.read(0)
    writer.write(1, actions * 0, step._replace(obs_t=step.obs_t * 0, ends=()), report)
    np.testing.assert_array_equal(got_actions, actions)
    for x, y in zip(got[:5], step[:5], strict=True):
        np.testing.assert_array_equal(x, y)
    assert got.ends == step.ends and reader.read(1)[1].ends == ()
    np.testing.assert_array_equal(got_report.rng, report.rng)


def test_weights_keep_their_memory_order_and_a_torn_slot_is_refused():
    parameters = [torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last), torch.randn(7)]
    memory = SharedMemory()
    writer = WeightRing(memory.allocate(WeightRing.size(parameters, 2)), parameters, 2)
    reader = WeightRing(memory.map(), parameters, 2)
    with pytest.raises(RuntimeError, match="version 5 were expected, slot 1 holds -1"):
        reader.check(1, 5)
    writer.write(1, 5, parameters)
    reader.check(1, 5)
    for p, view in zip(parameters, reader.views(1), strict=True):
        assert torch.equal(p, view) and p.stride() == view.stride()
    assert all(torch.isnan(v).all() for v in reader.views(0)), "unwritten weights are NaN"


def test_a_generator_travels_through_six_words():
    rng, _ = make_generators(7)
    rng.integers(0, 5, 3)  # leaves half a word behind
    other = np.random.Generator(np.random.PCG64(0))
    other.bit_generator.state = unpack_rng(pack_rng(rng))
    assert other.bit_generator.state == rng.bit_generator.state
    assert other.integers(0, 2**40, 5).tolist() == rng.integers(0, 2**40, 5).tolist()


def test_slack_is_counted_in_whole_vector_steps():
    config = CORRIDOR.replace(runner="processes", slack_steps=8)
    assert [slack_ticks(config.replace(slack_steps=s)) for s in (0, 2, 3, 8, 9)] == [0, 0, 1, 2, 3]


@pytest.mark.parametrize(
    ("slack", "torch_threads", "cores", "by_itself", "gpu", "budget"),
    [
        (0, 0, 2, 2, False, (2, 2)),  # never at the same time, and as inline
        (0, 1, 2, 2, False, (1, 1)),
        (9, 0, 2, 2, False, (1, 1)),
        (9, 0, 16, 16, False, (8, 4)),  # so small a network gains nothing from more than four threads
        (9, 3, 16, 16, False, (3, 4)),
        (9, 0, 16, 1, False, (1, 1)),  # OMP_NUM_THREADS=1 is the user's word
        (9, 0, 1, 1, False, (1, 1)),
        (9, 0, 16, 16, True, (1, 4)),
    ],
)
def test_cores_are_divided_over_the_processes(slack, torch_threads, cores, by_itself, gpu, budget):
    config = CORRIDOR.replace(runner="processes", slack_steps=slack, torch_threads=torch_threads)
    assert thread_budget(config, cores, by_itself, gpu) == budget

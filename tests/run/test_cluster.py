"""The runner `cluster` without a cluster: equal to the inline loop with the same ages, whatever is lost."""

import itertools
import shutil

import numpy as np
import pytest
import torch

from dqnitro.cli.train import recorded_changes
from dqnitro.envs import make_envs
from dqnitro.errors import CheckpointError, ConfigError, PlayerDied
from dqnitro.run import make_run
from dqnitro.run.cluster import cpus_each, crew
from dqnitro.run.cluster.chunk import Chunk, Recorder, from_arrays, joined, steps_of, to_arrays
from dqnitro.run.cluster.player import first_rng, played_config
from dqnitro.session import resume, train
from support import fakes, fakes_envs
from support.cluster_reference import CORRIDOR, inline_by_the_log, inline_with_the_same_ages, log_of, same
from support.fakes_hosts import LocalHosts, in_this_process

fakes_envs.register()
CATCH = CORRIDOR.replace(env_id="dqnitro_test/Catch-v0", frame_stack=2, screen_size=36, max_steps=120)
VARIANTS = {
    "1 player": CORRIDOR.replace(players=1),
    "2 players": CORRIDOR,
    "4 players": CORRIDOR.replace(players=4),
    "4 players, slack 1": CORRIDOR.replace(players=4, slack_steps=12),
    "slack 2": CORRIDOR.replace(slack_steps=24),
    "pixels": CATCH.replace(slack_steps=12),
    "channels-last": CATCH.replace(wrappers=("no-grad", "channels-last")),
    "prioritized": CORRIDOR.replace(prioritized=True, slack_steps=12),
    "quantiles and Munchausen targets": CORRIDOR.replace(quantiles=8, munchausen=True, double=False, slack_steps=12),
    "noisy": CORRIDOR.replace(noisy_sigma=0.5, slack_steps=12),
    "idle": CATCH.replace(idle_frames=4, epsilon_start=0.1, slack_steps=12),
    "console": CATCH.replace(env_id="breakout", envs="console", idle_frames=40, slack_steps=12),
}


@pytest.fixture
def hosts(monkeypatch):
    return in_this_process(monkeypatch)


@pytest.mark.parametrize("name", VARIANTS)
def test_it_is_the_inline_loop_with_the_same_ages(name, hosts):
    result = train(VARIANTS[name])
    same(result.agent, inline_with_the_same_ages(VARIANTS[name]))
    assert hosts[0].started == VARIANTS[name].players and not any(hosts[0].players.values())  # and all were ended


def test_weights_are_handed_over_once_for_all_players_and_only_if_they_changed(hosts):
    config = CORRIDOR.replace(players=4, steps_per_update=30.0)  # a chunk is 12 steps
    result = train(config)
    chunks = -(-result.steps // 12)
    assert hosts[0].calls >= 4 * chunks and 2 <= hosts[0].versions <= min(result.updates + 1, chunks // 2)
    assert train(config.replace(steps_per_update=1.0)).updates > 100 and hosts[1].versions <= hosts[1].calls / 4


def test_one_player_and_chunks_of_one_step_are_the_inline_run_but_for_its_random_numbers(hosts):
    config = CORRIDOR.replace(players=1, chunk_vector_steps=1, epsilon_start=0.0, epsilon_end=0.0)
    same(train(config).agent, train(config.replace(runner="inline")).agent)


def test_slack_and_the_number_of_players_matter():
    runs = [inline_with_the_same_ages(c) for c in (CORRIDOR, VARIANTS["slack 2"], VARIANTS["4 players"])]
    first = [next(iter(r.learner.online.parameters())) for r in runs]
    assert not torch.equal(first[0], first[1]) and not torch.equal(first[0], first[2])


@pytest.mark.parametrize("name", ["2 players", "slack 2", "pixels"])
def test_lost_players_change_nothing(name, hosts, capsys):
    config = VARIANTS[name]
    agent, ticks = make_run(config)
    hosts[0].lose_at = dict.fromkeys((3, 8, 17), True)
    while next(ticks).steps < config.max_steps:
        pass
    assert agent.envs.replaced == 3 and hosts[0].started == config.players + 3
    same(agent, inline_with_the_same_ages(config))
    agent.close()
    assert "was lost (it was killed); starting it elsewhere (1 of 3)" in capsys.readouterr().err


def test_players_that_are_lost_together_begin_again_together_and_change_nothing(hosts, capsys):
    """None goes on before all have played their games again."""
    config = VARIANTS["slack 2"]
    agent, ticks = make_run(config)
    hosts[0].one_process, hosts[0].lose_at = True, {11: True, 30: True}
    while next(ticks).steps < config.max_steps:
        pass
    n, told = config.players, " ".join(hosts[0].told)
    assert n > 1 and agent.envs.replaced == 2 * n and hosts[0].started == 3 * n
    assert told.count(" ".join(["start"] * n + ["begin"] * n + ["play"])) == 3, "at first, and after each loss"
    same(agent, inline_with_the_same_ages(config))
    agent.close()
    said = capsys.readouterr().err
    assert all(
        said.count(f"player {p} was lost (it was killed); starting it elsewhere (1 of 3)") == 2 for p in range(n)
    )
    assert said.count("plays again, after ") == 2 * n


def test_players_of_several_processes_that_are_lost_with_their_node_begin_again_together(hosts):
    config = VARIANTS["slack 2"]
    agent, ticks = make_run(config)
    while next(ticks).steps < 100:
        pass
    for player in range(config.players):
        hosts[0].kill(hosts[0].numbers[player])
    hosts[0].told.clear()
    while next(ticks).steps < config.max_steps:
        pass
    n = config.players
    assert n > 1 and agent.envs.replaced == n
    assert " ".join(["start"] * n + ["begin"] * n + ["play"]) in " ".join(hosts[0].told)
    same(agent, inline_with_the_same_ages(config))
    agent.close()


def test_players_of_a_process_that_is_slow_all_stay(hosts):
    config = VARIANTS["slack 2"]
    agent, ticks = make_run(config)
    hosts[0].one_process, hosts[0].late_at = True, {9: 1}
    while next(ticks).steps < config.max_steps:
        pass
    assert agent.envs.replaced == 0 and hosts[0].started == 2 * config.players and not hosts[0].late_at
    same(agent, inline_with_the_same_ages(config))
    agent.close()


@pytest.mark.parametrize("name", ["2 players", "slack 2", "pixels"])
def test_players_that_hang_are_replaced_those_that_are_slow_stay_and_neither_changes_anything(name, hosts):
    config = VARIANTS[name]
    agent, ticks = make_run(config)
    hosts[0].late_at = {4: 1, 9: 99, 15: 1}
    while next(ticks).steps < config.max_steps:
        pass
    assert agent.envs.replaced == 1 and hosts[0].started == config.players + 3 and not hosts[0].late_at
    same(agent, inline_with_the_same_ages(config))
    agent.close()


def test_a_player_that_is_slow_again_and_again_is_no_reason_to_end_a_run(hosts):
    agent, ticks = make_run(CORRIDOR)
    hosts[0].late_at = dict.fromkeys(range(1, 20), 1)
    while next(ticks).steps < CORRIDOR.max_steps:
        pass
    assert agent.envs.replaced == 0
    agent.close()


@pytest.mark.parametrize("name", ["4 players", "slack 2", "pixels"])
def test_players_that_move_to_other_nodes_change_nothing(name, hosts):
    config = VARIANTS[name]
    agent, ticks = make_run(config)
    hosts[0].move_at, hosts[0].lose_at = dict.fromkeys((2, 3, 11, 18), True), {12: True}
    while next(ticks).steps < config.max_steps:
        pass
    assert agent.envs.moved == 4 and agent.envs.replaced == 1
    same(agent, inline_with_the_same_ages(config))
    agent.close()


@pytest.mark.parametrize("name", ["2 players", "slack 2", "pixels"])
def test_a_run_that_was_stopped_within_a_chunk_goes_on_bit_for_bit(name, hosts, tmp_path):
    config = VARIANTS[name]
    train(config.replace(max_steps=76), tmp_path / "r")
    same(resume(tmp_path / "r", max_steps=config.max_steps).agent, inline_with_the_same_ages(config))


@pytest.mark.parametrize(("name", "steps", "players"), [
    ("2 players", 76, 4), ("2 players", 72, 1), ("slack 2", 76, 4), ("pixels", 40, 4), ("4 players, slack 1", 60, 2),
])  # fmt: skip
def test_other_players_go_on_with_all_games_and_a_log_says_from_where(name, steps, players, hosts, tmp_path, capsys):
    """Chunks that may be played already are those of the players before."""
    config, run = VARIANTS[name], tmp_path / "r"
    before = train(config.replace(max_steps=steps), run).agent.envs
    result = resume(run, max_steps=config.max_steps, players=players)
    same(result.agent, inline_with_the_same_ages(config, [(before.permitted, players)]))
    said = f"{players} player{'s' * (players > 1)} instead of {config.players} from chunk {before.permitted} on: the"
    assert said in capsys.readouterr().err
    told = [(x["steps"] >= steps, x["chunk"], x["players"]) for x in log_of(run)]
    assert told == [(False, 0, config.players), (True, before.permitted, players)]
    assert len(hosts[1].players) == players


ELASTIC = {
    "no slack": CORRIDOR.replace(players=1, most_players=4),
    "slack 2": CORRIDOR.replace(players=1, most_players=4, slack_steps=24),
    "pixels": CATCH.replace(players=1, most_players=4, slack_steps=12, max_steps=168),
}


@pytest.fixture
def nodes(hosts, monkeypatch):
    """Room for two players, then for four, then for three, then for one, by how often players were told to play."""
    monkeypatch.setattr(crew, "PATIENCE_S", 0.0)
    monkeypatch.setattr(LocalHosts, "rooms", {0: 2, 6: 4, 20: 3, 26: 1})
    return hosts


def numbers(run):
    return [x["players"] for x in log_of(run)]


@pytest.mark.parametrize("name", ELASTIC)
def test_players_join_and_leave_with_the_nodes_and_the_log_says_when(name, nodes, tmp_path, capsys):
    config, run = ELASTIC[name], tmp_path / "r"
    same(train(config, run).agent, inline_by_the_log(config, run))
    assert numbers(run) == [2, 4, 2, 1], "three cannot share four environments"
    said = capsys.readouterr().err
    chunks, steps = ([x[what] for x in log_of(run)] for what in ("chunk", "steps"))
    assert chunks == sorted(set(chunks)) and steps == sorted(set(steps))
    assert f"4 players instead of 2 from chunk {chunks[1]} on: the env" in said
    assert not any(nodes[0].players.values())


def test_a_run_whose_players_changed_is_repeated_by_its_log_wherever_it_is(nodes, tmp_path, monkeypatch):
    config, runs = ELASTIC["slack 2"], [tmp_path / x for x in "abc"]
    first = train(config, runs[0]).agent
    monkeypatch.setattr(LocalHosts, "rooms", {0: 1, 30: 4})
    again = config.replace(player_changes=recorded_changes(runs[0]))
    same(train(again, runs[1]).agent, first)
    for steps in (64, 100):
        train(again.replace(max_steps=steps), runs[2]) if steps == 64 else resume(runs[2], max_steps=steps)
    same(resume(runs[2], max_steps=config.max_steps).agent, first)
    told = [[(x["chunk"], x["players"]) for x in log_of(run)] for run in runs]
    assert told[0] == told[1] == told[2]


@pytest.mark.parametrize("stop", [72, 76, 110])
def test_a_run_whose_players_change_goes_on_after_a_stop_with_as_many_as_it_had(stop, nodes, tmp_path):
    config, run = ELASTIC["slack 2"], tmp_path / "r"
    before = train(config.replace(max_steps=stop), run).agent.envs.players
    LocalHosts.rooms = {0: 1 if before > 1 else 4}
    same(resume(run, max_steps=config.max_steps).agent, inline_by_the_log(config, run))
    assert numbers(run)[-1] != before and numbers(run).count(before) <= 2


def test_changes_after_the_last_checkpoint_are_made_again_or_new_ones_are_recorded(nodes, tmp_path):
    config, (a, b, c) = ELASTIC["slack 2"], [tmp_path / x for x in "abc"]
    train(config.replace(max_steps=40), a)
    for copy in (b, c):
        shutil.copytree(a, copy)
    LocalHosts.rooms = {0: 2, 8: 4, 26: 1}
    whole = resume(a, max_steps=config.max_steps).agent
    assert numbers(a)[-2:] == [4, 1]
    for lost in (b, c):  # what the run wrote until it was lost, behind its checkpoint
        shutil.copy(a / "metrics.jsonl", lost / "metrics.jsonl")
    LocalHosts.rooms = {0: 1}
    same(resume(b, max_steps=config.max_steps).agent, whole)
    assert [(x["chunk"], x["players"]) for x in log_of(b)] == [(x["chunk"], x["players"]) for x in log_of(a)]
    same(resume(c, max_steps=config.max_steps, players=4, most_players=0).agent, inline_by_the_log(config, c))
    assert numbers(c)[-1] == 4 and numbers(c).count(1) == 0


def test_two_changes_at_one_border_are_two_in_the_log(hosts, tmp_path):
    run, config = tmp_path / "r", VARIANTS["slack 2"]
    train(config.replace(max_steps=74), run)
    for players, steps in ((4, 75), (1, config.max_steps)):
        resume(run, players=players, max_steps=steps)
    (_, _), (first, _), (second, _) = told = [(x["chunk"], x["players"]) for x in log_of(run)]
    assert first == second and [n for _, n in told] == [2, 4, 1]
    whole = inline_by_the_log(config, run)
    same(train(config.replace(player_changes=recorded_changes(run))).agent, whole)


def test_players_that_are_lost_while_the_environments_are_shared_out_again_change_nothing(nodes, tmp_path, monkeypatch):
    config, run, real = ELASTIC["pixels"], tmp_path / "r", LocalHosts.again

    def again(self, players, orders):
        handles = real(self, players, orders)
        self.kill(handles[-1])
        return handles

    monkeypatch.setattr(LocalHosts, "again", again)
    same(train(config, run).agent, inline_by_the_log(config, run))
    assert numbers(run) == [2, 4, 2, 1] and nodes[0].started == 2 + 4 + 2 + 1 + 3


def test_too_little_room_for_a_moment_changes_nothing(hosts, monkeypatch, tmp_path):
    monkeypatch.setattr(LocalHosts, "rooms", {0: 4, 10: 1, 20: 4})
    train(ELASTIC["slack 2"], tmp_path / "r")
    assert numbers(tmp_path / "r") == [4]


def test_what_lost_players_owe_is_not_shared_out(hosts, tmp_path, monkeypatch):
    monkeypatch.setattr(LocalHosts, "lose_from", 20)
    with pytest.raises(PlayerDied):
        train(VARIANTS["slack 2"], tmp_path / "r")
    monkeypatch.undo()
    in_this_process(monkeypatch)
    with pytest.raises(CheckpointError, match="cannot be shared out; hint: resume it with --players 2 first"):
        resume(tmp_path / "r", players=4)


def test_a_player_that_is_lost_again_and_again_ends_the_run_which_is_saved_and_goes_on(hosts, tmp_path, monkeypatch):
    config = VARIANTS["slack 2"]
    monkeypatch.setattr(LocalHosts, "lose_from", 20)
    with pytest.raises(PlayerDied, match="lost 4 times in a row, at last because it was killed; the run is"):
        train(config, tmp_path / "r")
    monkeypatch.undo()
    in_this_process(monkeypatch)
    same(resume(tmp_path / "r").agent, inline_with_the_same_ages(config))


def test_games_that_come_out_differently_are_not_passed_off_as_the_same(hosts, monkeypatch):
    agent, ticks = make_run(CORRIDOR)
    for _ in range(5):
        next(ticks)
    agent.envs._places[0].crc = agent.envs._places[0].crc + 1
    hosts[0].kill(hosts[0].numbers[0])
    with pytest.raises(PlayerDied, match="did not come out the same"):
        list(itertools.islice(ticks, 5))
    agent.close()


def test_the_cpus_of_all_nodes_are_divided_among_the_players():
    assert [cpus_each([1, 1, 1], n) for n in (1, 3, 4, 6, 7)] == [1, 1, 0.5, 0.5, 0.3333]
    assert cpus_each([0, 16], 16) == 1 and cpus_each([0.5], 1) == 0.5
    for cpus in ([], [0.0], [1.0]):
        with pytest.raises(ConfigError, match="17 players need more CPUs"):
            cpus_each(cpus, 17)


@pytest.mark.parametrize("config", [CORRIDOR, CATCH], ids=["vector", "pixels"])
def test_a_chunk_holds_each_frame_once_and_gives_every_step_back(config):
    config = played_config(config)
    envs, rng = make_envs(config, first=2), np.random.default_rng(3)
    obs = first = envs.reset()
    recorder, shown = Recorder(envs.spec, obs), []
    for _ in range(40):
        actions = rng.integers(0, envs.spec.n_actions, config.n_envs)
        envs.send(actions)
        shown.append((actions, envs.recv()))
        recorder.add(*shown[-1])
    envs.close()
    chunk = recorder.chunk(first_rng(1, 0), np.zeros(2))
    chunk = from_arrays(to_arrays(chunk, "a."), "a.")
    assert isinstance(chunk, Chunk) and any(step.ends for _, step in shown) and len(chunk.whole) < 10
    if config.frame_stack > 1:
        assert chunk.frames.nbytes * config.frame_stack == 40 * obs.nbytes and len(chunk.whole) > 0
    for begin, before in ((0, first), (7, shown[6][1].obs_t)):
        for (a, x), (b, y) in zip(steps_of(chunk, envs.spec, before, begin), shown[begin:], strict=True):
            assert (a == b).all() and x.ends == y.ends
            assert all((getattr(x, n) == getattr(y, n)).all() for n in ("obs_t", "reward_t", "terminated", "reset"))


def test_a_chunk_holds_each_frame_in_colour_once():
    stream = fakes.Stream(2, 3, 1, channels=3)
    first, shown = stream.obs.copy(), []
    recorder = Recorder(stream.spec, first)
    for _ in range(30):
        shown.append(stream.step())
        recorder.add(*shown[-1])
    chunk = recorder.chunk(first_rng(1, 0), np.zeros(2))
    assert chunk.frames.nbytes * 3 == 30 * first.nbytes
    for (_, x), (_, y) in zip(steps_of(chunk, stream.spec, first), shown, strict=True):
        assert (x.obs_t == y.obs_t).all()


def test_joined_steps_are_those_of_all_environments_together():
    whole = make_envs(CATCH.replace(runner="inline", players=1))
    halves = [make_envs(played_config(CATCH), first) for first in (0, 2)]
    assert (np.concatenate([e.reset() for e in halves]) == whole.reset()).all()
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(0, whole.spec.n_actions, 4)
        parts = []
        for envs, mine in zip(halves, np.split(actions, 2), strict=True):
            envs.send(mine)
            parts.append((mine, envs.recv()))
        whole.send(actions)
        a, (_, b) = whole.recv(), joined(parts)
        assert a.ends == b.ends
        assert all((getattr(a, n) == getattr(b, n)).all() for n in ("obs_t", "reward_t", "terminated", "reset"))
    for envs in (*halves, whole):
        envs.close()


BAD = {
    "3 players": ({"players": 3}, "4 environments cannot be divided among 3 players; hint: n_envs 6 can"),
    "inline": ({"runner": "inline"}, "players 2 needs runner cluster, got inline"),
    "an empty range": (
        {"players": 4, "most_players": 2},
        "players 4 to most_players 2 is an empty range; hint: --players 2..4",
    ),
    "a range that does not divide": (
        {"players": 5, "most_players": 6, "n_envs": 8},
        "8 environments cannot be divided among 5 to 6 players; hint: n_envs 12 can",
    ),
    "a range for one process": (
        {"players": 1, "most_players": 4, "runner": "inline"},
        "most_players 4 needs runner cluster, got inline; hint: leave most_players at 0",
    ),
    "changes for one process": (
        {"players": 1, "player_changes": "0:2", "runner": "inline"},
        "player_changes '0:2' needs runner cluster, got inline",
    ),
    "changes of nothing": ({"player_changes": "2"}, "player_changes must be CHUNK:PLAYERS,... in the order of chunks"),
    "changes in disorder": ({"player_changes": "0:2,9:4,3:2"}, "in the order of chunks, got '0:2,9:4,3:2'"),
    "changes that do not divide": (
        {"player_changes": "0:2,9:3"},
        "4 environments cannot be divided among the 3 players from chunk 9 on",
    ),
    "changes to nobody": ({"player_changes": "0:0"}, "cannot be divided among the 0 players from chunk 0 on"),
    "act_device": ({"act_device": "cpu"}, "act_device cpu is for runner inline, got cluster"),
}


@pytest.mark.parametrize("name", BAD)
def test_settings_that_cannot_work(name):
    changes, message = BAD[name]
    with pytest.raises(ConfigError) as e:
        CORRIDOR.replace(**changes)
    assert message in str(e.value)

"""The model of a cluster: what it must say where the answer is known."""

import json
import pathlib

import pytest

from dqnitro.lab.cluster.cost import HereHosts, Settling, config_of, fit
from dqnitro.lab.cluster.model import Cluster, Inputs, checked, inputs_of, predict
from dqnitro.lab.cluster.piped_players import PipedHosts
from dqnitro.recipes import players
from support import fakes_envs

ROOT = pathlib.Path(__file__).resolve().parents[2]
FREE = Inputs(1e-3, 1e-5, 0, 0, 0, 0, 0, 0, 0, 7088)


def test_without_costs_players_add_up_until_the_learner_is_full():
    assert predict(FREE, Cluster(1, 1)).steps_per_s == pytest.approx(1000)
    assert predict(FREE, Cluster(4, 16)).steps_per_s == pytest.approx(64_000)
    full = predict(FREE, Cluster(64, 16, bytes_per_s=1e12))
    assert full.bound == "learner" and full.steps_per_s == pytest.approx(100_000)
    assert predict(FREE, Cluster(64, 16, bytes_per_s=1e8)).bound == "network"


def test_longer_chunks_lose_less_to_calls_and_nothing_less_to_bytes():
    calls = Inputs(1e-3, 0, 1e-3, 0, 1e-3, 0, 0, 0, 0, 7088)
    a, b = (predict(calls, Cluster(1, 1, chunk=chunk)).lost_to_ray for chunk in (8, 64))
    assert a == pytest.approx(2e-3 / (64e-3 + 2e-3)) and b < a / 7
    size = Inputs(1e-3, 0, 0, 1e-9, 0, 1e-9, 0, 0, 0, 7088)
    a, b = (predict(size, Cluster(1, 1, chunk=chunk)).lost_to_ray for chunk in (8, 64))
    assert a == pytest.approx(b)


def test_a_line_is_fitted():
    rows = [{"bytes": n, "learner": 2e-3 + 3e-9 * n} for n in (1000, 10**6, 10**7)]
    assert fit(rows, "learner") == pytest.approx({"per_call_s": 2e-3, "per_byte_s": 3e-9})


def test_inputs_are_read_out_of_a_measured_file():
    call, weights = {"per_call_s": 1e-3, "per_byte_s": 0.0}, {"per_call_s": 0.0, "per_byte_s": 1e-9}
    run = {
        "game": "pong", "players": 2, "envs_each": 8, "chunk_vector_steps": 8, "step_bytes": 7088, "weight_bytes": 7e6,
        "cpu_s_per_step": {"learner": 1e-3, "players": 5e-4, "ray": 1e-4, "without": 1.5e-3}, "lost_to_ray": 0.06,
    }  # fmt: skip
    fits = {f"{kind}_{who}": f for kind, f in (("answers", call), ("weights", weights))
            for who in ("learner", "player", "ray")}  # fmt: skip
    result = {"fits": fits, "runs": [run]}
    i = inputs_of(result, run)
    message = 2e-3 + 2e-9 * 7e6 / 2  # of the player and of Ray: a call, and its part of the weights
    assert i.play_s == pytest.approx(6e-4 - message / 64) and i.learn_s == pytest.approx(1.5e-3 - i.play_s)
    assert (i.weight_learner_s, i.weight_player_s) == pytest.approx((7e-3, 14e-3))
    told = (3e-3 + 3e-9 * 7e6 / 2) / 64
    assert checked(result)[-1] == f"| pong | 2 | 8 | 6.0% | {told / (1.5e-3 + told):.1%} |"


def test_what_auto_expects_of_ray_is_what_was_measured():
    """And the chunks that were measured are those that it chooses."""
    result = json.loads((ROOT / "results" / "ray-parts-2-cores.json").read_text())
    byte = sum(result["fits"][f"answers_{who}"]["per_byte_s"] for who in ("learner", "player", "ray"))
    assert pytest.approx(byte, rel=0.3) == players.STEP_BYTE_S
    for run in result["runs"]:
        idle_s = sum(run["of_ray_idle_cpus"].values()) * run["wall_s"]["on Ray"] / run["steps"]
        of_ray_s = sum(run["of_ray"].values()) - idle_s
        steps = run["envs_each"] * run["chunk_vector_steps"]
        chunk_s = (of_ray_s - players.STEP_BYTE_S * run["step_bytes"]) * steps
        assert players.CHUNK_S / 2 < chunk_s < 2 * players.CHUNK_S
        config = config_of(run["game"], run["recipe"], 0, run["players"], run["envs_each"])
        assert config.chunk_vector_steps == run["chunk_vector_steps"]
        size, measured = ("small" if run["game"] == "pong" else "nature"), run["plain_cpu_s_per_step"]
        assert measured["players"] == pytest.approx(players.STEP_S[size], rel=0.4)
        assert measured["learner"] * config.steps_per_update == pytest.approx(players.UPDATE_S[size], rel=0.4)


@pytest.mark.parametrize("hosts", [HereHosts, PipedHosts])
def test_what_ray_is_compared_with_plays_the_same_run(monkeypatch, hosts):
    fakes_envs.register()
    from dqnitro.run import cluster
    from dqnitro.session import train
    from support.cluster_reference import CORRIDOR, inline_with_the_same_ages, same

    monkeypatch.setattr(cluster, "ray_hosts", lambda config: Settling(hosts()))
    same(train(CORRIDOR).agent, inline_with_the_same_ages(CORRIDOR))

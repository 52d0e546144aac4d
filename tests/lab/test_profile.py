"""The profile accounts for all of a step's time, changes nothing of the run, and its advice follows from the shares."""

from __future__ import annotations

import dataclasses
import gzip
import json
import types

import pytest
import torch

from dqnitro import recipes
from dqnitro.lab.advice import PARTS, SETTINGS, advise, at_most, learning_share, lightens, shares
from dqnitro.lab.profile import profile, run_for, settled, tree_lines
from dqnitro.lab.spans import ANNOTATION, WATCHED, Node, Others, Spans, watch
from dqnitro.ladder import RUNGS
from dqnitro.run.inline import loop, make_agent


def small(**changes):
    config = recipes.baseline("CartPole-v1").replace(
        hidden_units=16, batch_size=8, first_fill_steps=40, replay_capacity=400, torch_threads=1, epsilon_decay_steps=20
    )
    return config.replace(**changes)


def names(tree: dict) -> set[str]:
    return {tree["name"]}.union(*(names(c) for c in tree["children"]))


def test_watching_changes_nothing_and_is_taken_off_again():
    parameters = []
    for watched in (False, True):
        agent = make_agent(small())
        backward, recv = torch.Tensor.backward, agent.envs.recv
        if watched:
            with watch(agent) as spans:
                run_for(loop(agent), agent, 80)
            assert spans.root.find("learning").calls == agent.clock.updates > 30
        else:
            run_for(loop(agent), agent, 80)
        assert torch.Tensor.backward is backward and agent.envs.recv == recv
        for owner, name in ((agent, "choose_actions"), (agent.envs, "recv"), (agent.replay, "add")):
            assert name not in vars(owner), "a span was left behind"
        parameters.append(list(agent.learner.online.parameters()))
        agent.close()
    assert all(torch.equal(a, b) for a, b in zip(*parameters, strict=True))


def test_spans_nest_and_count_also_when_something_fails():
    spans = Spans("step")

    def fail():
        raise ValueError

    outer = spans.timed("outer", lambda: [inner() for _ in range(3)])
    inner = spans.timed("inner", lambda: None)
    broken = spans.timed("broken", fail)
    outer()
    with pytest.raises(ValueError):
        broken()
    inner()
    assert spans.root.children.keys() == {"outer", "broken", "inner"}  # the failed span did not stay open
    assert spans.root.children["outer"].children["inner"].calls == 3


def test_the_tree_accounts_for_a_step_and_the_trace_is_what_perfetto_reads(tmp_path):
    trace = tmp_path / "deep" / "trace.json"
    r = profile(small(grad_clip=1.0), 60, trace, traced_steps=20)
    json.dumps(r)
    tree = r["tree"]
    assert tree["name"] == "step" and tree["share"] == pytest.approx(1.0) and r["steps"] >= 60 and r["updates"] >= 60
    assert {
        "environment",
        "acting",
        "sampling",
        "learning",
        "loss",
        "backward",
        "optimiser",
        "storing",
        "copies",
        "loop",
    } <= names(tree)
    assert sum(c["seconds"] for c in tree["children"]) == pytest.approx(tree["seconds"], rel=1e-6)

    def check(node):
        assert sum(c["seconds"] for c in node["children"]) <= node["seconds"] * (1 + 1e-9) + 1e-9, node["name"]
        assert [c["seconds"] for c in node["children"]] == sorted(
            (c["seconds"] for c in node["children"]), reverse=True
        )
        for child in node["children"]:
            check(child)

    check(tree)
    assert sum(r["shares"].values()) == pytest.approx(1.0) and set(r["shares"]) == set(PARTS)
    assert r["top"] and all(0 < op["share"] <= 1 and op["calls"] > 0 for op in r["top"])
    events = json.loads(trace.read_text())["traceEvents"]
    said = {e.get("name") for e in events}
    assert {ANNOTATION + n for n in ("acting", "environment", "loss", "backward", "optimiser")} <= said
    assert "aten::addmm" in said
    lines = list(tree_lines(tree))
    assert lines[0].startswith("step") and "100.0%" in lines[0] and any("backward" in line for line in lines)


def test_a_trace_may_be_compressed(tmp_path):
    profile(small(), 8, tmp_path / "t.json.gz")
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]


def test_other_processes_are_part_of_the_tree(tmp_path):
    """Two environments in a process each: their recv is waiting, and their work is shown beside the trainer's. Each
    must use a hundredth of a second, the unit in which the kernel counts.
    """
    r = profile(small(envs="gym-async", n_envs=2), 3_000, tmp_path / "t.json", traced_steps=4)
    assert r["tree"]["name"] == "all processes"
    trainer, workers = r["tree"]["children"]
    assert trainer["name"] == "trainer process" and workers["name"] == "2 worker processes"
    assert workers["seconds"] > 0
    environment = next(c for c in trainer["children"] if c["name"] == "environment")
    assert [c["name"] for c in environment["children"]] == ["waiting"]
    assert r["shares"]["waiting"] > 0


def test_the_player_of_the_processes_runner_stands_beside_the_trainer(tmp_path):
    r = profile(small(runner="processes", slack_steps=4), 60, tmp_path / "t.json", traced_steps=4)
    trainer, player = r["tree"]["children"]
    assert player["name"].startswith("player process") and names(player) > {"acting", "environment"}
    assert all(c["seconds"] > 0 for c in player["children"])
    assert {"environment", "waiting", "learning", "handing over weights"} <= names(trainer)
    assert "acting" not in names(trainer), "the player chooses the actions"


def test_a_part_in_a_process_of_its_own_brings_its_phases():
    player = types.SimpleNamespace(pid=2**30, seconds={"act": 1.0, "env": 2.0})
    others = Others(types.SimpleNamespace(envs=player, config=types.SimpleNamespace(runner="processes")))
    others.begin()
    player.seconds = {"act": 1.5, "env": 4.0}
    (node,) = others.nodes()
    assert node.name == f"player process {2**30}" and node.seconds == pytest.approx(2.5)
    assert {n: c.seconds for n, c in node.children.items()} == {"acting": 0.5, "environment": 2.0}


def test_settled_skips_the_way_there_and_nothing_else():
    config = recipes.baseline("pong")
    changed = settled(config)
    assert changed.first_fill_steps == 500
    assert changed.epsilon_start == config.epsilon_end
    same = changed.replace(
        first_fill_steps=config.first_fill_steps, epsilon_start=config.epsilon_start, stop_at_score=config.stop_at_score
    )
    assert same == config
    assert settled(config.replace(batch_size=2000)).first_fill_steps == 2000


def test_shares_put_every_second_somewhere():
    tree = Node("step", 10.0)
    tree.child("environment").seconds = 4.0
    tree.child("environment").child("waiting").seconds = 3.0
    tree.child("learning").seconds = 5.0
    tree.child("learning").child("loss").seconds = 2.0
    tree.child("learning").child("backward").seconds = 2.5
    of = shares(tree)
    assert of["environment"] == pytest.approx(0.1) and of["waiting"] == pytest.approx(0.3)
    assert of["loss"] == pytest.approx(0.2) and of["backward"] == pytest.approx(0.25)
    assert of["optimiser"] == pytest.approx(0.05)  # what learning does besides
    assert learning_share(tree) == pytest.approx(0.5)
    assert of["loop"] == pytest.approx(0.1) and sum(of.values()) == pytest.approx(1.0)


def test_amdahl():
    assert at_most(0.0) == 1.0 and at_most(0.5) == 2.0 and at_most(0.9) == pytest.approx(10.0)


def test_rungs_lighten_what_they_change():
    config = recipes.baseline("pong")
    assert lightens(RUNGS["fused-adam"], config) == {"optimiser"}
    assert lightens(RUNGS["console"], config) == {"environment", "waiting"}
    assert "backward" in lightens(RUNGS["bfloat16"], config)
    assert {"sampling", "loss", "backward", "optimiser"} <= lightens(RUNGS["four-steps-per-update"], config)
    assert lightens(RUNGS["gradients-everywhere"], config) == set(), "it only costs"
    assert lightens(RUNGS["double"], config) == set(), "it changes learning, not the time"
    for name in ("fused-adam", "console", "four-steps-per-update"):
        assert lightens(RUNGS[name], RUNGS[name].apply(config)) == set(), "it is in force already"
    fewer_updates = config.replace(steps_per_update=8.0)
    assert lightens(RUNGS["four-steps-per-update"], fewer_updates) == set(), "that would be slower"


def test_fewer_updates_from_larger_batches_save_only_optimiser_steps():
    def apply(config):
        return config.replace(steps_per_update=4 * config.steps_per_update, batch_size=4 * config.batch_size)

    rung = dataclasses.replace(RUNGS["four-steps-per-update"], apply=apply)
    assert lightens(rung, recipes.baseline("pong")) == {"optimiser"}


def test_a_rung_that_does_not_go_with_the_settings_is_not_suggested():
    def too_large(config):
        return config.replace(n_envs=2, batch_size=10 * config.first_fill_steps)

    rung = dataclasses.replace(RUNGS["eight-envs"], apply=too_large)
    assert lightens(rung, recipes.baseline("pong")) == set()


def test_every_part_that_can_be_lightened_names_rungs_that_exist():
    config = recipes.baseline("pong")
    addressed = set().union(*(lightens(r, config) for r in RUNGS.values()))
    assert {"environment", "acting", "sampling", "loss", "backward", "optimiser"} <= addressed <= set(PARTS)
    assert all(set(parts) <= set(PARTS) for parts, _ in SETTINGS.values())


def test_advice_is_ordered_bounded_and_says_what_cannot_run():
    of = dict.fromkeys(PARTS, 0.0) | {"environment": 0.5, "backward": 0.3, "optimiser": 0.19, "loop": 0.01}
    pong = advise(of, 0.49, recipes.baseline("pong"))
    assert [a["part"] for a in pong] == ["environment", "learning as a whole", "backward", "optimiser"]
    assert pong[0]["buys_at_most"] == pytest.approx(2.0) and "console [exact]" in pong[0]["text"]
    assert "environment: 50% of a step, at most 2.00x if it cost nothing; try " in pong[0]["text"]
    assert "fused-adam" in pong[-1]["rungs"]
    assert "four-steps-per-update" in pong[1]["rungs"], "what lightens all of learning is said once, with the whole"
    assert all("four-steps-per-update" not in a["rungs"] for a in pong if a["part"] != "learning as a whole")
    for a in pong:
        order = [("exact", "close", "learning").index(RUNGS[n].promise) for n in a["rungs"]]
        assert order == sorted(order), "what leaves learning as it is comes first"
    cartpole = advise(of, 0.49, recipes.baseline("CartPole-v1"))
    assert "console" not in cartpole[0]["rungs"]
    assert cartpole[0]["cannot"]["console"] == "CartPole-v1 is not an Atari game"


def test_what_was_renamed_is_an_error_and_not_a_hole_in_the_tree():
    agent = make_agent(small())
    agent.learner.greedy, loss = None, agent.learner.loss
    with pytest.raises(AttributeError, match="Learner has no function 'greedy' to watch"), watch(agent):
        pass
    assert agent.learner.loss is loss, "what was put on before is taken off again"
    del agent.learner.greedy
    with watch(agent):
        pass
    agent.close()


def test_every_runner_is_watched():
    from dqnitro.run import RUNNERS

    assert set(WATCHED) == set(RUNNERS)

"""The files of `examples/` run, small, where their library is installed."""

import importlib.util
import pathlib

import pytest

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def needs(library, install):
    return pytest.importorskip(library, reason=f"{library} is not installed; pip install -c constraints.txt {install}")


def test_optuna_prunes_a_run_through_a_callback(monkeypatch):
    optuna = needs("optuna", "-e '.[optuna]'")
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    module = example("optuna_pruning")
    monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda **k: optuna.pruners.ThresholdPruner(lower=1e9))
    study = module.search(trials=1, max_steps=400)
    assert [t.state.name for t in study.trials] == ["PRUNED"] and min(study.trials[0].intermediate_values) < 400
    monkeypatch.setattr(optuna.pruners, "MedianPruner", lambda **k: optuna.pruners.NopPruner())
    study = module.search(trials=1, max_steps=400)
    assert study.best_value > 5 and len(study.trials[0].intermediate_values) >= 9


def test_stable_baselines3_learns_on_the_console():
    needs("stable_baselines3", "-e '.[sb3]'")
    model = example("sb3_ppo").train("breakout", steps=64, num_envs=2, n_steps=16)
    assert model.num_timesteps == 64 and model._n_updates == 8


def test_torchrl_collects_games():
    needs("torchrl", "-e '.[torchrl]'")
    batch = example("torchrl_rollout").collect(num_envs=2, steps=60)
    assert batch.batch_size == (2, 60) and batch["next", "done"].sum() == 2


def test_a_policy_in_jax_plays():
    needs("jax", "-e '.[jax]'")
    assert example("jax_policy").play(num_envs=2, steps=5).shape == (5, 2)


def test_peers_are_compared_by_one_rule(tmp_path):
    needs("stable_baselines3", "-e '.[sb3]'")
    module = example("solve_beside_peers")
    module.CLEAN |= {"starts": 200, "batch": 16}
    rows = module.compare("CartPole-v1", 1, 300, tmp_path / "peers.json")["rows"]
    assert [row["contender"] for row in rows] == list(module.CONTENDERS)
    for row in rows:
        assert 300 <= row["steps"] <= 512 and not row["solved"] and 8 < row["mean_score"] < 60 and row["cpu_s"] > 0
    assert (tmp_path / "peers.json").exists()
    scores = module.Scores(3.0)
    assert [scores.add(3.0) for _ in range(100)] == [False] * 99 + [True] and not scores.add(2.0)

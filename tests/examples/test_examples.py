"""The files of `examples/` run, small, where their library is installed."""

import importlib
import importlib.util
import json
import pathlib
import re

import pytest

from dqnitro.report.read_result import read_sources

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
    assert study.best_value > 5 and len(study.trials[0].intermediate_values) >= 5


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


def test_an_environment_of_ones_own_is_learned_and_has_a_page(tmp_path, capsys):
    module = example("own_environment")
    score = module.main(max_steps=1_500, run_dir=str(tmp_path / "run"))
    out = capsys.readouterr().out
    assert 0 < score <= 60 and (tmp_path / "run" / "page.html").exists()
    assert re.search(r"too cold: (wait|heat|window)\n5 degrees too warm: (wait|heat|window)", out)


def test_pieces_of_ones_own_are_used_and_the_callback_stops_the_run(capsys):
    module = example("own_pieces")
    result = module.main(max_steps=1_500, enough=5.0)
    assert (result.ended, result.games) == ("callback", 20) and result.reason.startswith("mean score")
    assert any(type(m).__name__ == "Dueling" for m in result.agent.network.modules())


def test_the_console_plays_alone(capsys):
    module = example("console_alone")
    assert -42 <= module.main(steps=200, num_envs=2) < 0, "nobody moves on purpose: the other side scores"
    assert "points in 400 steps, 0 games ended" in capsys.readouterr().out


def test_the_notebook_runs_cell_by_cell(tmp_path, monkeypatch, capsys):
    """Its code in one namespace, as a kernel runs it; Jupyter itself is not needed."""
    notebook = json.loads((FOLDER / "first_agent.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"] and cell["execution_count"] is None, "it is stored without outputs"
            code = "".join(cell["source"]).replace("STEPS = 3_000", "STEPS = 800")
            exec(compile(code, f"first_agent.ipynb {cell['id']}", "exec"), names)
    out = capsys.readouterr().out
    assert "steps after 80" in out and "steps; the loaded agent" in out and "95% interval" in out
    assert (tmp_path / "runs" / "notebook" / "page.html").exists()


def test_the_document_names_every_example_and_nothing_else():
    page = (FOLDER.parent / "docs" / "examples.md").read_text(encoding="utf-8")
    there = {p.name for p in FOLDER.iterdir() if p.suffix in (".py", ".ipynb")}
    assert set(re.findall(r"\.\./examples/([\w.]+)", page)) == there
    assert set(re.findall(r"^python examples/(\S+)", page, re.M)) == {n for n in there if n.endswith(".py")}


def test_peers_are_compared_by_one_rule(tmp_path):
    needs("stable_baselines3", "-e '.[sb3]'")
    module = example("solve_beside_peers")
    module.CLEAN |= {"starts": 200, "batch": 16}
    out, limit = tmp_path / "peers.json", module.Limit(300, 60.0)
    module.compare("CartPole-v1", [1], limit, ["dqnitro"], out)
    result = module.compare("CartPole-v1", [1], limit, out=out)
    rows = result["rows"]
    assert [row["contender"] for row in rows] == list(module.CONTENDERS), "what the file has is not run again"
    for row in rows:
        assert 300 <= row["steps"] <= 512 and not row["solved"] and 8 < row["mean_score"] < 60 and row["cpu_s"] > 0
    (run,) = read_sources([out])[1]
    assert (run.kind, run.data["limit_cpu_s"], run.data["max_steps"]) == ("peers", 60.0, 300)
    assert run.data["config"]["env_id"] == "CartPole-v1" and not any("config" in row for row in rows)
    assert "solve_beside_peers.py" in run.command and run.versions["stable-baselines3"]


def test_a_run_beside_peers_ends_at_its_limit_or_its_bar():
    module = example("solve_beside_peers")
    before = module.cpu_seconds()
    assert module.Limit(300, 0.0).begin()(1) and not module.Limit(300, 60.0).begin()(299)
    assert sum(range(10**6)) and module.cpu_seconds() > before, "it counts work, not waiting"
    scores = module.Scores(3.0)
    assert [scores.add(3.0) for _ in range(100)] == [False] * 99 + [True] and not scores.add(2.0)


def test_a_run_beside_peers_is_a_process_of_its_own(monkeypatch):
    """On one core with one thread; what it makes before its clock starts is not in its row."""
    monkeypatch.syspath_prepend(FOLDER)  # where the new process finds it, too
    module = importlib.import_module("solve_beside_peers")
    monkeypatch.setattr(module, "timed", None)  # what happens in this process
    (row,) = module.compare("CartPole-v1", [1], module.Limit(64, 60.0), ["dqnitro"], run=module.Apart())["rows"]
    assert 64 <= row["steps"] <= 512 and not row["solved"] and row["cpu_s"] > 0


def test_atari_games_are_compared_after_the_same_time(tmp_path, monkeypatch):
    needs("stable_baselines3", "-e '.[sb3]'")
    module = example("atari_beside_sb3")
    monkeypatch.setattr(module, "IDLE_FRAMES", 80)  # fresh games are short: nobody scores in 20 steps
    monkeypatch.setattr(module, "MEASURED_STEPS", 20)
    monkeypatch.setattr(module, "ZOO", module.ZOO | {"buffer_size": 500})
    out = tmp_path / "beside.json"
    rows = module.compare(["freeway"], [1], 0.02, 2, out, lambda name, wanted: _row(module, name, wanted))["rows"]
    assert [row["contender"] for row in rows] == ["dqnitro", "stable-baselines3"]
    for row in rows:
        assert 1.2 <= row["wall_s"] < 60 and row["steps"] > 0 and row["fresh"]["games"] == 2
        assert row["fresh"]["low"] <= row["fresh"]["score"] <= row["fresh"]["high"]
    again = module.compare(["freeway"], [1], 0.02, 2, out, None)
    assert again["rows"] == rows, "what the file has is not run again"
    (run,) = read_sources([out])[1]
    assert run.kind == "beside" and "atari_beside_sb3.py" in run.command


def _row(module, name, wanted):
    """As `apart`, in this process."""
    return {"contender": name, "game": wanted.game, "seed": wanted.seed, **module.CONTENDERS[name](wanted)}


def test_a_gain_is_the_score_less_that_of_random_play():
    module = example("atari_beside_sb3")
    rows = [
        {"contender": "dqnitro", "game": "breakout", "fresh": {"score": score}, "random": {"score": 1.5}}
        for score in (30.0, 40.0)
    ]
    rows.append({"contender": "stable-baselines3", "game": "breakout", "fresh": {"score": 9.5}})
    assert module.gains(rows) == {"breakout": {"dqnitro": 33.5, "stable-baselines3": 8.0}}
    assert module.gains(rows[2:]) == {}, "nothing is said without random play"

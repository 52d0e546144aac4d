"""`train`, `resume` and `load` as a Python user calls them: environments, functions, errors, the trained agent."""

import ast
import pathlib
import re
import sys
import types

import gymnasium as gym
import numpy as np
import pytest
import torch

import dqnitro
from dqnitro import Config, own, planning
from dqnitro.errors import CheckpointError, ConfigError, EnvFailed
from dqnitro.python.notebook import NotebookSink, in_notebook
from dqnitro.python.python_words import in_python
from support import fakes_envs

fakes_envs.register()
CORRIDOR = "dqnitro_test/Corridor-v0"
QUICK = {
    "hidden_units": 16,
    "batch_size": 8,
    "first_fill_steps": 40,
    "n_envs": 1,
    "steps_per_update": 1.0,
    "replay_capacity": 200,
    "max_steps": 120,
    "progress": False,
}


def long_corridor(length=9):
    return fakes_envs.Corridor(length)


def test_train_takes_a_name_and_any_setting():
    result = dqnitro.train(CORRIDOR, recipe="fast", seed=5, steps=np.int64(100), **QUICK | {"max_steps": 90})
    assert result.ended == "steps" and result.steps in (90, 100) and result.config.seed == 5
    assert result.run_dir is None and result.updates > 0
    assert "hidden_units" not in repr(result), "a result fits on a screen"


def test_train_takes_a_config():
    config = dqnitro.recipes.auto(CORRIDOR).replace(**{k: v for k, v in QUICK.items() if k != "progress"})
    result = dqnitro.train(config, seed=9, progress=False)
    assert result.config == config.replace(seed=9)
    with pytest.raises(ConfigError, match="go with a name, not with a Config"):
        dqnitro.train(config, also=["double"])


def test_train_takes_a_function_and_its_arguments(tmp_path):
    result = dqnitro.train(long_corridor, tmp_path / "run", env_kwargs={"length": 7}, **QUICK)
    assert result.config.env_id.endswith(":long_corridor?length=7") and result.agent.spec.obs_shape == (7,)
    more = dqnitro.resume(tmp_path / "run", max_steps=200, progress=False)
    assert more.steps == 200 and more.agent.spec.obs_shape == (7,)


def test_train_takes_a_local_function_which_resume_wants_again(tmp_path, monkeypatch):
    dqnitro.train(lambda: long_corridor(5), tmp_path / "run", **QUICK)
    monkeypatch.setattr(own, "_table", {})  # as in another process
    with pytest.raises(ConfigError, match=r"'lambda' was an object of another Python process; hint: .*resume\("):
        dqnitro.resume(tmp_path / "run", max_steps=200, progress=False)
    result = dqnitro.resume(tmp_path / "run", env=lambda: long_corridor(5), max_steps=200, progress=False)
    assert result.steps == 200 and result.agent.spec.obs_shape == (5,)


def test_a_function_named_in_a_strangers_files_is_not_called(tmp_path, monkeypatch):
    dqnitro.train(long_corridor, tmp_path / "run", **QUICK)
    monkeypatch.setattr(own, "_known", set())  # as in another process, in which this module is imported all the same
    for refused in (dqnitro.load, dqnitro.resume):
        with pytest.raises(CheckpointError, match=r"would import .* if you trust this run, say trust=True$"):
            refused(tmp_path / "run")
    assert dqnitro.load(tmp_path / "run", trust=True).spec.obs_shape == (9,)
    assert dqnitro.resume(tmp_path / "run", env=long_corridor, max_steps=130, progress=False).steps == 130


def test_a_piece_that_the_run_does_not_need_is_refused_on_resume(tmp_path):
    dqnitro.train(CORRIDOR, tmp_path / "run", **QUICK)
    with pytest.raises(ConfigError, match="env= cannot change on resume: the run has dqnitro_test/Corridor-v0"):
        dqnitro.resume(tmp_path / "run", env=long_corridor, progress=False)


def test_train_takes_an_environment_and_plays_copies_of_it():
    env = gym.wrappers.TimeLimit(long_corridor(5), 3)
    result = dqnitro.train(env, **QUICK | {"n_envs": 2})
    assert result.config.env_id.startswith("own:Corridor") and result.games > 20
    assert not hasattr(env.unwrapped, "at"), "the user's own one was reset"
    assert dqnitro.train(gym.make("CartPole-v1"), **QUICK).config.stop_at_score == 475


def test_arguments_that_are_not_json_reach_the_function():
    class Size:
        n = 8

    def make(size):
        return long_corridor(size.n)

    assert dqnitro.train(make, env_kwargs={"size": Size()}, **QUICK).agent.spec.obs_shape == (8,)


@pytest.mark.parametrize(
    ("env", "keywords", "message"),
    [
        (7, {}, "cannot train on 7; hint: pass a name"),
        ("CartPole-v1", {"max_step": 3}, "unknown setting 'max_step'; hint: did you mean max_steps"),
        ("CartPole-v1", {"lr": 1e-3}, "^unknown setting 'lr'; hint: did you mean learning_rate=[?]$"),
        ("CartPole-v1", {"total_timesteps": 9}, "unknown setting 'total_timesteps'; hint: did you mean max_steps=[?]$"),
        ("CartPole-v1", {"gpu": True}, "unknown setting 'gpu'; hint: did you mean device=\"cuda\"[?]$"),
        ("CartPole-v1", {"without": ["compile"]}, r'^without=\["compile"\]: recipe auto does not use it'),
        ("pong", {"env_kwargs": {"x": 1}}, "takes settings, not env_kwargs="),
        ("CartPole-v1", {"env_kwargs": {"x": object()}}, "env_kwargs= of CartPole-v1 must be numbers"),
        ("CartPole-v1", {"replay_capacity": 10**12}, r"hint: replay_capacity=\d+ fits"),
        ("CartPole-v1", {"envs": "ale"}, 'envs="ale" plays Atari only.*hint: use envs="gym-sync"'),
    ],
)
def test_errors_speak_python(env, keywords, message):
    with pytest.raises(ConfigError, match=message):
        dqnitro.train(env, progress=False, **keywords)


class Broken(gym.Env):
    """Without a time limit, so that the length of its games is found out before the run."""

    observation_space, action_space = gym.spaces.Box(-1.0, 1.0, (3,)), gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, np.float32), {}

    def step(self, action):
        raise RuntimeError("broken world")


def test_an_environment_that_fails_at_the_first_look_names_its_own_line():
    with pytest.raises(EnvFailed, match=r"^/.*test_api.py:\d+: RuntimeError: broken world \(in the env") as e:
        dqnitro.train(Broken, progress=False)
    assert isinstance(e.value.__cause__, RuntimeError)


def test_a_folder_that_is_not_empty_is_refused_in_python(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(ConfigError, match=r'hint: resume\(".*"\) continues that run; run_dir= takes a new name'):
        dqnitro.train(CORRIDOR, tmp_path, **QUICK)


def messages():
    """Every text with an option in it that is written into an error of the package, command-line files left out."""
    root = pathlib.Path(dqnitro.__file__).parent
    for path in root.rglob("*.py"):
        if path.parent.name in ("cli", "lab", "bench"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("Error"):
                for text in (n.value for n in ast.walk(node) if isinstance(n, ast.Constant)):
                    if isinstance(text, str) and re.search(r"(?<!\w)--[a-z]", text):
                        yield text


def test_no_option_is_left_in_any_message():
    found = list(messages())
    assert len(found) > 10
    for text in found:
        assert "--" not in in_python(text), text


@pytest.mark.parametrize(
    ("text", "python"),
    [
        ("use --device cpu, or", 'use device="cpu", or'),
        ("lower --learning-rate, set --grad-clip 10, or", "lower learning_rate=, set grad_clip=10, or"),
        ("--without bfloat16", 'without=["bfloat16"]'),
        ("--run-dir takes a new name", "run_dir= takes a new name"),
        ("--resume runs/a continues it", 'resume("runs/a") continues it'),
        ("free some space, then `--resume` the run", "free some space, then resume(run_dir)"),
        ("--no-double or --double", "double=False or double=True"),
        ("then add --trust (in Python trust=True, or import it)", "then say trust=True, or import it"),
        ("stopped by --steps after", "stopped by max_steps= after"),
    ],
)
def test_options_become_keywords(text, python):
    assert in_python(text) == python


def test_a_short_run_fills_and_explores_in_a_part_of_its_steps(capsys):
    def planned(**changes):
        return planning.planned(planning.Wish("CartPole-v1", changes=changes))

    config = planned(max_steps=2_000).config
    assert (config.first_fill_steps, config.epsilon_decay_steps) == (128, 1_000)
    assert planned(max_steps=10**6).config == planned().config.replace(max_steps=10**6)
    assert planned(max_steps=2_000, first_fill_steps=500, epsilon_decay_steps=7).config.epsilon_decay_steps == 7
    assert planned(max_steps=2_000).notes == ()
    (says,) = planned(max_steps=300, first_fill_steps=500).notes
    assert says.startswith("this run will not learn: it ends after 300 steps, and the first update comes after 500")
    dqnitro.train("CartPole-v1", max_steps=100, first_fill_steps=200, log_every_s=0.0)
    assert "this run will not learn" in capsys.readouterr().err


# ---- the trained agent


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "run"
    return path, dqnitro.train(CORRIDOR, path, **QUICK)


def test_a_loaded_agent_is_the_one_that_was_trained(run):
    path, result = run
    agent = dqnitro.load(path)
    obs = np.eye(6, dtype=np.float32)
    assert agent.values(obs).shape == (6, 2)
    assert torch.equal(agent.values(obs), result.agent.values(obs))
    assert (agent.act(obs) == agent.values(obs).argmax(-1).numpy()).all() and agent.act(obs).dtype == np.int64
    assert agent.act(obs[3]) == agent.act(obs)[3] and isinstance(agent.act(obs[3]), int)
    assert torch.equal(agent.network(torch.from_numpy(obs)), agent.values(torch.from_numpy(obs)))
    assert isinstance(agent.network, torch.nn.Module) and agent.network.state_dict()


def test_an_agent_of_a_distribution_has_one_value_an_action():
    agent = dqnitro.train(CORRIDOR, categorical=True, atoms=5, **QUICK).agent
    obs = np.eye(6, dtype=np.float32)
    assert agent.values(obs).shape == (6, 2) and (agent.values(obs).abs() <= 10).all()


def test_an_agent_scores_itself_and_plays_in_its_environment(run):
    agent = dqnitro.load(run[0])
    scored = agent.score(games=4)
    assert len(scored.scores) == 4 and scored.low <= scored.mean <= scored.high
    assert scored == agent.score(games=4), "the same seed, the same games"
    env = agent.make_env()
    obs, _ = env.reset(seed=0)
    env.step(agent.act(obs))
    assert agent.act(obs, epsilon=1.0, rng=np.random.default_rng(0)) in (0, 1)


def test_wrong_observations_and_folders_are_refused(run, tmp_path):
    with pytest.raises(ValueError, match=r"expected observations of shape \(6,\) or \(batch, 6\), got \(2, 5\)"):
        dqnitro.load(run[0]).act(np.zeros((2, 5)))
    with pytest.raises(CheckpointError, match="is not a run folder"):
        dqnitro.load(tmp_path)
    with pytest.raises(ConfigError, match="games must be at least 1"):
        dqnitro.load(run[0]).score(games=0)


def test_page_and_video_are_written_as_the_command_does(tmp_path, monkeypatch):
    pytest.importorskip("pygame", reason="CartPole draws itself with it: pip install pygame-ce")
    monkeypatch.chdir(tmp_path)
    result = dqnitro.train("CartPole-v1", page=True, video=True, **QUICK)
    assert result.run_dir.parent.name == "runs" and result.page.is_file() and result.video.is_file()
    assert "CartPole-v1" in result.page.read_text() and result.to_dict()["page"] == str(result.page)


def test_a_notebook_shows_the_block_in_place(monkeypatch):
    shown = []

    class Shown:
        def update(self, block):
            shown.append(("update", block))

    display = types.ModuleType("IPython.display")
    display.HTML = str
    display.display = lambda block, display_id: shown.append(("display", block)) or Shown()
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    ipython.display = display
    assert not in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert in_notebook()
    dqnitro.train(CORRIDOR, log_every_s=1e-9, **QUICK | {"progress": True})
    assert shown[0][0] == "display" and {kind for kind, _ in shown[1:]} == {"update"}
    assert "120 steps" in shown[-1][1] and shown[-1][1].startswith("<pre>")
    assert NotebookSink(Config(), "x").close() is None

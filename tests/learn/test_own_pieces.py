"""One's own network, loss, optimiser and replay: by function or name, checked at the start, resumed bit for bit."""

import pytest
import torch
from torch import nn

import dqnitro
from dqnitro import own
from dqnitro.errors import ConfigError, PieceFailed
from dqnitro.replay.plain import PlainReplay
from dqnitro.store.run_folder import RunFolder
from support import fakes_envs

fakes_envs.register()
CORRIDOR = "dqnitro_test/Corridor-v0"
QUICK = {
    "epsilon_decay_steps": 100,
    "learning_rate": 1e-3,  # one that stays, however many steps there are
    "batch_size": 8,
    "first_fill_steps": 40,
    "replay_capacity": 200,
    "max_steps": 150,
    "progress": False,
}


def tiny(obs_shape, n_actions):
    return nn.Sequential(nn.Flatten(), nn.Linear(obs_shape[0], 12), nn.Tanh(), nn.Linear(12, n_actions))


def fourth_power(value, target):
    return (value - target) ** 4


def adagrad(parameters, lr):
    return torch.optim.Adagrad(parameters, lr=lr)


def list_replay(config, spec):
    return PlainReplay(config.replay_capacity, spec, config.n_step, config.gamma)


OWN = {"network": tiny, "loss": fourth_power, "optimizer": adagrad, "replay": list_replay}


@pytest.mark.parametrize("kind", OWN)
def test_a_run_with_a_piece_of_ones_own_is_another_run_and_resumes(kind, tmp_path):
    settings = {**QUICK, kind: OWN[kind]}
    whole = dqnitro.train(CORRIDOR, **settings)
    assert getattr(whole.config, kind).endswith(f":{OWN[kind].__name__}") and whole.updates > 50
    dqnitro.train(CORRIDOR, tmp_path / "run", **settings | {"max_steps": 80})
    again = dqnitro.resume(tmp_path / "run", max_steps=150, progress=False)
    pairs = list(zip(whole.agent.network.parameters(), again.agent.network.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)
    loaded = dqnitro.load(tmp_path / "run")
    assert torch.equal(next(loaded.network.parameters()), pairs[0][1])
    if kind != "replay":  # that one is the plain one, which gives the same batches
        plain = dqnitro.train(CORRIDOR, **QUICK).agent.network.parameters()
        assert any(a.shape != b.shape or not torch.equal(a, b) for (a, _), b in zip(pairs, plain, strict=True))


def test_an_optimiser_of_torch_by_its_name():
    result = dqnitro.train(CORRIDOR, optimizer="torch.optim:SGD", **QUICK)
    assert result.updates > 50 and "fused-adam" not in result.config.wrappers


def test_a_registered_name_means_what_was_registered(monkeypatch):
    monkeypatch.setattr(own, "_table", {})
    dqnitro.register("network", "tiny")(tiny)
    assert dqnitro.train(CORRIDOR, network="tiny", **QUICK).config.network == "tiny"
    with pytest.raises(ConfigError, match="nothing of kind 'net' can be registered"):
        dqnitro.register("net", "x")
    with pytest.raises(ConfigError, match="network must be one of nature, .*got 'tinny'; hint: one of your own"):
        dqnitro.train(CORRIDOR, network="tinny", **QUICK)


def test_the_other_process_builds_the_network_too():
    result = dqnitro.train(CORRIDOR, network=tiny, runner="processes", **QUICK)
    alone = dqnitro.train(CORRIDOR, network=tiny, **QUICK)
    pairs = zip(result.agent.network.parameters(), alone.agent.network.parameters(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network": lambda shape, n: nn.Linear(6, n + 1)}, r"returned \(2, 3\) of torch.float32, expected .*\(2, 2\)"),
        ({"network": lambda shape, n: nn.Linear(5, n)}, r"cannot take observations \(2, 6\) of torch.float32"),
        ({"network": lambda shape, n: 7}, "returned int, expected a torch.nn.Module"),
        ({"network": tiny, "dueling": True}, "dueling is for the networks that come with dqnitro"),
        ({"loss": lambda v, t: (v - t).square().mean()}, r'returned \(\) .* reduction="none"'),
        ({"loss": fourth_power, "categorical": True}, "learns a distribution"),
        ({"optimizer": lambda p, lr: 3}, "returned int, expected a torch.optim.Optimizer"),
        ({"replay": lambda config, spec: []}, "has no start, add, sample"),
        ({"network": "no_such_module:f"}, "no module named 'no_such_module'"),
        ({"network": "math:nothing"}, "module math has no 'nothing'"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_step(settings, message):
    with pytest.raises(ConfigError, match=message):
        dqnitro.train(CORRIDOR, **QUICK | settings)


@pytest.mark.parametrize("runner", ["device", "hybrid"])
@pytest.mark.parametrize("kind", ["optimizer", "replay"])
def test_the_gpu_runners_say_what_they_cannot_carry(runner, kind):
    from dqnitro.learn.own_pieces import check_runner

    config = dqnitro.Config(runner=runner, **{kind: own.name_of(kind, OWN[kind])})
    with pytest.raises(ConfigError, match=f"runner {runner} cannot use {kind} .*use --runner inline or processes"):
        check_runner(config)


@pytest.mark.parametrize(
    ("piece", "why"),
    [
        (
            lambda *a, **k: 1 / 0,
            "raised an exception: .*test_own_pieces.py:[0-9]+: ZeroDivisionError: division by zero",
        ),
        (lambda: None, "raised an exception: TypeError: "),
    ],
)
@pytest.mark.parametrize("kind", OWN)
def test_a_piece_that_cannot_be_made_is_one_line(kind, piece, why, tmp_path):
    with pytest.raises(ConfigError, match=f"^{kind} .* {why}") as error:
        dqnitro.train(CORRIDOR, tmp_path / "runs" / "run", **QUICK, **{kind: piece})
    assert "\n" not in str(error.value) and not list(tmp_path.iterdir())


def test_what_is_no_function_is_one_line(monkeypatch):
    monkeypatch.setitem(own._table, ("loss", "five"), 5)
    with pytest.raises(ConfigError, match="loss five is a int, not a function or class"):
        dqnitro.train(CORRIDOR, **QUICK, loss="five")


def test_a_piece_that_fails_on_the_way_costs_the_steps_since_the_checkpoint(tmp_path, monkeypatch):
    """Nothing half done is saved, and repaired it is the run to which nothing happened."""
    calls = []

    def loss(value, target):
        calls.append(1)
        if len(calls) == 60:
            raise ValueError("not\ntoday")
        return (value - target) ** 2

    monkeypatch.setitem(own._table, ("loss", "failing"), loss)
    settings = {**QUICK, "loss": "failing", "checkpoint_every_s": 1e-9}
    with pytest.raises(PieceFailed, match=r"test_own_pieces.py:\d+: ValueError: not today .*last checkpoint") as error:
        dqnitro.train(CORRIDOR, tmp_path / "run", **settings)
    assert isinstance(error.value.__cause__, ValueError) and error.value.exit_code == 5
    assert RunFolder(tmp_path / "run").read_summary()["state"] == "crashed"
    again = dqnitro.resume(tmp_path / "run", progress=False)
    whole = dqnitro.train(CORRIDOR, **settings)
    pairs = zip(whole.agent.network.parameters(), again.agent.network.parameters(), strict=True)
    assert again.steps == whole.steps >= 150 and all(torch.equal(a, b) for a, b in pairs)


def test_what_a_piece_returns_on_the_way_is_told_too(monkeypatch):
    answers = iter([True] * 30)
    monkeypatch.setitem(
        own._table, ("loss", "late"), lambda value, target: (value - target) ** 2 if next(answers, False) else None
    )
    with pytest.raises(PieceFailed, match=r"TypeError: .* \(in a run with the loss of your own\)"):
        dqnitro.train(CORRIDOR, **QUICK, loss="late")


def test_a_network_that_fails_while_the_run_warms_up_is_one_line(tmp_path):
    """After it was looked at, and before the first step."""
    calls = []

    class Tired(nn.Linear):
        def forward(self, x):
            calls.append(1)
            if len(calls) == 4:
                raise ValueError("tired")
            return super().forward(x)

    with pytest.raises(ConfigError, match=r"test_own_pieces.py:\d+: ValueError: tired \(in a run with the network"):
        dqnitro.train(CORRIDOR, tmp_path / "runs" / "run", **QUICK, network=lambda shape, n: Tired(shape[0], n))
    assert not list(tmp_path.iterdir())

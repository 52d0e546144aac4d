"""One's own network, loss, optimiser and replay: by function or name, checked at the start, resumed bit for bit."""

import pytest
import torch
from torch import nn

import dqnitro
import fakes_envs
from dqnitro import own
from dqnitro.errors import ConfigError
from dqnitro.replay.plain import PlainReplay

fakes_envs.register()
CORRIDOR = "dqnitro_test/Corridor-v0"
QUICK = {
    "epsilon_decay_steps": 100,
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

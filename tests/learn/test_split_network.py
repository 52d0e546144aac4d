"""The hidden layer on a second thread: what is done where, and that it is the run of one thread bit for bit."""

import threading

import pytest
import torch

from dqnitro.config import Config
from dqnitro.dqn import Batch, ConvNetwork, HeadSpec
from dqnitro.errors import ConfigError
from dqnitro.learn.cpu import handwritten_passes, split_network
from dqnitro.learn.cpu.one_pass_adam import OnePassAdam
from dqnitro.learn.losses import make_losses
from dqnitro.learn.transforms import wrap
from dqnitro.session import resume, train
from support import fakes_envs

fakes_envs.register()
BY_HAND = ("no-grad", "channels-last", "bfloat16", "distinct-patches", "one-pass-adam")
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", n_envs=2, frame_stack=4, screen_size=36, network="small", hidden_units=512,
    batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, max_steps=70, torch_threads=1, replay="frames",
    epsilon_start=0.3, wrappers=BY_HAND,
)  # fmt: skip
CASES = {
    "plain": {},
    "everything": {"double": True, "dueling": True, "n_step": 3, "prioritized": True, "categorical": True},
    "clipped": {"grad_clip": 0.05, "dueling": True},
    "large output layer": {"categorical": True, "atoms": 101},  # its gradient is float32 all the same
    "small hidden layer": {"hidden_units": 16},  # no gradient stays in bfloat16
    "another optimiser": {"wrappers": ("no-grad", "channels-last", "bfloat16", "written-out", "fused-adam")},
}


def parameters(result) -> list[torch.Tensor]:
    return [p.detach() for p in result.agent.learner.online.parameters()]


def same(a, b) -> bool:
    return a.updates == b.updates > 10 and all(map(torch.equal, parameters(a), parameters(b)))


@pytest.mark.parametrize("case", CASES)
def test_a_run_is_the_run_of_one_thread(case):
    config = CATCH.replace(**CASES[case])
    divided = config.replace(wrappers=(*config.wrappers, "split-network"))
    assert same(train(config), train(divided))


def test_a_resumed_run_is_the_run_without_a_stop(tmp_path):
    config = CATCH.replace(wrappers=(*BY_HAND, "split-network"))
    whole = train(config)
    train(config.replace(max_steps=60), tmp_path / "run")
    assert same(whole, resume(tmp_path / "run", max_steps=70))


def watch(monkeypatch) -> dict[str, set[str]]:
    """The names of the threads that come to each place."""
    seen: dict[str, set[str]] = {}

    def replace(owner, name) -> None:
        real = getattr(owner, name)

        def call(*args, **kwargs):
            seen.setdefault(name, set()).add(threading.current_thread().name)
            return real(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    for name in ("head_backward", "hidden_gradients"):
        replace(split_network, name)
    replace(OnePassAdam, "_step_shadow")
    replace(OnePassAdam, "_step_floats")
    return seen


@pytest.mark.parametrize("clip", [0.0, 0.05])
def test_the_hidden_layer_is_the_second_threads_and_nothing_else_is(clip, monkeypatch):
    seen, me = watch(monkeypatch), threading.current_thread().name
    train(CATCH.replace(wrappers=(*BY_HAND, "split-network"), grad_clip=clip, max_steps=50))
    side = {"dqnitro-side-thread"}
    assert seen == {
        "head_backward": side, "hidden_gradients": side, "_step_shadow": side, "_step_floats": {me},
    }  # fmt: skip


def make() -> ConvNetwork:
    torch.manual_seed(3)
    return ConvNetwork((4, 36, 36), "small", 512, HeadSpec(3, dueling=True))


def batch(obs: torch.Tensor) -> Batch:
    ones = torch.ones(len(obs))
    return Batch(obs, torch.zeros(len(obs), dtype=torch.int64), ones, ones, obs, ones)


def test_what_was_stepped_early_is_stepped_once_and_what_was_not_is_stepped_later():
    """Two streams, two large layers; the gradients of both are under way when the step comes."""
    networks = {name: make() for name in ("one", "two")}
    obs = torch.randint(0, 256, (6, 4, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    for name, network in networks.items():
        parts = wrap((*BY_HAND, "split-network")[: 6 if name == "two" else 5], "cpu")
        optimizer = parts.make_optimizer(network.parameters(), 1e-3, 1e-8)
        losses = make_losses(CATCH, parts, None)
        for early in (True, False, True):
            loss, _ = losses.whole(network, make(), batch(obs))
            optimizer.zero_grad()
            if early and isinstance(optimizer, OnePassAdam) and optimizer.side_thread is not None:
                optimizer.step_early()
            loss.backward()
            optimizer.step()
        assert isinstance(optimizer, OnePassAdam) and not optimizer.shadows.are_pending
        shadows = [(p, s) for p in network.parameters() if (s := optimizer.shadows.get(p)) is not None]
        assert len(shadows) == 2 and all(s.is_current(p._version) and not s.has_gradient for p, s in shadows)
        assert {float(state["step"]) for state in optimizer.state.values()} == {3.0}
    pairs = zip(networks["one"].parameters(), networks["two"].parameters(), strict=True)
    assert all(torch.equal(p, q) for p, q in pairs)


def test_a_pass_that_fails_leaves_nothing_under_way(monkeypatch):
    network, parts = make(), wrap(("no-grad", "channels-last", "written-out", "split-network"), "cpu")
    loss = make_losses(CATCH, parts, None).whole
    good = batch(torch.zeros((2, 4, 36, 36), dtype=torch.uint8))
    for name in ("obs_tm1", "obs_t"):
        with pytest.raises(RuntimeError):  # two channels where four are expected
            loss(network, network, good._replace(**{name: good.obs_t[:, :2]}))
    value, _ = loss(network, network, good)
    with monkeypatch.context() as m:
        m.setattr(handwritten_passes.DenseConvs, "backward", lambda *_: 1 // 0)
        with pytest.raises(ZeroDivisionError):
            value.backward()
    value, _ = loss(network, network, good)
    value.backward()
    assert all(p.grad is not None for p in network.parameters())


def test_it_divides_what_is_written_out_and_nothing_else():
    with pytest.raises(ConfigError, match="passes written out by hand; hint: add distinct-patches"):
        wrap(("split-network",), "cpu")
    with pytest.raises(ConfigError, match="exclude each other"):
        wrap(("compile", "split-network"), "cpu")

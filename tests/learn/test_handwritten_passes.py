"""The passes written out by hand beside the network itself: values, every gradient, and copies that never go stale."""

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.dqn import ConvNetwork, HeadSpec, VectorNetwork
from dqnitro.errors import ConfigError
from dqnitro.learn.cpu.handwritten_passes import DenseConvs, HandwrittenPasses, run_forward
from dqnitro.learn.transforms import wrap
from dqnitro.session import resume, train
from support import fakes_envs
from support.fakes_player import in_threads

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", n_envs=2, frame_stack=4, screen_size=36, network="small", hidden_units=32,
    batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, max_steps=80, torch_threads=1, replay="frames",
    epsilon_start=0.3, wrappers=("no-grad", "fused-adam", "channels-last", "bfloat16", "written-out"),
)  # fmt: skip


def make(kind: str = "nature", dueling: bool = False, atoms: int = 1, last: bool = True) -> ConvNetwork:
    torch.manual_seed(3)
    network = ConvNetwork((4, 44, 44), kind, 24, HeadSpec(5, dueling, atoms))
    return wrap(("channels-last",) if last else (), "cpu").prepare(network)  # type: ignore[return-value]


def pixels(n: int = 6) -> torch.Tensor:
    return torch.randint(0, 256, (n, 4, 44, 44), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def gradients(network: ConvNetwork, out: torch.Tensor) -> dict[str, torch.Tensor]:
    network.zero_grad()
    torch.manual_seed(4)
    (out * torch.randn_like(out)).mean().backward()
    return {name: p.grad.clone() for name, p in network.named_parameters()}  # type: ignore[union-attr]


@pytest.mark.parametrize("case", [{}, {"kind": "small", "dueling": True}, {"dueling": True, "atoms": 3, "last": False}])
def test_values_and_all_gradients_are_the_networks_but_for_rounding(case):
    network, by_hand, obs = make(**case), HandwrittenPasses(), pixels()
    slow, fast = network(obs), by_hand.forward(network, obs)
    assert fast.shape == slow.shape and fast.dtype == torch.float32
    no_grad = by_hand.forward_no_grad(network, obs)
    assert torch.equal(no_grad, fast.detach()) and not no_grad.requires_grad
    spread = slow.std()
    assert 0 < (fast - slow).abs().max() < 0.05 * spread
    autocast = wrap(("channels-last",) * case.get("last", True) + ("bfloat16",), "cpu").forward(network, obs)
    want, got, other = (gradients(network, out) for out in (slow, fast, autocast))
    for name, p in network.named_parameters():
        assert got[name].dtype == torch.float32 and got[name].stride() == p.stride()
        # As near to float32 as autocast gets; a missing scale, a wrong order or a lost term would be far off.
        error, usual = ((g[name] - want[name]).norm() / want[name].norm() for g in (got, other))
        assert error < 1.5 * usual + 2e-3 and error < 0.1, name


def test_layouts_of_the_bytes_make_no_difference():
    network, by_hand, obs = make(), HandwrittenPasses(), pixels()
    last = obs.contiguous(memory_format=torch.channels_last)
    assert torch.equal(by_hand.forward_no_grad(network, obs), by_hand.forward_no_grad(network, last))


@pytest.mark.parametrize("fused", [False, True])
def test_copies_follow_the_optimiser_loading_and_memory_written_elsewhere(fused):
    parts = wrap(("fused-adam",) * fused + ("written-out",), "cpu")
    network, obs = make(), pixels()
    optimizer = parts.make_optimizer(network.parameters(), 1e-2, 1e-8)

    def fresh() -> bool:
        return torch.equal(parts.act(network, obs), HandwrittenPasses().forward_no_grad(network, obs))

    before = parts.act(network, obs)
    parts.step(parts.forward(network, obs).square().mean(), network, optimizer, 0.0)
    assert fresh() and not torch.equal(before, parts.act(network, obs))
    network.load_state_dict(make("nature").state_dict())
    assert fresh() and torch.equal(before, parts.act(network, obs))
    for p in network.parameters():
        p.data = p.data * 1.5  # as a player takes its weights
    torch.autograd.graph.increment_version(network.parameters())
    assert fresh() and not torch.equal(before, parts.act(network, obs))


def test_weights_are_converted_once_an_update_not_once_a_pass(monkeypatch):
    conversions, real = [], torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda *a: (conversions.append(1), real(*a)))
    network, by_hand, obs = make(), HandwrittenPasses(), pixels()
    for _ in range(3):
        by_hand.forward_no_grad(network, obs)
        by_hand.forward(network, obs)
    assert len(conversions) == 1


def test_other_networks_and_other_devices_are_not_its_business():
    network = VectorNetwork((4,), 8, HeadSpec(2))
    x = torch.randn(3, 4)
    assert torch.equal(wrap(("written-out",), "cpu").forward(network, x), network(x))
    with pytest.raises(ConfigError, match=r"written-out is for a learner on the CPU; hint: on a GPU take bfloat16"):
        wrap(("written-out",), "cuda")
    with pytest.raises(ConfigError, match="exclude each other"):
        wrap(("float16", "written-out"), "cpu")


def test_the_fast_recipe_without_a_rung_has_what_that_rung_took_off(monkeypatch):
    from dqnitro import recipes

    monkeypatch.setattr(recipes, "few_cores", lambda: False)
    plan = recipes.untuned("fast", "pong")
    if "distinct-patches" not in plan.rungs:
        pytest.skip(f"not in the recipe here: {plan.left_out['distinct-patches']}")
    assert "distinct-patches" in plan.config().wrappers and "written-out" not in (*plan.rungs, *plan.config().wrappers)
    assert plan.climbed(without=("distinct-patches",))[-2:] == ("bfloat16", "written-out")
    assert plan.config(without=("distinct-patches", "written-out")).wrappers[-1] == "bfloat16"
    assert plan.climbed(also=("compile",))[-2:] == ("bfloat16", "compile")
    assert "fused-adam" not in plan.climbed(also=("one-pass-adam",))


def test_nothing_is_kept_of_a_pass_that_does_not_learn():
    network, by_hand = make(), HandwrittenPasses()
    _, kept = run_forward(DenseConvs(), by_hand.weights(network), pixels())
    tensors = [*kept.inputs, kept.flat, *(t for stream in kept.hidden for t in stream)]
    assert len(tensors) == 3 + 2 + 2 and all(t.grad_fn is None for t in tensors)


def test_a_run_with_a_player_is_the_run_without_one(monkeypatch):
    """The player's weights are views of memory that the trainer writes: copies made of them must not outlive a step."""
    in_threads(monkeypatch)
    inline, apart = train(CATCH), train(CATCH.replace(runner="processes", slack_steps=0))
    assert inline.updates == apart.updates > 30
    pairs = zip(inline.agent.learner.online.parameters(), apart.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_a_resumed_run_is_the_run_without_a_stop(tmp_path):
    whole = train(CATCH)
    train(CATCH.replace(max_steps=60), tmp_path / "run")
    resumed = resume(tmp_path / "run", max_steps=80)
    pairs = zip(whole.agent.learner.online.parameters(), resumed.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)
    assert np.isfinite(whole.agent.learner.greedy(whole.agent.obs)).all()

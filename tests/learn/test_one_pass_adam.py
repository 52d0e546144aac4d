"""Adam in one pass beside torch's: every step, clipping, the state it saves,
and what it reads and writes in bfloat16.
"""

import copy

import pytest
import torch
from torch import nn

from dqnitro.dqn import ConvNetwork, HeadSpec
from dqnitro.errors import ConfigError
from dqnitro.learn.cpu.bf16_shadow import Bf16Shadows
from dqnitro.learn.cpu.handwritten_passes import HandwrittenPasses
from dqnitro.learn.cpu.one_pass_adam import LARGE, OnePassAdam, OnePassStep
from dqnitro.learn.optimizer_step import PlainStep
from dqnitro.learn.transforms import wrap

WRAPPERS = ("channels-last", "written-out", "one-pass-adam")


def make(hidden: int = 512) -> ConvNetwork:
    torch.manual_seed(3)
    network = ConvNetwork((4, 36, 36), "small", hidden, HeadSpec(3, dueling=True))
    return wrap(("channels-last",), "cpu").prepare(network)  # type: ignore[return-value]


def pixels(n: int = 6) -> torch.Tensor:
    return torch.randint(0, 256, (n, 4, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def difference(a: nn.Module, b: nn.Module) -> float:
    return max(float((p - q).detach().abs().max()) for p, q in zip(a.parameters(), b.parameters(), strict=True))


@pytest.mark.parametrize("largest_norm", [0.0, 0.05])
def test_every_step_is_torchs_but_for_rounding(largest_norm):
    a, b, obs = make(16), make(16), pixels()
    slow, fast = torch.optim.Adam(a.parameters(), lr=1e-2, eps=1e-4), OnePassAdam(b.parameters(), 1e-2, 1e-4)
    scales = []
    for _ in range(20):
        # The same gradients for both: of two networks that drift apart they would not be.
        loss = a(obs).square().mean()
        gradients = torch.autograd.grad(loss, list(a.parameters()), retain_graph=True)
        PlainStep()(loss, a, slow, largest_norm)
        OnePassStep()(sum((p * g).sum() for p, g in zip(b.parameters(), gradients, strict=True)), b, fast, largest_norm)
        scales.append(fast.scale)
        assert difference(a, b) < 1e-6
    assert difference(a, make(16)) > 1e-2 and (min(scales) < 1.0) == (largest_norm > 0)
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        mine, theirs = fast.state[q], slow.state[p]
        assert set(mine) == set(theirs) and mine["step"] == theirs["step"] == 20
        assert all(mine[k].stride() == theirs[k].stride() for k in ("exp_avg", "exp_avg_sq"))
        torch.testing.assert_close(mine["exp_avg_sq"], theirs["exp_avg_sq"], rtol=1e-3, atol=1e-9)


def test_large_gradients_and_weights_stay_in_bfloat16():
    parts, obs = wrap(WRAPPERS, "cpu"), pixels()
    a, b = make(), make()
    plain = wrap(("channels-last", "written-out"), "cpu")
    fast, slow = parts.make_optimizer(a.parameters(), 1e-3, 1e-3), plain.make_optimizer(b.parameters(), 1e-3, 1e-3)
    assert isinstance(fast, OnePassAdam)
    large = [p for p in a.parameters() if p.numel() >= LARGE]
    assert len(large) == 2  # the hidden layers of both streams
    for _ in range(5):
        # Both begin with the same weights: a last bit that differs may make another bfloat16 weight, and then other
        # gradients.
        b.load_state_dict(a.state_dict())
        parts.step(parts.forward(a, obs).square().mean(), a, fast, 0.0)
        plain.step(plain.forward(b, obs).square().mean(), b, slow, 0.0)
        assert difference(a, b) < 1e-6
        for p in large:
            shadow = fast.shadows.get(p)
            assert p.grad is None and shadow is not None and shadow.is_current(p._version)
            assert torch.equal(shadow.weights, p.detach().to(torch.bfloat16)) and shadow.gradient.abs().max() > 0
    assert difference(a, make()) > 1e-3


def test_clipping_counts_the_gradients_that_are_in_bfloat16():
    parts, plain, obs = wrap(WRAPPERS, "cpu"), wrap(("channels-last", "written-out"), "cpu"), pixels()
    a, b = make(), make()
    fast, slow = parts.make_optimizer(a.parameters(), 1e-3, 1.0), plain.make_optimizer(b.parameters(), 1e-3, 1.0)
    for _ in range(3):
        parts.step(parts.forward(a, obs).square().mean(), a, fast, 0.02)
        plain.step(plain.forward(b, obs).square().mean(), b, slow, 0.02)
    assert isinstance(fast, OnePassAdam) and fast.scale < 1.0
    moved = difference(a, make())
    assert moved > 0 and difference(a, b) < 0.01 * moved


def test_copies_that_the_optimiser_wrote_are_not_made_again_and_never_stale(monkeypatch):
    parts, network, obs = wrap(WRAPPERS, "cpu"), make(), pixels()
    optimizer = parts.make_optimizer(network.parameters(), 1e-2, 1e-8)
    converted, real = [], torch._foreach_copy_
    monkeypatch.setattr(torch, "_foreach_copy_", lambda new, old: (converted.append(len(new)), real(new, old)))

    def fresh() -> bool:
        return torch.equal(parts.act(network, obs), HandwrittenPasses().forward_no_grad(network, obs))

    parts.step(parts.forward(network, obs).square().mean(), network, optimizer, 0.0)
    parts.act(network, obs)
    assert converted == [8, 6]  # all at first; then all but the two large ones
    assert fresh()
    network.load_state_dict({k: v * 1.5 for k, v in make().state_dict().items()})
    assert fresh()
    optimizer.zero_grad()
    network(
        obs
    ).square().mean().backward()  # float32 gradients from another pass: the copies are the reader's work again
    optimizer.step()
    assert fresh()


def test_two_passes_before_a_step_add_up():
    parts, network, obs = wrap(WRAPPERS, "cpu"), make(), pixels()
    optimizer = parts.make_optimizer(network.parameters(), 1e-2, 1e-8)
    assert isinstance(optimizer, OnePassAdam)

    def total(times: int) -> list[torch.Tensor]:
        optimizer.zero_grad()
        for _ in range(times):
            parts.forward(network, obs).square().mean().backward()
        return [g.float().clone() for g in optimizer.gradients()]

    once, twice = total(1), total(2)
    assert len(once) == len(list(network.parameters()))
    for a, b in zip(once, twice, strict=True):
        torch.testing.assert_close(b, 2 * a, rtol=1e-2, atol=1e-6)


def test_a_step_uses_bfloat16_gradients_up_and_another_optimiser_has_shadows_of_its_own():
    parts, network, obs = wrap(WRAPPERS, "cpu"), make(), pixels()
    for _ in range(2):
        optimizer = parts.make_optimizer(network.parameters(), 1e-2, 1e-8)
        assert isinstance(optimizer, OnePassAdam) and not list(optimizer.shadows.with_gradient())
        parts.forward(network, obs).square().mean().backward()
        large = {p for p, _ in optimizer.shadows.with_gradient()}
        assert large == {p for p in network.parameters() if p.grad is None} and len(large) == 2
        optimizer.step()
        assert not list(optimizer.shadows.with_gradient())
        assert {float(state["step"]) for state in optimizer.state.values()} == {1.0}
        optimizer.zero_grad()


def test_an_error_in_the_thread_that_makes_gradients_is_raised_once():
    shadows = Bf16Shadows()
    shadows.expect(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        shadows.expect(lambda: None)  # waits for those before
    shadows.clear()
    assert not shadows.are_pending


def test_two_kinds_of_gradient_of_one_parameter_are_refused():
    parts, network, obs = wrap(WRAPPERS, "cpu"), make(), pixels()
    optimizer = parts.make_optimizer(network.parameters(), 1e-2, 1e-8)
    parts.forward(network, obs).square().mean().backward()
    network(obs).square().mean().backward()
    with pytest.raises(AssertionError, match="a float32 and a bfloat16 gradient"):
        optimizer.step()


def test_state_of_torchs_optimiser_is_read_and_goes_on():
    a, b, obs = make(16), make(16), pixels()
    slow = torch.optim.Adam(a.parameters(), lr=1e-2, fused=True)
    for _ in range(4):
        PlainStep()(a(obs).square().mean(), a, slow, 0.0)
    fast = OnePassAdam(b.parameters(), 1e-2, 1e-8)
    OnePassStep()(b(obs).square().mean(), b, fast, 0.0)  # has looked at moments that are then replaced
    b.load_state_dict(a.state_dict())
    fast.load_state_dict({**fast.state_dict(), "state": copy.deepcopy(slow.state_dict()["state"])})
    PlainStep()(a(obs).square().mean(), a, slow, 0.0)
    OnePassStep()(b(obs).square().mean(), b, fast, 0.0)
    assert difference(a, b) < 1e-5


def test_it_is_for_the_cpu_and_not_beside_another_optimiser():
    with pytest.raises(ConfigError, match=r"one-pass-adam is for a learner on the CPU; hint: on a GPU take fused-adam"):
        wrap(("one-pass-adam",), "cuda")
    with pytest.raises(ConfigError, match="exclude each other"):
        wrap(("fused-adam", "one-pass-adam"), "cpu")

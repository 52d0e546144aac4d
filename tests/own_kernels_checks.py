"""Checks of `learn.gpu.fused_update` beside autograd. On a CPU Triton interprets its kernels, which has to be said
before it is imported: `test_fused_update` runs this file in a process of its own. On a GPU the same checks are
`tests/gpu/test_own_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dqnitro.config import Config
from dqnitro.distributed.ranks import ALONE, Ranks
from dqnitro.envs.base import EnvSpec
from dqnitro.learn.gpu import fused_update
from dqnitro.learn.gpu.fused_update import FusedUpdate
from dqnitro.learn.gpu.packed_weights import Packed
from dqnitro.learn.learner import Learner
from dqnitro.replay.gpu_ring import Ring

ACTIONS, ENVS = 5, 3
KINDS: dict[str, dict[str, Any]] = {
    "dqn": {"loss": "mse"},
    "double dueling, three steps": {
        "double": True,
        "dueling": True,
        "loss": "huber",
        "n_step": 3,
        "learning_rate_end": 2e-4,
        "learning_rate_decay_steps": 2,  # another rate in each of three updates
    },
}


def full_ring(slots: int, device: str) -> Ring:
    """Random frames; games end, are cut off, and begin; some environments are resetting."""
    chance = torch.Generator().manual_seed(3)
    ring = Ring(slots, ENVS, 84, 4, device, deep=True)
    shape = (slots, ENVS)
    ring.frames.copy_(torch.randint(0, 256, ring.frames.shape, generator=chance))
    ring.action.copy_(torch.randint(0, ACTIONS, shape, generator=chance))
    ring.reward.copy_(torch.randint(-1, 2, shape, generator=chance))
    for name, share in (("terminated", 0.1), ("truncated", 0.1), ("valid", 0.9)):
        getattr(ring, name).copy_(torch.rand(shape, generator=chance) < share)
    ring.age.copy_(torch.randint(0, 6, shape, generator=chance))  # below 3: frames from before the game began
    ring.head.fill_(slots // 2)
    ring.filled.fill_(slots)
    return ring


def config_of(kind: str, batch: int) -> Config:
    return Config(env_id="pong").replace(
        n_envs=ENVS, batch_size=batch, hidden_units=64, learning_rate=1e-3, adam_epsilon=1e-3,
        wrappers=("no-grad",), **KINDS[kind]
    )  # fmt: skip


class Others:
    """Another rank, whose gradients are `times` those of this one."""

    rank, size = 0, 2

    def __init__(self, times: float) -> None:
        self._times, self.numbers = times, 0

    def total_(self, x: torch.Tensor) -> None:
        x.mul_(1 + self._times)

    def start_mean_(self, x: torch.Tensor) -> Callable[[], None]:
        self.numbers += x.numel()

        def wait() -> None:
            x.mul_((1 + self._times) / 2)

        return wait

    def totals(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)


def pair(
    config: Config, device: str, dtype: torch.dtype, together: int, ranks: Ranks = ALONE
) -> tuple[FusedUpdate, Learner, Learner, Ring]:
    """Our kernels and a plain learner with the same weights. The target network is another one, so that a mix-up would
    show.
    """
    ring = full_ring(80, device)
    spec = EnvSpec(ENVS, ACTIONS, (4, 84, 84), np.dtype(np.uint8), 4, 4, True)
    mine, plain = (Learner(config, spec, device) for _ in range(2))
    other = Learner(config.replace(seed=9), spec, device)
    for learner in (mine, plain):
        learner.target.load_state_dict(other.online.state_dict())
    return FusedUpdate(config, mine, ring, together, dtype, ranks), mine, plain, ring


def same_weights(a: Packed, b: Packed) -> bool:
    unused = len(a.first)  # of the flat weights the first layer's place
    assert not a.flat[:unused].any() and not b.flat[:unused].any()
    return all(torch.equal(x, y) for x, y in zip(a.copies, b.copies, strict=True))


def check_updates(
    kind: str, device: str, dtype: torch.dtype, tolerance: float, batch: int = 3, together: int = 2,
    ranks: Ranks = ALONE,
) -> None:  # fmt: skip
    """Two groups of updates: losses, parameters and Adam's moments are those of autograd and torch's optimiser, but for
    a share `tolerance` of how far they have moved.
    """
    config = config_of(kind, batch)
    own, mine, plain, ring = pair(config, device, dtype, together, ranks)
    before = {k: v.clone() for k, v in plain.online.state_dict().items()}
    for n in (together, 1):
        t, env = ring.draw(n * batch, config.n_step, ring.head, ring.filled)
        losses = own.learn(t, env)[0].clone()
        for i in range(n):
            part = slice(i * batch, (i + 1) * batch)
            b = ring.transitions(t[part], env[part], config.n_step, config.gamma)
            loss, _ = plain.loss(plain.online, plain.target, b)
            plain.optimizer_step(loss, plain.online, plain.optimizer, 0.0)
            torch.testing.assert_close(losses[i], loss.detach(), rtol=tolerance, atol=0)
    assert not own.masters.g_rest.any(), "summed gradients are zeroed"
    assert same_weights(own.weights, own.masters.packed(own.online)), "the packed weights are the masters'"
    for (name, p), q in zip(mine.online.named_parameters(), plain.online.parameters(), strict=True):
        states = [learner.optimizer.state[x] for learner, x in ((mine, p), (plain, q))]
        assert int(states[0]["step"]) == int(states[1]["step"]) == together + 1
        pairs = {"parameter": (p - before[name], q - before[name])}
        pairs |= {key: tuple(s[key] for s in states) for key in ("exp_avg", "exp_avg_sq")}
        for what, (ours, theirs) in pairs.items():
            assert theirs.norm() > 0 and (ours - theirs).norm() <= tolerance * theirs.norm(), f"{name}, {what}"


def check_all_is_averaged(kind: str, device: str, dtype: torch.dtype, batch: int = 3) -> None:
    """Another rank with the opposite gradients: nothing moves, and the loss is the mean, too."""
    config, others = config_of(kind, batch), Others(-1.0)
    own, mine, _, ring = pair(config, device, dtype, 1, others)
    before = {k: v.clone() for k, v in mine.online.state_dict().items()}
    losses = own.learn(*ring.draw(batch, config.n_step, ring.head, ring.filled))[0]
    assert float(losses[0]) == 0 and int(own.masters.step) == 1
    assert others.numbers == sum(p.numel() for p in mine.online.parameters()) + 1
    for name, p in mine.online.named_parameters():
        assert torch.equal(p, before[name]), name


def check_gradients(kind: str, device: str, dtype: torch.dtype, cosine: float, batch: int = 3) -> None:
    """Every parameter's gradient points where autograd's does, and is as long."""
    config = config_of(kind, batch)
    own, _, plain, ring = pair(config, device, dtype, 1)
    kept: dict[str, torch.Tensor] = {}
    own._adam_rest = lambda: kept.update(own.masters.gradients(own.shares))  # type: ignore[method-assign]
    own._adam_hidden = lambda: None  # type: ignore[method-assign]
    own._adam = lambda name: None  # type: ignore[method-assign]
    t, env = ring.draw(batch, config.n_step, ring.head, ring.filled)
    own.learn(t, env)
    plain.loss(plain.online, plain.target, ring.transitions(t, env, config.n_step, config.gamma))[0].backward()
    names = {"convolutions.0": "first", "convolutions.2": "second", "convolutions.4": "third"}
    for name, p in plain.online.named_parameters():
        layer, which = name.rsplit(".", 1)
        if layer in names:
            mine = kept[names[layer] + ("_bias" if which == "bias" else "")]
        else:
            _, stream, part = layer.split(".")
            mine = kept[part + ("_bias" if which == "bias" else "") + str(int(stream == "value"))]
        assert p.grad is not None
        a, b = mine.float().flatten(), p.grad.flatten()
        assert torch.cosine_similarity(a, b, 0) > cosine and abs(a.norm() / b.norm() - 1) < 2 * (1 - cosine) ** 0.5, (
            name
        )


def check_looking_and_acting(device: str, dtype: torch.dtype, tolerance: float) -> None:
    config = config_of("double dueling, three steps", 16)
    own, _, plain, ring = pair(config, device, dtype, 2)
    t, env = ring.draw(32, 3, ring.head, ring.filled)
    own._look_up(t, env)
    d = ring.look_up(t, env, 3, config.gamma)
    rows = own.rows.view(2, 2, 16, 4)
    seen = own.seen.view(2, 2, 16, 4)
    for mine, theirs in (
        (rows[:, 0].reshape(32, 4), d.rows_tm1), (seen[:, 0].reshape(32, 4), d.seen_tm1),
        (own.rows_t, d.rows_t), (own.seen_t, d.seen_t),
        (rows[:, 1].reshape(32, 4), d.rows_t), (seen[:, 1].reshape(32, 4), d.seen_t),
        (own.action.flatten(), d.action_tm1),
        (own.weight.flatten(), d.weight),
    ):  # fmt: skip
        assert torch.equal(mine, theirs)
    torch.testing.assert_close(own.reward.flatten(), d.reward_t)
    torch.testing.assert_close(own.discount.flatten(), d.discount_t)
    ring.head.fill_(7)
    with torch.no_grad():
        observations = ring.stacks(ring.head.expand(ENVS), torch.arange(ENVS, device=ring.head.device))
        expected = plain.online(observations).squeeze(-1)
    torch.testing.assert_close(own.values(ring, None, own.weights), expected, rtol=0, atol=tolerance)
    some = slice(ENVS // 2, ENVS)
    part, copied = ring.group(some.start, ENVS - some.start), own.copy_weights()
    torch.testing.assert_close(own.values(part, None, copied), expected[some], rtol=0, atol=tolerance)


def check_copies(device: str, dtype: torch.dtype) -> None:
    """The target's copy, and weights that came from elsewhere."""
    own, mine, _, _ = pair(config_of("dqn", 4), device, dtype, 1)
    assert not same_weights(own.weights, own.target_weights)
    for to, of in own.target_copies():
        to.copy_(of)
    assert same_weights(own.weights, own.target_weights)
    for x, y in zip(own.target.parameters(), own.online.parameters(), strict=True):
        assert torch.equal(x, y) and x.data_ptr() != y.data_ptr()
    with torch.no_grad():
        for p in mine.online.parameters():
            p.mul_(2)
    stale = own.weights.hidden.clone()
    own.refresh()
    assert not torch.equal(stale, own.weights.hidden)
    assert same_weights(own.weights, own.masters.packed(own.online))
    assert same_weights(own.target_weights, own.masters.packed(own.target))


def coarse(division: dict[str, int]) -> dict[str, int]:
    """Fewer, larger programs: each costs an interpreter as much, whatever its size."""
    larger = {"BM": 256, "BLOCK": 1024, "CHANNELS": 64, "SPLIT": 3}
    return {k: larger.get(k, v) for k, v in division.items()}


if __name__ == "__main__":
    torch.manual_seed(0)
    fused_update.TUNED = {k: coarse(v) for k, v in fused_update.TUNED.items()}
    # An interpreted update takes seconds. Adam's first moments are sums of gradients, so one kind is enough below.
    plain, rich = KINDS
    check_updates(plain, "cpu", torch.float32, 1e-3, together=1)
    check_updates(rich, "cpu", torch.float32, 1e-3, together=2)
    check_updates(plain, "cpu", torch.float32, 1e-3, together=1, ranks=Others(1.0))
    check_all_is_averaged(rich, "cpu", torch.float32)
    check_gradients(rich, "cpu", torch.float32, 0.9999)
    check_looking_and_acting("cpu", torch.float32, 1e-5)
    check_copies("cpu", torch.float32)
    print("all checks passed")

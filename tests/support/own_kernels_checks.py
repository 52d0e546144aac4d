"""Checks of `learn.gpu.fused_update` beside autograd. On a CPU Triton interprets its kernels, which has to be said
before it is imported: `test_fused_update` runs this file in a process of its own. On a GPU the same checks are
`tests/gpu/test_own_kernels.py`.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from dqnitro import dqn
from dqnitro.config import Config
from dqnitro.distributed.ranks import ALONE, Ranks
from dqnitro.envs.base import EnvSpec
from dqnitro.learn.gpu import fused_update
from dqnitro.learn.gpu.fused_heads import Told
from dqnitro.learn.gpu.fused_update import FusedUpdate
from dqnitro.learn.gpu.packed_weights import Packed
from dqnitro.learn.learner import Learner
from dqnitro.learn.losses import Outputs, TargetOutputs
from dqnitro.replay.gpu_ring import Ring

ACTIONS, ENVS = 5, 3
KINDS: dict[str, dict[str, Any]] = {
    "dqn": {"loss": "mse"},
    "double dueling, three steps": {
        "double": True, "dueling": True, "loss": "huber", "n_step": 3,
        "learning_rate_end": 2e-4, "learning_rate_decay_steps": 2,  # another rate in each of three updates
    },
    "51 atoms, double dueling, three steps, priorities": {
        "categorical": True, "double": True, "dueling": True, "n_step": 3, "prioritized": True, "value_min": -3.0,
        "value_max": 3.0,
    },
    "20 quantiles, Munchausen": {"quantiles": 20, "munchausen": True},
    "Munchausen, priorities": {"munchausen": True, "dueling": True, "loss": "huber", "prioritized": True},
}  # fmt: skip
# Every kind of last layers with every kind of target.
HEADS: list[dict[str, Any]] = [
    head | target | {"dueling": dueling, "loss": loss}
    for head, target, dueling, loss in itertools.product(
        ({}, {"categorical": True, "value_min": -2.0, "value_max": 3.0}, {"quantiles": 20}),
        # a floor that is reached
        ({}, {"double": True}, {"munchausen": True, "munchausen_floor": -0.1}), (False, True), ("mse", "huber"),
    )
    if not (head and loss == "mse") and not ("categorical" in head and "munchausen" in target)
]  # fmt: skip


def name_of(changes: dict[str, Any]) -> str:
    """As short as the name of a test should be."""
    return "-".join(k if v is True else f"{k}-{v}" for k, v in changes.items() if v and not isinstance(v, float))


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


def config_of(kind: str | dict[str, Any], batch: int) -> Config:
    changes = KINDS[kind] if isinstance(kind, str) else kind
    return Config(env_id="pong", replay="frames").replace(
        n_envs=ENVS, batch_size=batch, hidden_units=64, learning_rate=1e-3, adam_epsilon=1e-3,
        wrappers=("no-grad",), **changes
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
    """Two groups of updates: losses, errors, parameters and Adam's moments are those of autograd and torch's optimiser,
    but for a share `tolerance` of how far they have moved.
    """
    torch.manual_seed(0)  # in float32 as well, one activation in millions is 0 here and hardly more there
    config = config_of(kind, batch)
    own, mine, plain, ring = pair(config, device, dtype, together, ranks)
    before = {k: v.clone() for k, v in plain.online.state_dict().items()}
    for n in (together, 1):
        t, env = ring.draw(n * batch, config.n_step, ring.head, ring.filled)
        weight = torch.rand(n * batch, device=device) + 0.5 if config.prioritized else None
        losses, errors = own.learn(t, env, weight)
        for i in range(n):
            part = slice(i * batch, (i + 1) * batch)
            b = ring.transitions(t[part], env[part], config.n_step, config.gamma)
            if weight is not None:
                b = b._replace(weight=b.weight * weight[part])
            loss, error = plain.loss(plain.online, plain.target, b)
            plain.optimizer_step(loss, plain.online, plain.optimizer, 0.0)
            torch.testing.assert_close(losses[i], loss.detach(), rtol=tolerance, atol=0)
            assert error.norm() > 0 and (errors[part] - error).norm() <= tolerance * error.norm()
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
    own._adam_outputs = lambda: None  # type: ignore[method-assign]
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


def check_head(changes: dict[str, Any], device: str, dtype: torch.dtype, tolerance: float, batch: int = 5) -> None:
    """The last layers alone, given hidden layers: values, losses, errors and gradients are autograd's, but for a share
    `tolerance`.
    """
    config = config_of(changes, batch)
    own, _, plain, _ = pair(config, device, dtype, 1)

    def hidden(n: int) -> torch.Tensor:
        return torch.randn((n, own.masters.units), device=device).relu().to(dtype)

    def said(network: Any, h: torch.Tensor) -> torch.Tensor:
        parts = zip(network.head.streams, h.split(config.hidden_units, 1), strict=True)
        return network.head.combine(*(stream.output(part) for stream, part in parts))

    def clear(network: Any) -> torch.Tensor:
        """Hidden layers whose best action rounding does not change."""
        many = hidden(8 * batch)
        with torch.no_grad():
            first, second = dqn.q_values(said(network, many.float()), plain.atoms).topk(2, 1).values.unbind(1)
        return many[(first - second).topk(batch).indices]

    def close(mine: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
        assert theirs.norm() > 0 and (mine.float() - theirs).norm() <= tolerance * theirs.norm(), what

    h, h_t, h_tm1 = hidden(batch), clear(plain.target), hidden(batch)
    if config.double:
        h = torch.cat([h, clear(plain.online)])
    for of, to in ((h_t, own.said[0]), (h_tm1, own.said[-1])) if config.munchausen else ((h_t, own.said[0]),):
        own.head.say(own.target_weights, of, to)
    with torch.no_grad():
        t, tm1 = said(plain.target, h_t.float()), said(plain.target, h_tm1.float())
    close(own.head.values(own.said[0, :ENVS]), dqn.q_values(t[:ENVS], plain.atoms), "values")
    chance: dict[str, Any] = {"device": device}
    ones = torch.ones((batch, 4, 84, 84), dtype=torch.uint8, device=device)
    b = dqn.Batch(
        ones, torch.randint(0, ACTIONS, (batch,), **chance), torch.randn(batch, **chance),
        torch.rand(batch, **chance), ones, torch.rand(batch, **chance),
    )  # fmt: skip
    loss, errors = torch.zeros(1, device=device), torch.zeros(batch, device=device)
    told = Told(b.action_tm1, b.reward_t, b.discount_t, b.weight, own.said[0], own.said[-1], loss, errors)
    own.head.loss(own.weights, h, told, own.g_hidden)
    own.head.weights_back(h, own.g_hidden)
    leaf = h.float().requires_grad_()
    out, *select = said(plain.online, leaf).split(batch)
    target = TargetOutputs(t, tm1 if config.munchausen else None)
    outputs = Outputs(out, target, select[0].detach() if select else None, None)
    expected, error = plain.loss_of_passes(plain.online, outputs, b, None)
    expected.backward()
    assert leaf.grad is not None and float(own.masters.step) == 1
    close(loss[0], expected.detach(), "loss")
    close(errors, error, "errors")
    g_hidden = (leaf.grad * (leaf > 0))[:batch]
    close(own.g_hidden, g_hidden, "gradient of the hidden layer")
    found = own.masters.gradients(own.shares)
    for i, (stream, part) in enumerate(
        zip(plain.online.head.streams, g_hidden.split(config.hidden_units, 1), strict=True)
    ):
        close(found[f"output{i}"], stream.output.weight.grad, f"output {i}")
        close(found[f"output_bias{i}"], stream.output.bias.grad, f"bias of output {i}")
        close(found[f"hidden_bias{i}"], part.sum(0), f"bias of hidden layer {i}")


def check_looking_and_acting(device: str, dtype: torch.dtype, tolerance: float, kind: str) -> None:
    config = config_of(kind, 16)
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
        expected = dqn.q_values(plain.online(observations), plain.atoms)
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


def check_recorded(kind: str, device: str, dtype: torch.dtype, batch: int = 48) -> None:
    """Updates in a CUDA graph end where those that were started one by one end, but for the order of additions."""
    ends = []
    for graphed in (False, True):
        config = config_of(kind, batch)
        torch.manual_seed(0)
        own, mine, _, ring = pair(config, device, dtype, 2)
        t, env = ring.draw(2 * batch, config.n_step, ring.head, ring.filled)
        weight = torch.rand(2 * batch, device=device) if config.prioritized else None
        first = {k: v.clone() for k, v in mine.online.state_dict().items()}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # compiles
            own.learn(t, env, weight)
        torch.cuda.current_stream().wait_stream(stream)
        if graphed:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                own.learn(t, env, weight)
            for _ in range(2):
                graph.replay()
        else:
            for _ in range(2):
                own.learn(t, env, weight)
        torch.cuda.synchronize()
        assert int(own.masters.step) == 6
        ends.append(torch.cat([(p - first[k]).flatten() for k, p in mine.online.state_dict().items()]))
    assert ends[0].norm() > 0 and (ends[0] - ends[1]).norm() <= 0.1 * ends[0].norm()


def coarse(division: dict[str, int]) -> dict[str, int]:
    """Fewer, larger programs: each costs an interpreter as much, whatever its size."""
    larger = {"BM": 256, "BLOCK": 1024, "NUMBERS": 16 * 1024, "CHANNELS": 64, "SPLIT": 3}
    return {k: larger.get(k, v) for k, v in division.items()}


def check_values() -> None:
    plain, rich, *_ = KINDS
    check_updates(plain, "cpu", torch.float32, 1e-3, together=1)
    check_updates(rich, "cpu", torch.float32, 1e-3, together=2)
    check_updates(plain, "cpu", torch.float32, 1e-3, together=1, ranks=Others(1.0))
    check_all_is_averaged(rich, "cpu", torch.float32)
    check_gradients(rich, "cpu", torch.float32, 0.9999)
    check_looking_and_acting("cpu", torch.float32, 1e-5, rich)
    check_copies("cpu", torch.float32)


def check_distributions() -> None:
    for changes in HEADS:
        check_head(changes, "cpu", torch.float32, 1e-3)
    _, _, atoms, quantiles, _ = KINDS
    check_updates(atoms, "cpu", torch.float32, 1e-3, together=2)
    check_updates(atoms, "cpu", torch.float32, 1e-3, together=1, ranks=Others(1.0))
    check_updates(quantiles, "cpu", torch.float32, 1e-3, together=1)
    check_looking_and_acting("cpu", torch.float32, 1e-5, atoms)


PARTS = {"values": check_values, "distributions": check_distributions}

if __name__ == "__main__":
    torch.manual_seed(0)
    fused_update.TUNED = {k: coarse(v) for k, v in fused_update.TUNED.items()}
    # An interpreted update takes seconds. Adam's first moments are sums of gradients, so few kinds are enough above.
    PARTS[sys.argv[1]]()
    print("all checks passed")

"""Passes over the distinct patches beside the passes over all of them, and the numbering beside a plain comparison."""

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.dqn import ConvNetwork, HeadSpec
from dqnitro.errors import ConfigError
from dqnitro.learn.cpu import patch_kernels
from dqnitro.learn.cpu.handwritten_passes import Bf16Weights, DenseConvs, HandwrittenPasses, run_backward, run_forward
from dqnitro.learn.cpu.patch_dedup import ROWS, PassBuffers, PatchDedup, PatchNumbers, conv_shapes
from dqnitro.learn.transforms import wrap
from dqnitro.session import resume, train
from support import fakes_envs
from support.fakes_player import in_threads

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", n_envs=2, frame_stack=4, screen_size=36, network="small", hidden_units=512,
    batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, max_steps=80, torch_threads=1, replay="frames",
    epsilon_start=0.3, wrappers=("no-grad", "channels-last", "bfloat16", "distinct-patches", "one-pass-adam"),
)  # fmt: skip


def make(kind: str = "nature", dueling: bool = False, atoms: int = 1, last: bool = True) -> ConvNetwork:
    torch.manual_seed(3)
    network = ConvNetwork((4, 46, 44), kind, 24, HeadSpec(5, dueling, atoms))
    return wrap(("channels-last",) if last else (), "cpu").prepare(network)  # type: ignore[return-value]


def game(n: int = 6) -> torch.Tensor:
    """A background with a line, and something that moves in each of the four frames."""
    rng = np.random.default_rng(5)
    obs = np.full((n, 4, 46, 44), 87, np.uint8)
    obs[:, :, 10] = 200
    for i in range(n):
        for c in range(4):
            y, x = rng.integers(0, 42), rng.integers(0, 40)
            obs[i, c, y : y + 3, x : x + 2] = 236
    return torch.from_numpy(obs)


def noise(n: int = 6) -> torch.Tensor:
    return torch.randint(0, 256, (n, 4, 46, 44), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def windows(grid: np.ndarray, size: int, stride: int) -> np.ndarray:
    """Every patch as one row, and the height and width of what comes out."""
    view = np.lib.stride_tricks.sliding_window_view(grid, (size, size), axis=(1, 2))[:, ::stride, ::stride]
    return view.reshape(len(grid), *view.shape[1:3], -1)


def check_numbers(numbers: PatchNumbers, obs: torch.Tensor) -> None:
    """Two places have one number exactly where their patches are equal,
    and every number tells where it was seen first.
    """
    below = obs.permute(0, 2, 3, 1).contiguous().numpy().view(np.uint32)[..., 0]
    steps = [(8, 4), *zip(numbers.sizes[1:], numbers.strides[1:], strict=True)]
    for i, (size, stride) in enumerate(steps):
        rows = windows(below, size, stride)
        ids = numbers.ids[i + 1]
        assert rows.shape[:3] == ids.shape
        _, first, same = np.unique(rows.reshape(ids.size, -1), axis=0, return_index=True, return_inverse=True)
        count = int(numbers.counts[i + 1])
        assert count == len(first) and sorted(numbers.firsts[i][:count]) == sorted(first)
        assert (numbers.firsts[i][ids.reshape(-1)] == first[same.reshape(-1)]).all()
        below = ids


@pytest.mark.parametrize("kind", ["nature", "small"])
@pytest.mark.parametrize("pictures", [game, noise])
def test_places_have_one_number_exactly_where_patches_are_equal(kind, pictures):
    obs = pictures()
    numbers = PatchNumbers(tuple(obs.shape), conv_shapes(Bf16Weights(make(kind)).convolutions))
    numbers.fill((obs,))
    check_numbers(numbers, obs)
    assert (numbers.counts[1] < 0.4 * numbers.ids[1].size) == (pictures is game)
    numbers.fill((obs.flip(0),))
    check_numbers(numbers, obs.flip(0))


def test_patches_whose_hashes_collide_stay_apart(monkeypatch):
    """All of them do: only the comparison of whole keys is left."""
    monkeypatch.setattr(patch_kernels, "FACTORS", np.zeros_like(patch_kernels.FACTORS))
    obs = game(2)
    numbers = PatchNumbers(tuple(obs.shape), conv_shapes(Bf16Weights(make()).convolutions))
    numbers.fill((obs,))
    check_numbers(numbers, obs)


def test_numbers_that_do_not_fit_into_16_bits_are_compared_one_by_one(monkeypatch):
    obs = game(1)
    numbers = PatchNumbers(tuple(obs.shape), conv_shapes(Bf16Weights(make()).convolutions))
    # The compiled code has its limit in it, so the plain function of the same text runs.
    monkeypatch.setattr(patch_kernels, "LARGEST", 1)
    monkeypatch.setattr(patch_kernels, "number_squares", None)
    monkeypatch.setattr(patch_kernels, "number_layers", patch_kernels.number_layers.py_func)
    numbers.fill((obs,))
    check_numbers(numbers, obs)


@pytest.mark.parametrize("pictures", [game, noise])
@pytest.mark.parametrize("case", [{}, {"kind": "small", "dueling": True}, {"dueling": True, "atoms": 3, "last": False}])
def test_values_and_all_gradients_are_those_of_the_written_out_passes(case, pictures):
    network, obs = make(**case), pictures()
    fast, slow, weights = PatchDedup(), DenseConvs(), Bf16Weights(network)
    weights.refresh()
    with torch.no_grad():
        want, kept_slow = run_forward(slow, weights, obs)
        got, kept_fast = run_forward(fast, weights, obs)
        assert isinstance(kept_fast, PassBuffers) and kept_fast.numbers.counts[1] > 0
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
        gradients = tuple(torch.randn_like(x) for x in want)
        ours = run_backward(fast, weights, kept_fast, gradients)
        theirs = run_backward(slow, weights, kept_slow, gradients)
    for p, a, b in zip(weights.source, ours, theirs, strict=True):
        assert a is not None and b is not None and a.dtype == torch.float32
        assert a.shape == p.shape and a.stride() == p.stride()
        assert (a - b).norm() < 0.02 * b.norm()  # seen: 0.006; a lost or doubled patch would be far off


def test_gradients_are_as_near_to_float32_as_those_of_the_written_out_passes():
    network, obs = make(), game()
    torch.manual_seed(4)
    weight = torch.randn(len(obs), 5, 1)

    def gradients(out: torch.Tensor) -> list[torch.Tensor]:
        network.zero_grad()
        (out * weight).mean().backward()
        return [p.grad.clone() for p in network.parameters()]  # type: ignore[union-attr]

    exact = gradients(network(obs))
    ours = gradients(HandwrittenPasses(PatchDedup()).forward(network, obs))
    theirs = gradients(HandwrittenPasses().forward(network, obs))
    for want, got, other in zip(exact, ours, theirs, strict=True):
        error, usual = ((x - want).norm() / want.norm() for x in (got, other))
        assert error < 1.5 * usual + 2e-3  # up to 0.17 where a ReLU of the background turns over


def test_passes_under_way_have_memory_of_their_own_and_finished_ones_give_it_back():
    network, passes = make(), HandwrittenPasses(dedup := PatchDedup())
    a, b = game(), noise()
    alone = [passes.forward(network, x).detach() for x in (a, b)]
    dedup._spare.clear()
    first, second = passes.forward(network, a), passes.forward(network, b)
    no_grad = passes.forward_no_grad(network, a)
    assert torch.equal(first, alone[0]) and torch.equal(second, alone[1]) and torch.equal(no_grad, alone[0])
    (spare,) = dedup._spare.values()
    assert len(spare) == 1  # the no-gradient pass's
    first.sum().backward()
    second.sum().backward()
    assert len(spare) == 3 and len({id(k) for k in spare}) == 3


def test_observations_are_numbered_once_for_two_networks_and_again_when_they_change(monkeypatch):
    calls, real = [], patch_kernels.number_layers
    monkeypatch.setattr(patch_kernels, "number_layers", lambda *a: (calls.append(1), real(*a)))
    passes, online, target, obs = HandwrittenPasses(PatchDedup()), make(), make(), game()
    passes.forward_no_grad(target, obs)
    passes.forward_no_grad(online, obs)
    assert len(calls) == 1
    before = passes.forward_no_grad(online, obs)
    obs[:, :, 20:30] = 0
    assert not torch.equal(passes.forward_no_grad(online, obs), before) and len(calls) == 2
    assert torch.equal(passes.forward_no_grad(online, obs.clone()), passes.forward_no_grad(online, obs))


def test_other_shapes_take_the_dense_passes():
    network = ConvNetwork((2, 44, 44), "small", 8, HeadSpec(3))
    obs = torch.randint(0, 256, (4, 2, 44, 44), dtype=torch.uint8)
    weights, passes = ready(network), PatchDedup()
    with torch.no_grad():
        out, kept = run_forward(passes, weights, obs)
        assert not isinstance(kept, PassBuffers)
        gradients = run_backward(passes, weights, kept, tuple(torch.ones_like(x) for x in out))
    assert len(gradients) == len(weights.source)
    passes.release(kept)


def test_it_excludes_what_it_cannot_stand_beside_and_other_devices():
    for other in ("written-out", "compile", "torchscript", "float16"):
        with pytest.raises(ConfigError, match="exclude each other; hint: leave one of them out"):
            wrap(("distinct-patches", other), "cpu")
    with pytest.raises(
        ConfigError, match=r"distinct-patches is for a learner on the CPU; hint: on a GPU take bfloat16"
    ):
        wrap(("distinct-patches",), "cuda")


def test_rows_of_products_are_rounded_up_and_what_is_beyond_counts_for_nothing():
    network, passes, obs = make(), PatchDedup(), game()
    weights = ready(network)
    _, kept = run_forward(passes, weights, noise())  # leaves large numbers in all of the memory
    passes.release(kept)
    with torch.no_grad():
        out, again = run_forward(passes, weights, obs)
        assert again is kept and kept.layers[0].count % ROWS
        gradients = tuple(torch.ones_like(x) for x in out)
        fresh = PatchDedup()
        _, other = run_forward(fresh, weights, obs)
        for a, b in zip(
            run_backward(passes, weights, kept, gradients), run_backward(fresh, weights, other, gradients), strict=True
        ):
            assert torch.equal(a, b)


@pytest.mark.parametrize(
    "changes", [{}, {"double": True, "dueling": True, "n_step": 3, "prioritized": True, "categorical": True}]
)
def test_a_run_with_a_player_is_the_run_without_one(changes, monkeypatch):
    in_threads(monkeypatch)
    config = CATCH.replace(**changes)
    inline, apart = train(config), train(config.replace(runner="processes", slack_steps=0))
    assert inline.updates == apart.updates > 30
    pairs = zip(inline.agent.learner.online.parameters(), apart.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_a_resumed_run_is_the_run_without_a_stop(tmp_path):
    whole = train(CATCH)
    train(CATCH.replace(max_steps=60), tmp_path / "run")
    resumed = resume(tmp_path / "run", max_steps=80)
    pairs = zip(whole.agent.learner.online.parameters(), resumed.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def ready(network: ConvNetwork) -> Bf16Weights:
    weights = Bf16Weights(network)
    weights.refresh()
    return weights

"""Wrappers of the update step, beside the plain one: what is exact is equal, what rounds is near, what excludes is
refused.
"""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from dqnitro.config import Config
from dqnitro.dqn import Batch, ConvNetwork, HeadSpec
from dqnitro.errors import ConfigError
from dqnitro.learn.optimizer_step import PlainStep, ScaledStep
from dqnitro.learn.transforms import TRANSFORMS, chosen, for_graphs, wrap
from dqnitro.run.inline import make_agent
from dqnitro.session import train
from support import fakes_envs

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", n_envs=2, frame_stack=2, screen_size=36, network="small", hidden_units=32,
    batch_size=8, first_fill_steps=40, replay_capacity=120, target_sync_steps=10, max_steps=80, torch_threads=1,
)  # fmt: skip


def with_wrapper(name: str) -> Config:
    return CATCH.replace(wrappers=("no-grad", name))


def values(result) -> np.ndarray:
    obs = train(CATCH).agent.replay.sample(32, np.random.default_rng(0)).batch.obs_tm1
    with torch.no_grad():
        return result.agent.learner.online(obs).squeeze(-1).numpy()


@pytest.mark.parametrize("name", ["inplace-relu", "torchscript"])
def test_exact_wrappers_end_with_the_same_parameters_on_pictures(name):
    a, b = train(CATCH), train(with_wrapper(name))
    assert a.updates == b.updates > 30
    pairs = zip(a.agent.learner.online.parameters(), b.agent.learner.online.parameters(), strict=True)
    assert all(torch.equal(x, y) for x, y in pairs)


def test_float16_learns_the_same_function_but_for_rounding_and_loses_no_update():
    """On a CPU it is emulated, so the rung is not for it; the arithmetic is the same."""
    before, a, b = train(CATCH.replace(max_steps=1)), train(CATCH), train(with_wrapper("float16"))
    assert a.updates == b.updates > 30
    difference = values(a) - values(b)
    assert np.abs(values(a) - values(before)).max() > 5e-3, "nothing was learned: a comparison would prove nothing"
    assert 0 < np.abs(difference).max() <= 1e-3 and abs(difference.mean()) <= 3e-4  # seen: 4e-5, 1e-5
    assert b.agent.learner.optimizer_step.get_state()["scale"] == 2.0**16, "an update overflowed and was lost"


def test_every_activation_works_in_place():
    network = wrap(("inplace-relu",), "cpu").prepare(ConvNetwork((2, 36, 36), "small", 8, HeadSpec(3, dueling=True)))
    relus = [m for m in network.modules() if isinstance(m, nn.ReLU)]
    assert len(relus) == 4 and all(m.inplace for m in relus)


def test_torchscript_runs_the_graph_follows_the_weights_and_keeps_its_warnings_to_itself():
    calls = []

    class Network(nn.Linear):
        def forward(self, x):
            calls.append(1)  # a graph does not come through here again
            return super().forward(x)

    network, parts = Network(3, 2), wrap(("no-grad", "torchscript"), "cpu")
    x = torch.randn(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        first = parts.act(network, x)
    traced_calls = len(calls)
    with torch.no_grad():
        network.weight.add_(1.0)
    second = parts.act(network, torch.cat([x, x]))  # another batch size
    assert len(calls) == traced_calls
    assert torch.equal(second[:4], torch.nn.functional.linear(x, network.weight, network.bias))
    assert not torch.equal(first, second[:4])


def small_problem() -> tuple[nn.Linear, torch.optim.Optimizer, torch.Tensor]:
    torch.manual_seed(0)
    network = nn.Linear(3, 1)
    return network, torch.optim.SGD(network.parameters(), lr=0.1), torch.randn(5, 3)


@pytest.mark.parametrize("largest_norm", [0.0, 0.1])
def test_a_scaled_step_is_the_plain_step(largest_norm):
    results = []
    for step in (PlainStep(), ScaledStep("cpu")):
        network, optimizer, x = small_problem()
        step(network(x).square().mean(), network, optimizer, largest_norm)
        results.append(network.weight.detach().clone())
    before = small_problem()[0].weight
    assert torch.allclose(*results, rtol=1e-6) and not torch.equal(results[0], before)
    if largest_norm:
        assert (results[0] - before).norm() <= 0.1 * largest_norm * 1.0001


def test_an_update_that_overflows_is_left_out_and_the_scale_falls_and_is_saved():
    network, optimizer, x = small_problem()
    before, step = network.weight.detach().clone(), ScaledStep("cpu")
    step((network(x) * 1e38).mean(), network, optimizer, 0.0)
    assert torch.equal(network.weight, before)
    assert step.get_state() == {"scale": torch.tensor(2.0**15)}
    resumed = ScaledStep("cpu")
    resumed.set_state(step.get_state())
    assert resumed.get_state() == step.get_state()


@pytest.mark.parametrize("pair", [("torchscript", "compile"), ("bfloat16", "float16"), ("bfloat16", "torchscript")])
def test_wrappers_that_exclude_each_other_are_refused(pair):
    with pytest.raises(ConfigError, match="exclude each other"):
        wrap(pair, "cpu")


@pytest.mark.parametrize("last", ["fused-adam", "channels-last", "bfloat16"])
def test_the_order_of_the_names_means_nothing(last):
    """An optimiser that is named after passes with converted weights must not leave those as they were."""
    names = tuple(n for n in ("fused-adam", "channels-last", "bfloat16", "written-out") if n != last)
    config = CATCH.replace(learning_rate=1e-3)
    orders = (*names, last), (last, *names)
    runs = [make_agent(config.replace(wrappers=("no-grad", *order))).learner for order in orders]
    x = torch.randint(0, 256, (8, 2, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    ones = torch.ones(8)
    batch = Batch(x, torch.zeros(8, dtype=torch.int64), 5 * ones, ones * 0, x, ones)
    said = []
    for learner in runs:
        before = learner.loss(learner.online, learner.target, batch)[0].item()
        for _ in range(12):
            learner.update(batch)
        after = learner.loss(learner.online, learner.target, batch)[0].item()
        assert after < 0.9 * before, "what is learned is what is asked"
        said.append(after)
    assert said[0] == said[1]


def test_the_table_is_of_one_piece():
    for name, transform in TRANSFORMS.items():
        assert transform.name == name and set(transform.excludes) <= set(TRANSFORMS) - {name}
        assert transform.only_on in ("", "cpu", "cuda") and bool(transform.only_on) == bool(transform.elsewhere)
    with pytest.raises(ConfigError, match="unknown wrapper 'faster'; hint: the wrappers are no-grad, fused-adam, "):
        chosen(("no-grad", "faster"))


@pytest.mark.parametrize("name", [t.name for t in TRANSFORMS.values() if t.only_on])
def test_what_works_on_one_device_alone_is_refused_on_the_other(name):
    other, where = {"cpu": ("cuda", "the CPU"), "cuda": ("cpu", "a GPU")}[TRANSFORMS[name].only_on]
    with pytest.raises(ConfigError, match=f"wrapper {name} is for a learner on {where}; hint: "):
        wrap((name,), other)


def test_others_ask_the_parts_and_not_for_names():
    assert [t.name for t in chosen(("own-kernels", "no-grad")) if t.reads_ring] == ["own-kernels"]
    assert wrap(("own-kernels",), "cuda").reads_ring and not wrap((), "cuda").reads_ring
    assert wrap(("channels-last",), "cpu").channels_last and not wrap((), "cpu").channels_last
    assert for_graphs(("no-grad",)) == ("no-grad", "fused-adam") == for_graphs(("no-grad", "fused-adam"))


def test_only_acting_for_many_environments_is_in_bfloat16():
    network = nn.Linear(3, 2)
    parts, plain = wrap(("no-grad", "bfloat16"), "cpu"), wrap((), "cpu")
    assert parts.act(network, torch.ones(1, 3)).dtype == torch.float32
    many = parts.around_act(parts.act)(network, torch.ones(1, 3))
    assert many.dtype == torch.bfloat16 and not many.requires_grad
    assert plain.around_act(plain.act)(network, torch.ones(1, 3)).dtype == torch.float32


def test_on_a_cpu_nothing_is_copied():
    x = torch.ones(3)
    assert wrap((), "cpu").copy(x) is x and wrap(("pinned-copies",), "cpu").copy(x) is x


@pytest.mark.gpu
def test_pinned_copies_bring_the_same_bytes_to_the_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    parts, plain = wrap(("pinned-copies",), "cuda"), wrap((), "cuda")
    for _ in range(50):  # page-locked blocks are used again: a copy must not see the next one's bytes
        x = torch.randint(0, 256, (32, 4, 84, 84), dtype=torch.uint8)
        assert torch.equal(parts.copy(x), plain.copy(x)) and parts.copy(x).is_cuda
    on_gpu = torch.ones(3, device="cuda")
    assert parts.copy(on_gpu) is on_gpu


@pytest.mark.gpu
def test_a_replay_in_main_memory_feeds_a_learner_on_the_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    for replay in ({"replay": "plain"}, {"replay": "frames", "replay_device": "cpu"}):
        agent = make_agent(CATCH.replace(device="cuda", **replay))
        batch = Batch(*(torch.zeros(8, 2, 36, 36, dtype=torch.uint8), torch.zeros(8, dtype=torch.int64), torch.ones(8),
                        torch.ones(8), torch.zeros(8, 2, 36, 36, dtype=torch.uint8), torch.ones(8)))  # fmt: skip
        loss, td = agent.learner.update(batch)
        assert loss.is_cuda and td.is_cuda and agent.learner.n_updates == 1
        agent.close()

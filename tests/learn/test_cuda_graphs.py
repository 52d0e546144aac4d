"""What is recorded computes what it computed before, and nobody is left holding memory that the next call overwrites.

A CUDA graph repeats the same operations on the same memory. So does the stand-in here, which lets a CPU check all but
CUDA itself.
"""

import pytest
import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.lab.bench.workload import game_spec, make_batch
from dqnitro.learn.gpu.cuda_graphs import WARM_CALLS, Graphed, Recorded
from dqnitro.learn.learner import Learner
from dqnitro.learn.transforms import wrap
from support.fakes_graphs import StandIn


def graphed(f):
    StandIn.made = 0
    return Graphed(f, StandIn)


def test_the_first_calls_run_as_they_are_and_then_one_recording_serves_all():
    seen = []

    def f(x, y):
        seen.append((x.data_ptr(), y.data_ptr()))
        return (x + y, x * y)

    g = graphed(f)
    for k in range(8):
        x, y = torch.full((3,), float(k)), torch.arange(3.0)
        total, product = g(x, y)
        assert torch.equal(total, x + y) and torch.equal(product, x * y)
    assert StandIn.made == 1 and g.n_replays == 8 - WARM_CALLS
    assert len(set(seen[WARM_CALLS:])) == 1, "a replay reads what was recorded, wherever the input lies"


def test_results_are_the_callers_to_keep():
    """The footgun of CUDA graphs: the next replay overwrites the last one's output."""
    g = graphed(lambda x: (x * 2,))
    kept = [g(torch.tensor([float(k)]))[0] for k in range(10)]
    assert [t.item() for t in kept] == [2.0 * k for k in range(10)]
    x = torch.tensor([7.0])
    g(x)
    x.fill_(0.0)
    assert g(torch.tensor([3.0]))[0].item() == 6.0 and x.item() == 0.0


def test_inputs_of_another_shape_or_order_are_recorded_apart():
    g = graphed(lambda x: (x.sum(0),))
    square = torch.arange(4.0).reshape(2, 2)
    for x in (square, torch.ones(3, 2), square.t()):
        for _ in range(WARM_CALLS + 2):
            assert torch.equal(g(x)[0], x.sum(0))
    assert StandIn.made == 3


def test_a_function_of_memory_that_stays_is_recorded_without_copies():
    x, seen = torch.zeros(3), []

    def f():
        seen.append(x.data_ptr())
        x.add_(1.0)
        return (x * 2,)

    StandIn.made = 0
    r = Recorded(f, StandIn)
    outs = [r()[0] for _ in range(8)]
    assert x.tolist() == [8.0] * 3 and len(set(seen)) == 1, "recording itself changes nothing"
    assert StandIn.made == 1 and r.n_replays == 8 - WARM_CALLS
    assert len({o.data_ptr() for o in outs[WARM_CALLS:]}) == 1 and outs[-1].tolist() == [16.0] * 3


@pytest.mark.parametrize(
    "changes", [{}, {"double": True, "grad_clip": 1.0, "n_step": 3}, {"wrappers": ("no-grad", "fused-adam")}]
)
def test_a_recorded_update_learns_the_same(changes):
    config, spec = game_spec("CartPole-v1")
    plain, recorded = (Learner(config.replace(**changes), spec, "cpu") for _ in range(2))
    update = graphed(recorded.loss_and_step)
    batches = [make_batch(spec, 16, "cpu") for _ in range(4)]
    for k in range(12):
        batch = batches[k % 4]._replace(reward_t=torch.randn(16, generator=torch.Generator().manual_seed(k)))
        if k % 5 == 0:
            for learner in (plain, recorded):
                learner.sync_target()
        loss, td = plain.update(batch)
        loss2, td2 = update(*batch)
        assert torch.equal(loss, loss2) and torch.equal(td, td2)
    pairs = list(zip(plain.online.parameters(), recorded.online.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs) and update.n_replays == 12 - WARM_CALLS


def test_on_the_cpu_the_wrapper_changes_nothing_and_what_cannot_be_recorded_is_refused():
    config = Config(wrappers=("no-grad", "cuda-graphs"))
    assert wrap(config.wrappers, "cpu").around_update is wrap(("no-grad",), "cpu").around_update
    for other in ("torchscript", "float16"):
        with pytest.raises(ConfigError, match="exclude each other"):
            wrap(("no-grad", other, "cuda-graphs"), "cpu")

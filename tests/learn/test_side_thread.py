"""The target's pass in a second thread: it is really done there, gives the same values, and its errors are not lost."""

import threading

import pytest
import torch

from dqnitro.config import Config
from dqnitro.dqn import ConvNetwork, HeadSpec
from dqnitro.errors import ConfigError
from dqnitro.learn.cpu.side_thread import SideThread
from dqnitro.learn.transforms import wrap
from dqnitro.session import train
from support import fakes_envs

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", n_envs=2, frame_stack=4, screen_size=36, network="small", hidden_units=64,
    batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, max_steps=70, torch_threads=1, replay="frames",
    wrappers=("no-grad", "channels-last", "bfloat16", "distinct-patches", "one-pass-adam"),
)  # fmt: skip


def who() -> tuple[str, int, bool]:
    return threading.current_thread().name, torch.get_num_threads(), torch.is_grad_enabled()


def test_work_is_done_in_another_thread_with_one_of_torchs_threads_and_no_gradients():
    thread = SideThread()
    waits = [thread.start(who) for _ in range(3)]
    assert [wait() for wait in waits] == [("dqnitro-side-thread", 1, False)] * 3


def test_who_asks_twice_gets_the_same_answer():
    thread = SideThread()
    wait = thread.start(lambda: [1])
    assert wait() is wait()
    failing = thread.start(lambda: 1 / 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            failing()


def test_an_error_reaches_who_waits_and_the_thread_lives_on():
    thread = SideThread()
    with pytest.raises(ZeroDivisionError):
        thread.start(lambda: 1 // 0)()
    assert thread.start(who)()[0] == "dqnitro-side-thread"


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("first", [True, False])
def test_a_run_is_the_run_without_it(first, double, monkeypatch):
    """Whichever wrapper is put on first: the same passes on the same numbers, one of them elsewhere."""
    both = ("side-by-side", *CATCH.wrappers) if first else (*CATCH.wrappers, "side-by-side")
    calls = []
    start = SideThread.start
    monkeypatch.setattr(SideThread, "start", lambda self, *args: calls.append(args) or start(self, *args))
    a, b = (train(CATCH.replace(wrappers=names, double=double)) for names in (CATCH.wrappers, both))
    assert a.updates == b.updates > 10 and len(calls) == b.updates + 1  # and one in the warm-up
    for p, q in zip(a.agent.learner.online.parameters(), b.agent.learner.online.parameters(), strict=True):
        assert torch.equal(p, q)


def test_a_pass_that_fails_leaves_nothing_under_way():
    from dqnitro.learn.losses import make_losses

    torch.manual_seed(1)
    network = ConvNetwork((4, 36, 36), "small", 16, HeadSpec(3))
    parts = wrap(("no-grad", "side-by-side"), "cpu")
    loss = make_losses(CATCH, parts, None).whole
    obs = torch.zeros((2, 4, 36, 36), dtype=torch.uint8)
    from dqnitro.dqn import Batch

    ones = torch.ones(2)
    good = Batch(obs, torch.zeros(2, dtype=torch.int64), ones, ones, obs, ones)
    with pytest.raises(RuntimeError):  # the online network's pass: two channels where four are expected
        loss(network, network, good._replace(obs_tm1=obs[:, :2]))
    with pytest.raises(RuntimeError):  # the target's
        loss(network, network, good._replace(obs_t=obs[:, :2]))
    assert torch.isfinite(loss(network, network, good)[0])


def test_it_is_for_the_cpu_and_not_for_compiled_losses():
    with pytest.raises(ConfigError, match="side-by-side is for a learner on the CPU; hint: leave it out"):
        wrap(("side-by-side",), "cuda")
    with pytest.raises(ConfigError, match="exclude each other"):
        wrap(("side-by-side", "compile"), "cpu")

"""Half of an update in a second thread: it is really done there, gives the same values, and its errors are not lost."""

import threading

import pytest
import torch

import fakes_envs
from dqnitro.config import Config
from dqnitro.dqn import Batch, ConvNetwork, HeadSpec
from dqnitro.errors import ConfigError
from dqnitro.learn.beside import Beside
from dqnitro.learn.wrappers import wrap
from dqnitro.session import train

fakes_envs.register()
CATCH = Config(
    env_id="dqnitro_test/Catch-v0", n_envs=2, frame_stack=4, screen_size=36, network="small", hidden_units=64, batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, max_steps=70, torch_threads=2, replay="frames",
    wrappers=("no-grad", "channels-last", "bfloat16", "distinct-patches", "one-pass-adam"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def two_threads():
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(usual)


def on() -> Beside:
    beside = Beside()
    beside.on = True
    return beside


def who() -> tuple[str, int]:
    return threading.current_thread().name, torch.get_num_threads()


def test_work_is_done_in_another_thread_with_half_of_torchs_threads_each():
    with on().halves() as start:
        waits = [start(who) for _ in range(3)]
        assert torch.get_num_threads() == 1
        assert [wait() for wait in waits] == [("dqnitro-beside", 1)] * 3
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(("switched_on", "threads"), [(False, 2), (True, 1)])
def test_it_is_done_by_the_caller_where_it_is_off_or_there_is_one_thread(switched_on, threads):
    torch.set_num_threads(threads)
    beside = Beside()
    beside.on = switched_on
    with beside.halves() as start:
        assert start(who)() == (threading.current_thread().name, threads)


def test_an_error_reaches_who_waits_and_the_thread_lives_on():
    beside = on()
    with pytest.raises(ZeroDivisionError), beside.halves() as start:
        start(lambda: 1 // 0)()
    assert torch.get_num_threads() == 2
    with beside.halves() as start:
        assert start(who)()[0] == "dqnitro-beside"


def make(seed: int) -> ConvNetwork:
    torch.manual_seed(seed)
    return ConvNetwork((4, 36, 36), "small", 16, HeadSpec(3))


def batch() -> Batch:
    obs = torch.randint(0, 256, (2, 6, 4, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return Batch(obs[0], torch.zeros(6, dtype=torch.int64), torch.ones(6), torch.ones(6), obs[1], torch.ones(6))


def test_the_targets_pass_is_the_one_beside_and_others_are_not():
    seen = []

    def loss(online, target, b):
        here = threading.current_thread().name
        out = parts.forward(online, b.obs_tm1), parts.quiet(target, b.obs_t), parts.quiet(online, b.obs_t)
        seen.append(here)
        return out

    parts = wrap(("no-grad", "side-by-side"), "cpu")
    names = []
    networks = make(1), make(2)
    for network in networks:
        network.register_forward_hook(lambda *_: names.append(threading.current_thread().name))
    got = parts.around_loss(loss)(*networks, batch())
    assert sorted(names) == sorted(["dqnitro-beside", *seen * 2])
    plain = wrap(("no-grad",), "cpu")
    want = plain.forward(networks[0], batch().obs_tm1), plain.quiet(networks[1], batch().obs_t)
    torch.testing.assert_close(got[:2], want)
    assert not got[1].requires_grad and got[0].requires_grad


def test_a_loss_that_fails_leaves_nothing_under_way():
    parts, networks = wrap(("no-grad", "side-by-side"), "cpu"), (make(1), make(2))

    def fails(online, target, b):
        raise RuntimeError("no loss")

    with pytest.raises(RuntimeError, match="no loss"):
        parts.around_loss(fails)(*networks, batch())
    assert torch.get_num_threads() == 2
    out = parts.around_loss(lambda online, target, b: parts.quiet(target, b.obs_t))(*networks, batch())
    torch.testing.assert_close(out, wrap(("no-grad",), "cpu").quiet(networks[1], batch().obs_t))


@pytest.mark.parametrize("first", [True, False])
def test_a_run_is_the_run_without_it_but_for_rounding(first):
    """Whichever wrapper is put on first."""
    both = ("side-by-side", *CATCH.wrappers) if first else (*CATCH.wrappers, "side-by-side")
    a, b = train(CATCH), train(CATCH.replace(wrappers=both))
    assert a.updates == b.updates > 20
    obs = batch().obs_tm1
    with torch.no_grad():
        torch.testing.assert_close(a.agent.learner.online(obs), b.agent.learner.online(obs), rtol=0, atol=1e-2)


def test_it_is_for_the_cpu_and_not_for_compiled_losses():
    with pytest.raises(ConfigError, match="side-by-side is for a learner on the CPU; hint: leave it out"):
        wrap(("side-by-side",), "cuda")
    with pytest.raises(ConfigError, match="exclude each other"):
        wrap(("side-by-side", "compile"), "cpu")

"""Acting with a copy of the network: refreshed after every update it is the same run, and the period means what it
says.
"""

import numpy as np
import pytest
import torch

from dqnitro.config import Config
from dqnitro.errors import ConfigError
from dqnitro.learn.actors import CopiedNetwork
from dqnitro.run.build import resolve_device
from dqnitro.session import train
from support import fakes_envs

fakes_envs.register()
CORRIDOR = Config(
    env_id="dqnitro_test/Corridor-v0", n_envs=2, frame_stack=1, clip_rewards=False, hidden_units=16, batch_size=8,
    first_fill_steps=40, replay_capacity=120, target_sync_steps=10, epsilon_start=0.2, epsilon_decay_steps=50,
    max_steps=240, torch_threads=1, learning_rate=5e-3,
)  # fmt: skip


def parameters(result) -> list[torch.Tensor]:
    return list(result.agent.learner.online.parameters())


def equal(a, b) -> bool:
    return all(torch.equal(x, y) for x, y in zip(parameters(a), parameters(b), strict=True))


@pytest.mark.parametrize("also", [{}, {"categorical": True, "dueling": True}, {"wrappers": ("no-grad", "torchscript")}])
def test_a_copy_that_follows_every_update_makes_the_same_run(also):
    config = CORRIDOR.replace(**also)
    same, copied = train(config), train(config.replace(act_device="cpu"))
    assert equal(same, copied) and same.updates == copied.updates > 100
    assert copied.agent.learner.actor.n_copies > 50


def test_a_copy_that_lags_changes_what_is_played():
    every_update, every_tenth = (
        train(CORRIDOR.replace(act_device="cpu", act_sync_updates=k)).agent.learner for k in (1, 10)
    )
    pairs = zip(every_update.online.parameters(), every_tenth.online.parameters(), strict=True)
    assert not all(torch.equal(x, y) for x, y in pairs)
    assert 15 <= every_tenth.actor.n_copies <= every_tenth.n_updates // 10 + 1  # and one at the start


def test_the_copy_is_made_when_it_is_asked_after_every_kth_update():
    source, network = torch.nn.Linear(1, 2), torch.nn.Linear(1, 2)
    act = lambda n, x: n(x).unsqueeze(-1)  # noqa: E731
    actor = CopiedNetwork(source, network, act, None, every_updates=3)
    obs = np.ones((1, 1), np.float32)
    seen = []
    for update in range(1, 8):
        with torch.no_grad():
            source.bias.fill_(float(update))
        actor.updated(update)
        if update != 3:  # nobody asks after the third: the copy is made at the next chance, with what is there then
            actor.greedy(obs)
        seen.append(network.bias[0].item() if update > 1 else 1.0)
    assert seen == [1, 1, 1, 4, 4, 6, 6] and actor.n_copies == 3


def test_a_device_that_is_not_there_is_refused_by_its_option():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU: the message for machines without one cannot come")
    with pytest.raises(
        ConfigError, match="--act-device cuda:1: this torch .* sees no CUDA device; hint: use --act-dev"
    ):
        train(CORRIDOR.replace(act_device="cuda:1"))
    assert resolve_device("cpu") == "cpu"

"""Contenders in one process: the threads of one are not the threads of the others."""

import torch

from dqnitro.config import Config
from dqnitro.lab.bench import peers


def test_a_contenders_threads_are_its_own():
    usual = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        seen = []
        rate = peers.ours(Config(env_id="CartPole-v1", envs="gym-sync", hidden_units=8, batch_size=4, torch_threads=1))
        assert torch.get_num_threads() == 2
        timed = peers.timed_rate
        peers.timed_rate = lambda step, seconds: seen.append(torch.get_num_threads()) or timed(step, seconds)
        try:
            assert rate(0.01) > 0
        finally:
            peers.timed_rate = timed
        assert seen == [1] and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(usual)

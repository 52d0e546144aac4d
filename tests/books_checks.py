"""Checks of `run.books` beside torch's way of keeping them. On a CPU Triton interprets its kernels, which has to be said before it is
imported: `tests/run/test_books.py` runs this file in a process of its own. On a GPU the same check is in `tests/gpu/test_hybrid.py`.
"""

from __future__ import annotations

import torch

from dqnitro.config import Config
from dqnitro.run import hybrid
from dqnitro.run.books import Books
from dqnitro.run.device import DeviceAgent
from dqnitro.run.hybrid import HybridAgent

BREAKOUT = Config(
    env_id="breakout", envs="console", runner="hybrid", screen_size=36, n_envs=6, network="small", hidden_units=32, init="torch",
    steps_per_update=4.0, first_fill_steps=120, epsilon_start=0.5, epsilon_end=0.5, n_step=3, batch_size=16, target_sync_steps=60,
    replay_capacity=6 * 40, torch_threads=1, env_threads=2, max_episode_frames=130, episodic_life=True, seed=5,
    wrappers=("no-grad", "fused-adam"),
)  # fmt: skip


def kept(agent: HybridAgent) -> dict[str, torch.Tensor]:
    """All that the books have written; `head` and `filled` of the ring are its last part's."""
    out = {f"ring.{name}": x for name, x in agent.ring.tensors().items()}
    for k, (part, player) in enumerate(zip(agent.parts, agent.players, strict=True)):
        mine = {"age": part.age, "was_away": part.was_away, "head": part.head, "filled": part.filled}
        mine |= {"ring head": part.ring.head, "ring filled": part.ring.filled}
        mine |= {"obs": player.obs, "away": player.away, "actions": player.actions}
        out |= {f"{name} of part {k}": x for name, x in mine.items()}
    return out


def watch_places(agent: HybridAgent) -> None:
    """Whenever values are asked for, the books know where the observations lie."""
    values = agent.values

    def watched(k: int = 0) -> torch.Tensor:
        for mine, theirs in zip(agent.places(k), DeviceAgent.places(agent, k), strict=True):
            assert torch.equal(mine, theirs)
        return values(k)

    agent.values = watched  # type: ignore[method-assign]


def check_books(config: Config, ticks: int) -> None:
    """Two runs of the same seed, one with each way: all is the same after every tick, past the ring's seam and through ends of games."""
    (plain, these), (ours, those) = hybrid.make(config), hybrid.make(config)
    try:
        plain.books = None
        if ours.books is None:
            ours.books = Books(ours)
            ours.books.warm_up()
            ours._show(ours.envs.reset())
            plain._show(plain.envs.reset())
        if ours.device.type == "cpu":
            watch_places(ours)
        ends, away = 0, 0
        for tick in range(ticks):
            a, b = next(these), next(those)
            if ours.device.type == "cuda":
                torch.cuda.synchronize()
            ends += len(a.ends)
            away += sum(int(p.away.sum()) for p in ours.players)
            assert a._replace(loss=None) == b._replace(loss=None)
            for (name, x), y in zip(kept(plain).items(), kept(ours).values(), strict=True):
                assert torch.equal(x, y), (tick, name)
        assert ends > 5 and away > 5 and plain.clock.updates > 20
        assert int(ours.ring.filled) == ours.ring.slots, "the ring was full"
    finally:
        plain.close()
        ours.close()


if __name__ == "__main__":
    for parts in (1, 2):
        check_books(BREAKOUT.replace(env_parts=parts), 90 * parts)
    check_books(BREAKOUT.replace(env_parts=3, clip_rewards=False, episodic_life=False), 150)
    print("all checks passed")

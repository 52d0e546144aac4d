"""The run that faults on a cluster are made in: `python -m chaos.ray_driver FOLDER STEPS SEED PLAYERS [GAME]`,
begun or continued. Beside its folder it writes down where its players are (`players.json`).

It ends with a line of JSON: the digest of everything that the run has learned and will do next.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import sys

from chaos.harness import digest
from dqnitro.common.files import write_json
from dqnitro.config import Config
from dqnitro.errors import PlayerDied, UserError
from dqnitro.run import cluster
from dqnitro.run.cluster.actors import RayHosts
from dqnitro.run.cluster.player import Order
from dqnitro.session import resume, train
from dqnitro.store.checkpoint import complete
from support import fakes_envs

fakes_envs.register()
CONFIG = Config(
    env_id="dqnitro_test/SlowOnRay-v0", n_envs=6, frame_stack=1, clip_rewards=False, hidden_units=16, batch_size=8,
    first_fill_steps=100, replay_capacity=600, target_sync_steps=50, epsilon_start=0.5, epsilon_decay_steps=2000,
    torch_threads=1, n_step=2, double=True, learning_rate=5e-3, steps_per_update=8.0, checkpoint_every_s=2.0,
    log_every_s=0.1, runner="cluster", chunk_vector_steps=8, slack_steps=48,
)  # fmt: skip


class Told(RayHosts):
    """Players whose places are written down."""

    path = pathlib.Path()
    places: tuple[tuple[str, int], ...] = ()

    def prepare(self, order: Order) -> None:
        super().prepare(order)
        places = tuple((h.node, h.pid) for h in self._hosts if h.node)
        if places != self.places:
            self.places = places
            write_json(self.path, places)


def config_of(steps: int, seed: int, players: int, game: str = "") -> Config:
    return CONFIG.replace(max_steps=steps, seed=seed, players=players, env_id=game or CONFIG.env_id)


def main(folder: str, steps: str, seed: str, players: str, game: str = "") -> int:
    run = pathlib.Path(folder)
    Told.path = run.parent / "players.json"
    cluster.RayHosts = Told  # type: ignore[misc]
    try:
        if run.is_dir() and complete(run / "checkpoints"):
            result = resume(run, max_steps=int(steps), trust=True)
        else:  # killed before its first checkpoint
            shutil.rmtree(run, ignore_errors=True)
            result = train(config_of(int(steps), int(seed), int(players), game), run)
    except (UserError, PlayerDied) as e:
        print(f"chaos: {e}", file=sys.stderr)
        return e.exit_code
    if result.exit_code == 0:
        print(json.dumps({"digest": digest(result)}), flush=True)
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""One run of `dqnitro ladder --solve`, in its own process: `python -m dqnitro.lab.solve_job ORDER.json`."""

from __future__ import annotations

import json
import pathlib
import sys

from dqnitro.config import Config


def main(argv: list[str]) -> int:
    from dqnitro.seeds.launcher import stop_with_parent
    from dqnitro.session import resume, train

    stop_with_parent()
    order = json.loads(pathlib.Path(argv[0]).read_text())
    folder, minutes = pathlib.Path(order["folder"]), float(order["minutes"])
    config = Config.from_dict(order["config"]).replace(max_minutes=minutes, log_every_s=2.0, checkpoint_every_s=0.0)
    if (folder / "checkpoints").is_dir() and any((folder / "checkpoints").iterdir()):
        return resume(folder, max_minutes=minutes).exit_code
    if folder.is_dir():  # it was killed before its first checkpoint
        import shutil

        from dqnitro.store.run_folder import RunFolder

        RunFolder(folder).lock()  # CheckpointError if a process is at work there; freed when this one ends
        shutil.rmtree(folder)
    return train(config, folder, recipe="solve", rungs=order["rungs"]).exit_code


if __name__ == "__main__":
    from dqnitro.errors import DQNitroError

    try:
        sys.exit(main(sys.argv[1:]))
    except DQNitroError as e:
        print(e, file=sys.stderr)
        sys.exit(e.exit_code)

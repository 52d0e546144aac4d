"""The command line in this process: one that imports torch takes three seconds to start."""

import pytest


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run a command in this process, in an empty folder; gives its exit code, stdout and stderr."""
    import torch

    def main(*args: str) -> tuple[int, str, str]:
        from dqnitro.cli import main

        try:
            code = main(args)
        except SystemExit as e:  # --help
            code = int(e.code or 0)
        return code, *capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield main
    torch.set_num_threads(threads)  # a run sets what its config says

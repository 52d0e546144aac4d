"""The page that shows a run: one HTML file, no network. `run` reads, `charts` turns data into charts, `page` writes HTML."""

from dqnitro.report.read_run import read_run
from dqnitro.report.run_page import write_run_page

__all__ = ["read_run", "write_run_page"]

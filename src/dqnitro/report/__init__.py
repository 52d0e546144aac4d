"""The page about runs and results: one HTML file that needs no network.

`read_result` reads, `charts` and `bar_charts` turn data into charts, `sections` show results, `html` writes the page.
"""

from dqnitro.report.run_page import write_run_page

__all__ = ["write_run_page"]

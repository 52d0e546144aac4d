"""Tables of measurements for the terminal: numbers with units and intervals, aligned, readable without colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dqnitro.report.formatting import plural

if TYPE_CHECKING:
    from rich.table import Table


def number(value: Any) -> str:
    """Three or four significant digits, thousands separated; `-` for None."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if value and abs(value) < 0.01:
        return f"{value:.1e}"
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def bench_table(result: dict[str, Any]) -> Table:
    """The rows of a benchmark in their order (peers: fastest first); contenders that could not run have dashes."""
    from rich.table import Table

    from dqnitro.lab.bench.contest import ratio_text

    extra: dict[str, str] = result.get("columns", {})
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("contender", no_wrap=True)
    for heading in (result["unit"], "ratio (95% interval)", *extra.values()):
        table.add_column(heading, justify="right", no_wrap=True)
    rows = list(result["table"].items())
    if "title" not in result:
        rows.sort(key=lambda kv: -kv[1]["rate"])
    for name, row in rows:
        shown = "" if row.get("to") == name else ratio_text(row)
        table.add_row(name, number(row["rate"]), shown, *(number(row.get(key)) for key in extra))
    for name in result["skipped"]:
        table.add_row(name, "-", "-", *("-" for _ in extra))
    return table


def by_reason(word: str, names: dict[str, str]) -> list[str]:
    """One line per reason, with all names that share it."""
    reasons: dict[str, list[str]] = {}
    for name, why in names.items():
        reasons.setdefault(why, []).append(name)
    return [f"{word}: {'; '.join(some)}: {why}" for why, some in reasons.items()]


def print_bench(result: dict[str, Any]) -> None:
    """Title, table, the reference of the ratios, what could not be measured and why, verdict."""
    from rich.console import Console

    if "title" in result:
        print(result["title"])
    console = Console(markup=False, highlight=False)  # an interval in brackets is not markup
    if not console.is_terminal:
        console.width = 200  # a file has no width; 80 columns would break the intervals apart
    console.print(bench_table(result))
    print(f"ratios to {result['to']}, over {plural(result['rounds'], 'round')}")
    for line in by_reason("not measured", result["skipped"]):
        print(line)
    if "verdict" in result:
        print(f"\n{result['verdict']}")

from pathlib import Path


def write_run_page(run_dir: Path) -> Path:
    return run_dir / "page.html"

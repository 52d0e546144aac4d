"""The process that `jit.compile_early` starts: compiles the console where it is not compiled yet, and says so."""

from __future__ import annotations

from .jit import compile_early, parallel_compile


def main() -> None:
    parallel_compile.end_with_parent()
    from .games import environment  # noqa: F401 - defines all units, and so compiles those that are missing

    compile_early.keep_mark()


if __name__ == "__main__":
    main()

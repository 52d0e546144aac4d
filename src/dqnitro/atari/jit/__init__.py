"""Compilation by Numba: the only place that names a compiler."""

"""Runners that learn on a GPU: `device` (everything on the GPU) and `hybrid` (games on the CPU cores)."""

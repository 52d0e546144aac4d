"""The console on a GPU: the same sources compiled for CUDA, and what only a GPU needs."""

"""A run on disk: its folder and lock, checkpoints with checksums, and the same folder read as plain data."""

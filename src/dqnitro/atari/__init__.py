"""An Atari 2600."""

"""For users of Python: `train`, `resume`, `load`, the trained agent, the live block of a notebook."""

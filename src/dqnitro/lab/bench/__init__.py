"""Small benchmarks, one file each; `contest` lets their contenders alternate."""

"""The speed lab: what each speed-up is worth on this machine. One module per experiment; bench/ has the benchmarks."""

"""What tests of the console share: ALE as an oracle, plain chips, models of a GPU, programs for random play."""

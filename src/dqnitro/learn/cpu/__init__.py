"""The learner on CPU cores: passes written by hand, patches computed once, bfloat16 copies of the weights."""

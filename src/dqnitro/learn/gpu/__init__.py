"""The learner on a GPU: CUDA graphs, and the whole update in Triton kernels (rung `own-kernels`)."""

"""One run in several processes (ranks), each with a GPU of its own: `torch.distributed` and what has to be known of
it.
"""

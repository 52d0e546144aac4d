"""Many consoles at once on CPU cores: one agent step, the thread pool, the work queue, batches."""

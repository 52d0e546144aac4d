"""Several seeds of one config: one process per seed, as many in parallel as the machine can carry.

`folder` is the folder on disk, `allocation` divides the machine, `launcher` starts and stops the processes, `summary`
sums up.
"""

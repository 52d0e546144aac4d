"""Several independent learners of one config: a process a seed, as many at a time as the machine carries.

`folder` is what lies on disk, `share` divides the machine, `team` starts and stops the processes, `facts` sums them up.
"""

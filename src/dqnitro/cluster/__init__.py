"""Work on more than one machine, on Ray. Nothing outside this package imports Ray, and importing it takes no Ray.

`connect` reaches a cluster or starts one on this machine, `nodes` looks at its nodes and shares them out, `team` runs
whole runs there, each in a process of its own. The runner `cluster`, whose players are on many machines, is in
`run/cluster`. See docs/cluster.md.
"""

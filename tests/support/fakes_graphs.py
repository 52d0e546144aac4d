"""A stand-in for CUDA graphs on a CPU: the same function, again on the same memory."""


class StandIn:
    """Recording runs nothing that stays; a replay runs the function and puts its results where the first ones were."""

    made = 0

    def __init__(self, f):
        StandIn.made += 1
        self._f, self.out = f, ()

    def replay(self):
        out = self._f()
        if not self.out:
            self.out = out
        for to, of in zip(self.out, out, strict=True):
            to.copy_(of)

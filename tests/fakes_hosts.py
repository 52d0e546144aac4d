"""Players of the runner `cluster` in this process: the same code and the same messages without a second of Ray.

What only a cluster can show (processes, nodes, SIGSTOP) is tested with a real one in tests/cluster/.
"""

from dqnitro.run import cluster
from dqnitro.run.cluster.hosts import Lost
from dqnitro.run.cluster.player import Player


class LocalHosts:
    """Every call is made when its answer is asked for, in the order of the calls. `kill` loses a player on purpose."""

    lose_from = 1 << 60  # from this call of `play` on, every player is lost

    def __init__(self) -> None:
        self.players = {}  # handle: player; None once it is lost
        self.numbers = {}  # number of the player: handle
        self.started = self.calls = 0
        self.lose_at = {}  # True at the calls of `play`, counted from 1, in which the player is lost

    def start(self, order, again):
        handle = f"{order.player}, attempt {self.started}"
        self.started += 1
        self.players[handle], self.numbers[order.player] = Player(order), handle
        return handle

    def _answer(self, handle, call):
        box = []

        def answer():
            if self.players[handle] is None:
                raise Lost("it was killed")
            if not box:
                box.append(call(self.players[handle]))
            return box[0]

        return answer

    def hello(self, handle):
        return self._answer(handle, lambda p: p.spec)

    def begin(self, handle, at):
        return self._answer(handle, lambda p: p.begin(at))

    def play(self, handle, permit, weights):
        def call(player):
            self.calls += 1
            if self.lose_at.pop(self.calls, False) or self.calls >= self.lose_from:
                self.kill(handle)
                raise Lost("it was killed")
            return player.play(permit, weights)

        return self._answer(handle, call)

    def put(self, weights):
        return [w.copy() for w in weights]

    def get(self, answer, seconds):
        return answer()

    def kill(self, handle):
        self.players[handle].close()
        self.players[handle] = None

    def end(self, handle):
        if self.players[handle] is not None:
            self.kill(handle)

    def close(self):
        for handle in list(self.players):
            self.end(handle)


def in_this_process(monkeypatch):
    """Players live in this process from here on; the list gets the hosts of each run."""
    made = []

    def hosts(config):
        made.append(LocalHosts())
        return made[-1]

    monkeypatch.setattr(cluster, "ray_hosts", hosts)
    return made

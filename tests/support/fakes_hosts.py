"""Players of the runner `cluster` in this process: the same code and the same messages without a second of Ray.

What only a cluster can show (processes, nodes, SIGSTOP) is tested with a real one in tests/cluster/.
"""

from typing import ClassVar

from dqnitro.run import cluster
from dqnitro.run.cluster.hosts import Late, Lost
from dqnitro.run.cluster.player import Player


class Answer:
    """A call that is made when its answer is asked for. `late`: so many times it is asked for in vain."""

    def __init__(self, call):
        self.call, self.late, self.box = call, 0, []

    def get(self):
        if not self.box:
            self.box.append(self.call(self))
        if self.late:
            self.late -= 1
            raise Late("it did not answer within 3 s")
        return self.box[0]


class LocalHosts:
    """Every call is made when its answer is asked for, in the order of the calls. `kill` loses a player on purpose."""

    lose_from = 1 << 60  # from this call of `play` on, every player is lost
    rooms: ClassVar = {0: 1 << 60}  # how many players have a CPU each, from which call of `play` on

    def __init__(self) -> None:
        self.players = {}  # handle: player; None once it is lost
        self.numbers = {}  # number of the player: handle
        self.started = self.calls = self.versions = 0
        # What is to happen at calls of `play`, counted from 1:
        self.lose_at = {}  # True: the player is lost
        self.late_at = {}  # how often it is asked in vain; 1: it is only slow, many: it hangs
        self.move_at = {}  # True: after this call there is a better place
        self.grown = []  # what `grow` was asked for
        self.one_process = False  # of all players, which are lost together
        self.told = []  # what players were asked to do, in order

    def start(self, order, instead=None):
        handle = f"{order.player}, attempt {self.started}"
        self.started += 1
        self.players[handle], self.numbers[order.player] = Player(order), handle
        self.told.append("start")
        return handle

    def _answer(self, handle, call):
        def made(answer):
            if self.players[handle] is None:
                raise Lost("it was killed")
            return call(self.players[handle], answer)

        return Answer(made)

    def hello(self, handle):
        return self._answer(handle, lambda p, _: p.spec)

    def begin(self, handle, at):
        self.told.append("begin")
        return self._answer(handle, lambda p, _: p.begin(at))

    def play(self, handle, permit, weights):
        self.told.append("play")

        def call(player, answer):
            self.calls += 1
            if self.lose_at.pop(self.calls, False) or self.calls >= self.lose_from:
                for lost in [h for h in self.players if self.players[h] and self.together(h, handle)]:
                    self.kill(lost)
                raise Lost("it was killed")
            answer.late = self.late_at.pop(self.calls, 0)
            return player.play(permit, weights)

        return self._answer(handle, call)

    def put(self, weights):
        self.versions += 1
        return weights.copy()

    def get(self, answer, seconds):
        return answer.get()

    def has(self, answer):
        return not answer.late

    def sharing(self, handle):
        return 1

    def together(self, one, other):
        return one == other or self.one_process

    def prepare(self, order):
        pass

    def better(self, handle, order):
        due = [call for call in self.move_at if call <= self.calls]
        if not due:
            return None
        del self.move_at[due[0]]
        return self.start(order)

    def room(self):
        return self.rooms[max(call for call in self.rooms if call <= self.calls)]

    def grow(self, players, order):
        self.grown.append(players)
        return players == 0 or self.grown[-2:] == [players, players]  # up when asked a second time

    def again(self, players, orders):
        for handle in players:
            self.leave(handle)
        return [self.start(order) for order in orders]

    def kill(self, handle):
        self.players[handle].close()
        self.players[handle] = None

    def leave(self, handle):
        self.end(handle)
        self.numbers = {p: h for p, h in self.numbers.items() if h != handle}

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

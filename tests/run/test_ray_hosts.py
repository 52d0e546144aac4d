"""Which process a player moves into when its own is lost, with a Ray that does what it is told."""

import types

import pytest

from dqnitro.errors import ConfigError
from dqnitro.run.cluster import actors
from dqnitro.run.cluster.actors import RayHosts, Where
from dqnitro.run.cluster.hosts import Late, Lost
from dqnitro.run.cluster.player import Order

pytest.importorskip("ray", reason="Ray is not installed: pip install 'dqnitro[cluster]'")

A, B, C = ("a" * 56, "b" * 56, "c" * 56)  # nodes, as Ray names them


class Answer:
    def __init__(self, actor):
        self.actor = actor


class FakeActor:
    """A process on a node; one that is silent never answers, one that is dead answers with an error."""

    def __init__(self, ray, node, number):
        self.ray, self.node, self.number, self.silent, self.dead = ray, node, number, ray.silent, False
        self.calls = []

    def __getattr__(self, name):
        def remote(*args):
            self.calls.append((name, *args))
            return Answer(self)

        return types.SimpleNamespace(remote=remote)


class FakeRay:
    class RayError(Exception):
        pass

    class GetTimeoutError(RayError):
        pass

    class RayTaskError(RayError):
        def __init__(self, cause):
            super().__init__("the trace")
            self.cause = cause

    def __init__(self, nodes):
        self.exceptions, self.actors, self.killed = self, [], []
        self.all = dict(nodes)
        self.why_not, self.silent = {}, False
        self.place_on = list(nodes)  # where actors without a wish go, in turn

    def nodes(self):
        return [
            {"NodeID": n, "Alive": True, "NodeManagerHostname": n, "Resources": {"CPU": c}} for n, c in self.all.items()
        ]

    def remote(self, kind):
        def options(scheduling_strategy=None, **others):
            node = scheduling_strategy.node_id if scheduling_strategy else None

            def start():
                where = node or self.place_on[len(self.actors) % len(self.place_on)]
                self.actors.append(FakeActor(self, where, len(self.actors)))
                return self.actors[-1]

            return types.SimpleNamespace(remote=start)

        return types.SimpleNamespace(options=options)

    def wait(self, answers, num_returns=1, timeout=None):
        ready = [a for a in answers if a.actor.dead or not a.actor.silent]
        return ready[:num_returns], [a for a in answers if a not in ready[:num_returns]]

    def get(self, answer, timeout):
        if isinstance(answer, Exception):
            raise answer
        if answer.actor.dead:
            raise self.RayError
        if answer.actor.silent:
            raise self.GetTimeoutError
        return Where(answer.actor.node, answer.actor.number, self.why_not.get(answer.actor.node, ""))

    def kill(self, actor):
        self.killed.append(actor.number)


def crew_of(nodes, players):
    """The hosts, their Ray, and the handles of so many players; the spare process is ready."""
    ray = FakeRay(nodes)
    hosts = RayHosts(types.SimpleNamespace(ray=ray, close=lambda: None), 1.0)
    seats = [hosts.start(order(i)) for i in range(players)]
    hosts.prepare(order(0))
    hosts._looked = 0.0
    hosts.prepare(order(0))
    return hosts, ray, seats


def order(player):
    return Order(None, player, b"")


def test_a_lost_player_moves_into_the_spare_process_and_another_one_starts():
    hosts, ray, seats = crew_of({A: 1, B: 1, C: 1}, 2)
    assert ray.actors[2].node == C and ray.actors[2].calls[-1][:2] == ("warm", order(0))
    new = hosts.start(order(0), seats[0])
    assert new.host.actor is ray.actors[2] and new.host.players == {0}
    hosts.end(seats[0])
    assert ray.killed == [0]
    hosts._looked = 0.0
    hosts.prepare(order(0))
    assert len(ray.actors) == 4 and ray.actors[3].node != A  # not where one was just lost


def test_without_a_spare_process_a_player_shares_one_until_the_next_is_ready():
    hosts, ray, seats = crew_of({A: 1, B: 1}, 2)
    hosts._kill(hosts._spare)
    new = hosts.start(order(0), seats[0])
    hosts.end(seats[0])
    assert new.host is seats[1].host and hosts.sharing(new) == 2 and hosts.together(new, seats[1])
    assert hosts.better(new, order(0)) is None
    hosts._looked = 0.0
    hosts.prepare(order(0))
    hosts._looked = 0.0
    hosts.prepare(order(0))
    moved = hosts.better(new, order(0))
    assert moved.host.actor is ray.actors[3] and moved.host.players == {0}
    hosts.leave(new)
    assert hosts.sharing(seats[1]) == 1 and not hosts.together(seats[1], moved)
    assert ("leave", 0) in ray.actors[1].calls and 1 not in ray.killed


def test_processes_that_do_not_answer_are_not_asked_to_play():
    hosts, ray, seats = crew_of({A: 1, B: 1, C: 1}, 3)
    ray.actors[3].dead = ray.actors[1].silent = True
    assert hosts.start(order(0), seats[0]).host is seats[2].host


def test_when_nobody_answers_a_new_process_starts_on_another_node():
    hosts, ray, seats = crew_of({A: 1, B: 1}, 1)
    ray.actors[0].silent = ray.actors[1].dead = True
    new = hosts.start(order(0), seats[0])
    assert new.host.actor is ray.actors[2] and ray.actors[2].node == B


def test_a_survivor_that_was_only_busy_is_there_before_a_new_process():
    hosts, ray, seats = crew_of({A: 1, B: 1}, 2)
    hosts._kill(hosts._spare)
    ray.actors[1].silent = True
    real = ray.wait

    def wait(answers, num_returns=1, timeout=None):
        found = real(answers, num_returns, timeout)
        if actors.OTHERS_S < timeout <= actors.PING_S:
            ray.actors[1].silent = False  # it answers a little later
        for late in ray.actors[3:]:
            late.silent = True  # a new process takes its time
        return found

    ray.wait = wait
    assert hosts.start(order(0), seats[0]).host is seats[1].host
    assert hosts._spare.actor is ray.actors[3]  # and is there for the next one


def test_a_cluster_in_which_nothing_answers_is_a_loss():
    hosts, ray, seats = crew_of({A: 1}, 1)
    ray.wait = lambda answers, num_returns=1, timeout=None: ([], answers)
    with pytest.raises(Lost, match="no process of the cluster answered"):
        hosts.start(order(0), seats[0])
    assert ray.killed == [2]


def test_players_move_to_a_node_that_joins_and_then_stay():
    hosts, ray, seats = crew_of({A: 1}, 3)
    assert [hosts.better(s, order(i)) for i, s in enumerate(seats)] == [None] * 3
    ray.all[B] = 2
    moves = 0
    for _ in range(10):
        hosts._looked = 0.0
        hosts.prepare(order(0))
        for i, seat in enumerate(seats):
            if (new := hosts.better(seat, order(i))) is not None:
                seats[i], moves = new, moves + 1
                hosts.leave(seat)
                break
    assert moves == 2 and sorted(s.host.node for s in seats) == [A, B, B]


def look(hosts):
    hosts._looked = 0.0
    hosts.prepare(order(0))


def test_players_that_are_to_join_get_processes_where_no_player_is_and_those_before_stay():
    hosts, ray, seats = crew_of({A: 1}, 1)
    assert hosts.room() == 1
    ray.all |= {B: 2, C: 0}
    look(hosts)
    assert hosts.room() == 3 and hosts.grow(2, order(0))
    mine, before = ray.actors[-2:], len(ray.actors)
    assert [a.node for a in mine] == [B, B] and hosts.grow(2, order(0)) and len(ray.actors) == before
    assert hosts.better(seats[0], order(0)) is None, "its node is as full as the other will be"
    after = hosts.again(seats, [order(i) for i in range(3)])
    assert [s.host.actor for s in after] == [ray.actors[0], *mine]
    assert ("leave", 0) in ray.actors[0].calls and [s.player for s in after] == [0, 1, 2]


def test_players_that_leave_give_the_fullest_nodes_up_and_those_that_have_to_share_do():
    hosts, ray, seats = crew_of({A: 1, B: 1}, 4)
    two = hosts.again(seats, [order(0), order(1)])
    assert sorted(s.host.node for s in two) == [A, B] and len(ray.killed) == 2
    three = hosts.again(two, [order(i) for i in range(3)])
    assert hosts.sharing(three[0]) == hosts.sharing(three[2]) == 2 and hosts.sharing(three[1]) == 1
    assert [hosts.together(three[0], seat) for seat in three] == [True, False, True]


def test_processes_for_players_that_are_not_wanted_any_more_end_and_lost_ones_start_elsewhere():
    hosts, ray, _ = crew_of({A: 1, B: 2, C: 1}, 1)
    assert hosts.grow(3, order(0))
    mine = ray.actors[-3:]
    hosts.grow(1, order(0))
    assert ray.killed == [a.number for a in mine[1:]]
    hosts.grow(0, order(0))
    ray.silent = True
    hosts.grow(1, order(0))
    lost = ray.actors[-1]
    lost.dead, ray.silent = True, False
    assert hosts.grow(1, order(0)) and lost.number in ray.killed and ray.actors[-1].node != lost.node


def test_a_node_that_joins_and_cannot_play_gets_no_players(capsys):
    hosts, ray, _ = crew_of({A: 1}, 1)
    ray.all[B], ray.why_not = 4, {B: "no ROM"}
    look(hosts)
    assert hosts.room() == 5
    for _ in range(3):
        hosts.grow(1, order(0))
        look(hosts)
    assert hosts.room() == 1 and capsys.readouterr().err.count("joined, but gets no players: no ROM") == 1


def test_answers_that_are_errors():
    hosts, _, _ = crew_of({A: 1}, 1)
    with pytest.raises(ConfigError, match="no ROM"):
        hosts.get(FakeRay.RayTaskError(ConfigError("no ROM")), 1)
    with pytest.raises(Lost, match="ValueError: oh") as e:
        hosts.get(FakeRay.RayTaskError(ValueError("oh")), 1)
    assert e.value.trace == "the trace"
    with pytest.raises(Late, match="within 3 s"):
        hosts.get(FakeRay.GetTimeoutError(), 3)
    with pytest.raises(Lost, match="process or node was lost .RayError"):
        hosts.get(FakeRay.RayError(), 3)


def test_closing_ends_every_process():
    hosts, ray, _ = crew_of({A: 1}, 2)
    hosts.close()
    assert sorted(ray.killed) == [0, 1, 2]


def test_the_names_that_the_tests_on_a_real_cluster_look_for():
    assert actors.PlayerHost.__name__ == "PlayerHost"

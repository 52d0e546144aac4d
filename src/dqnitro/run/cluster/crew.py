"""The learner's end of all players: permits their chunks, takes them in order, saves them, replaces lost ones.

Chunk c may be played when it was permitted, which happens when the learner begins chunk c - slack; the permit carries
the weights and the epsilon of that moment. So the age of the weights is the same in every run, and nothing depends on
which player, node or network happened to be faster. The learner keeps of each player the last known state of its
environments and the actions since: with these, a player that is lost is rebuilt elsewhere, and plays what it had not
finished with the weights that it was given for it.

How many players there are may change at the border of a chunk (`layout.py`): by the CPUs that are free, which is up to
the nodes and therefore recorded, or as it was recorded.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from dqnitro.config import Config, changes_of_players, numbers_of_players
from dqnitro.envs.base import EnvSpec, Step
from dqnitro.errors import PlayerDied, UserError
from dqnitro.learn.learner import Learner
from dqnitro.run.cluster.chunk import checksums, from_arrays, joined, steps_of, to_arrays
from dqnitro.run.cluster.hosts import Hosts, Late, Lost
from dqnitro.run.cluster.layout import players_in, shared_out_again
from dqnitro.run.cluster.place import Leave, Place, Weights
from dqnitro.run.cluster.player import Order, Permit, Played, envs_each, first_rng, joined_weights, parts_of
from dqnitro.run.processes.spawn import own_pieces

BIRTH_S = 600.0  # for a player's first start: its node may have to compile the console
REBIRTH_S = 20.0  # for one in the place of another, in a process that is up, to play some seconds again
CHUNK_S, CHUNK_TIMES = 3.0, 10.0  # how long a chunk may take: seconds, or times the median ...
RECENT = 64  # chunks whose times are kept for that
RESTARTS = 3  # more of one player without a chunk between them are not accidents
# With too few CPUs. A node may be back soon, and Ray takes up to ten seconds to see that a stopped process is gone;
# until then players share processes.
PATIENCE_S = 30.0
STATE_VECTOR_STEPS, STATE_S = 256, 2.0  # a replaced player plays at most about so much again


class Crew:
    """Environments that are played, actions and all, by players elsewhere. To the rest of the agent: its `envs`."""

    spec: EnvSpec
    idle = last_actions = None  # the players know

    def __init__(self, config: Config, hosts: Hosts) -> None:
        self._config, self._hosts = config, hosts
        self._slack = slack_chunks(config)
        self._closed = self._failed = False
        self.replaced = self.moved = 0
        self.seconds = {"act": 0.0, "env": 0.0}  # of the players' own time, over the chunks taken
        self._took: deque[float] = deque(maxlen=RECENT)  # seconds of the last chunks
        self._pieces = own_pieces(config)
        self._numbers = numbers_of_players(config)
        self._recorded = deque(changes_of_players(config.player_changes))  # to be made whatever the nodes say
        self._made = False  # a change since a chunk was last permitted
        self._short_since: float | None = None
        self.changes: deque[tuple[int, int]] = deque()  # chunks, and players from there on, that nobody has noted yet
        self._places: list[Place] = []
        self._before = 0  # chunks of the run before number 0
        self._begin_counting()
        try:
            self._places = self._unhired(self._first_number())
            for place in self._places:
                place.handle = hosts.start(place.order)
            specs = [self._first(hosts.hello(place.handle)) for place in self._places]
        except BaseException:
            self.close()
            raise
        self.spec = dataclasses.replace(specs[0], n_envs=config.n_envs)
        self.changes.append((0, self.players))
        self._obs = np.zeros(0)

    def _unhired(self, players: int) -> list[Place]:
        config = self._config.replace(players=players, most_players=0, player_changes="")
        m = envs_each(config)
        return [
            Place(Order(config, i, self._pieces), first_rng(config.seed, i), np.zeros(m, bool)) for i in range(players)
        ]

    @property
    def players(self) -> int:
        return len(self._places)

    @property
    def permitted(self) -> int:
        """Chunks since the beginning of the run, those that may still be played included."""
        return self._before + self._permitted

    @property
    def orders(self) -> list[Order]:
        """Of all players."""
        return [place.order for place in self._places]

    def _first(self, answer: Any) -> Any:
        try:
            return self._hosts.get(answer, BIRTH_S)
        except Lost as e:
            raise self._died(f"a player could not start: {e}", e) from None

    def _begin_counting(self) -> None:
        """Chunk numbers begin at 0 with every start or resume."""
        self._next, self._tick = 0, 0  # the chunk to take from, and how many of its vector steps were taken
        self._permitted = 0
        self._leaves: dict[int, Leave] = {}  # of chunks that not all players have brought back
        self._weights: Weights | None = None
        self._steps: Iterator[tuple[np.ndarray, Step]] | None = None

    # -- playing

    def permit(self, learner: Learner, epsilon: float) -> None:
        """At the border of a chunk: hand over the weights as they are now, and let all go on up to the slack."""
        if self._tick or self._permitted > self._next + self._slack:
            return
        if self._weights is None or self._weights.version != learner.n_updates:
            arrays = [p.detach().cpu().numpy() for p in learner.online.parameters()]
            self._weights = self._handed_over(learner.n_updates, arrays)
        self._hosts.prepare(self._places[0].order)
        while (players := self._wanted()) != self.players:
            self._change(players)
        self._share_out()
        every = max(1, min(STATE_VECTOR_STEPS // self._config.chunk_vector_steps, int(STATE_S / self._usual_s())))
        while self._permitted <= self._next + self._slack:
            keep = (self._permitted + 1) % every == 0
            self._allow(Leave(Permit(self._permitted, epsilon, keep), self._weights))

    def _handed_over(self, version: int, arrays: Sequence[np.ndarray]) -> Weights:
        """A copy, as one array: a cluster keeps and passes on one object for less than many."""
        whole = joined_weights(arrays)
        return Weights(version, self._hosts.put(whole), parts_of(whole, [a.shape for a in arrays]))

    def _allow(self, leave: Leave) -> None:
        self._leaves[self._permitted] = leave
        self._permitted, self._made = self._permitted + 1, False
        for place in self._places:
            if place.done < self._permitted:
                place.answers.append(self._hosts.play(place.handle, leave.permit, leave.weights.held))

    def take(self) -> tuple[np.ndarray, Step]:
        """The next vector step of all environments, waiting for it where need be."""
        if self._steps is None:
            for place in self._places:
                while place.done <= self._next:
                    self.fetch(place)
            self._steps = self._unpacked(self._obs, self._tick)
        actions, step = next(self._steps)
        self._obs, self._tick = step.obs_t, self._tick + 1
        if self._tick == self._config.chunk_vector_steps:
            for place in self._places:
                chunk = place.chunks.pop(self._next)
                self.seconds["act"] += float(chunk.seconds[0]) / len(self._places)
                self.seconds["env"] += float(chunk.seconds[1]) / len(self._places)
            self._next, self._tick, self._steps = self._next + 1, 0, None
        return actions, step

    def _unpacked(self, obs: np.ndarray, begin: int) -> Iterator[tuple[np.ndarray, Step]]:
        each, spec = np.split(obs, self.players), dataclasses.replace(self.spec, n_envs=len(obs) // self.players)
        sources = [
            steps_of(place.chunks[self._next], spec, before, begin)
            for place, before in zip(self._places, each, strict=True)
        ]
        return (joined(list(parts)) for parts in zip(*sources, strict=True))

    def fetch(self, place: Place) -> None:
        """Get the next chunk of a player, from the process that finally plays it."""
        try:
            played = self._hosts.get(place.answers[0], self._patience_s(place))
        except Lost as e:
            self._replace(place, e, self._gone_with(place))
        else:
            self._came(place, played)

    def _came(self, place: Place, played: Played) -> None:
        """The next chunk of a player is there."""
        chunk = played.chunk
        place.answers.popleft()
        place.chunks[place.done] = chunk
        place.rng, place.pending, place.crc = chunk.rng, chunk.pending, chunk.crc
        place.games, place.log = (
            (place.games, [*place.log, chunk.action]) if played.games is None else (played.games, [])
        )
        place.done, place.losses = place.done + 1, 0
        self._took.append(float(chunk.seconds.sum()))
        if all(p.done > place.done - 1 for p in self._places):
            self._leaves.pop(place.done - 1, None)

    def _patience_s(self, place: Place) -> float:
        """How long to wait for a chunk. Those of players in the same process come first."""
        return max(CHUNK_S, CHUNK_TIMES * self._usual_s() * self._hosts.sharing(place.handle))

    def _together(self, place: Place) -> list[Place]:
        """The players in the process of this one, itself included."""
        return [p for p in self._places if self._hosts.together(place.handle, p.handle)]

    def _usual_s(self) -> float:
        """What a chunk took lately; no result depends on it, only how long a loss is noticed and repaired."""
        return max(1e-6, median(self._took) if self._took else 0.0)

    # -- moving, losing and replacing

    def _share_out(self) -> None:
        """At the border of a chunk: a player that shares a process or crowds a node moves to a better place."""
        for place in self._places:
            better = self._hosts.better(place.handle, place.order)
            if better is None:
                continue
            try:
                self._settle(place, better, REBIRTH_S)
            except Lost:
                self._hosts.end(better)  # it stays where it is
            else:
                self._hosts.leave(place.handle)
                self._move(place, better)
                self.moved += 1
            return  # one at a time

    def _move(self, place: Place, handle: Any) -> None:
        """From now on this player, which is where the learner knows it to be, plays what was permitted."""
        place.handle = handle
        place.answers = deque(
            self._hosts.play(handle, leave.permit, leave.weights.held)
            for c in range(place.done, self._permitted)
            for leave in [self._leaves[c]]
        )

    def _replace(self, lost: Place, e: Lost, places: Sequence[Place]) -> None:
        """Other players go on exactly where the lost ones finished their last chunks. All play their games again before
        the first goes on: a process that plays on has no time for the next one.
        """
        began = time.monotonic()
        while True:
            for place in places:
                self._count_loss(place, e if place is lost else Lost(str(e)))
            handles: list[Any] = []
            try:
                for place in places:
                    handles.append(self._hosts.start(place.order, place.handle))
                begun = [self._hosts.begin(h, p.position()) for h, p in zip(handles, places, strict=True)]
                for place, handle, answer in zip(places, handles, begun, strict=True):
                    self._settle(place, handle, REBIRTH_S, answer)
            except UserError as refused:
                self._failed = True
                raise PlayerDied(f"{lost.name} was lost ({e}) and cannot be replaced: {refused}", e.trace) from refused
            except Lost as again:
                e = again
                for handle in handles:
                    self._hosts.end(handle)
                continue
            break
        slow = isinstance(e, Late) and lost.answers and self._hosts.has(lost.answers[0])
        for place, handle in zip(places, handles, strict=True):
            if slow:  # it has answered before the other was ready
                place.losses -= 1
                self._hosts.leave(handle)
            else:
                self._hosts.end(place.handle)
                self._move(place, handle)
                self.replaced += 1
            seconds = time.monotonic() - began
            sys.stderr.write(f"dqnitro: {place.name} plays again, after {seconds:.1f} s\n")

    def _gone_with(self, lost: Place) -> list[Place]:
        """This player, those of its process, and others whose loss is known as well, as of a node that is gone."""
        gone = self._together(lost)
        for place in self._places:
            if place is not lost and not self._take_what_came(place):
                gone += [p for p in self._together(place) if p not in gone]
        return gone

    def _take_what_came(self, place: Place) -> bool:
        """The chunks that are there without waiting; False if the player is lost."""
        try:
            while place.answers and self._hosts.has(place.answers[0]):
                self._came(place, self._hosts.get(place.answers[0], CHUNK_S))
        except Late:
            return True
        except Lost:
            return False
        return True

    def _count_loss(self, place: Place, e: Lost) -> None:
        """Say it, and end the run if it is one too many."""
        name = place.name
        place.losses += 1
        if place.losses > RESTARTS:
            self._hosts.end(place.handle)
            cure = "repair the environment (traceback above)" if e.trace else "look at the nodes (`ray status`)"
            self._failed = True
            raise self._died(
                f"{name} was lost {place.losses} times in a row, at last because {e}; the run is saved; hint: {cure}, "
                "then --resume",
                e,
            )
        sys.stderr.write(
            f"{e.trace}dqnitro: {name} was lost ({e}); starting it elsewhere ({place.losses} of {RESTARTS})\n"
        )

    def _begun(self, places: Sequence[Place]) -> list[tuple[Place, Any]]:
        """All of them play their games again at the same time; with the answers."""
        return [(place, self._hosts.begin(place.handle, place.position())) for place in places]

    def _settle(self, place: Place, handle: Any, seconds: float, begun: Any = None) -> np.ndarray:
        """Bring a new player to where the learner knows it to be; the games must come out the same."""
        self._hosts.get(self._hosts.hello(handle), seconds)
        obs = self._hosts.get(self._hosts.begin(handle, place.position()) if begun is None else begun, seconds)
        if place.crc is not None and (checksums(obs) != place.crc).any():
            self._failed = True
            raise PlayerDied(
                f"{place.name} was lost and its games did not come out the same when they were played "
                "again; the run is saved; hint: an environment must depend on nothing but the seed of reset and the "
                "actions"
            )
        place.crc = checksums(obs)
        return obs

    def _died(self, message: str, e: Lost) -> PlayerDied:
        if e.trace:
            sys.stderr.write(e.trace)
        return PlayerDied(message, e.trace)

    # -- another number of players

    def _first_number(self) -> int:
        if self._config.player_changes:
            return self._recorded.popleft()[1] if self._recorded[0][0] == 0 else self._numbers[0]
        return self._fitting()

    def _fitting(self) -> int:
        """As many as have a CPU each, or the fewest that there may be, which share."""
        if len(self._numbers) == 1:
            return self._numbers[0]
        room = self._hosts.room()
        return max((k for k in self._numbers if k <= room), default=self._numbers[0])

    def repeat(self, changes: Sequence[tuple[int, int]]) -> None:
        """These changes were made before the run was lost: they are made again, and then the nodes decide."""
        self._recorded = deque(changes)

    def _wanted(self) -> int:
        """How many players the next chunk is to have."""
        while self._recorded and self._recorded[0][0] <= self.permitted:
            players = self._recorded.popleft()[1]
            if players != self.players:
                return players
        if self._recorded or self._config.player_changes or len(self._numbers) == 1:
            return self.players
        if self._made or not self.permitted:
            return self.players  # the nodes decide once a border, and have done so for the first chunk
        fitting = self._fitting()
        if fitting < self.players:
            self._short_since = self._short_since or time.monotonic()
            return fitting if time.monotonic() - self._short_since >= PATIENCE_S else self.players
        self._short_since = None
        up = self._hosts.grow(fitting - self.players, self._places[0].order)
        return fitting if up else self.players

    def _change(self, players: int) -> None:
        """At the border of a chunk: share the environments out to `players` players, when all have played."""
        state = self.get_state()
        crcs = np.split(np.concatenate([place.crc for place in self._places if place.crc is not None]), players)
        places = self._others(players)
        self._put_back(places, shared_out_again(state, players), crcs)
        for place, begun in self._begun(places):
            try:
                self._settle(place, place.handle, REBIRTH_S, begun)
            except Lost as e:
                self._replace(place, e, [place])
        self._say_change(players)
        self._places, self._short_since = places, None

    def _others(self, players: int) -> list[Place]:
        places = self._unhired(players)
        handles = self._hosts.again([p.handle for p in self._places], [p.order for p in places])
        for place, handle in zip(places, handles, strict=True):
            place.handle = handle
        return places

    def _say_change(self, players: int, before: int | None = None) -> None:
        chunk = self.permitted
        self.changes.append((chunk, players))
        self._made = True
        sys.stderr.write(
            f"dqnitro: {_players(players)} instead of {before or self.players} from chunk {chunk:,} on: the "
            "environments are shared out again\n"
        )

    # -- beginning, saving, ending

    def reset(self) -> np.ndarray:
        """Begin every environment's first game."""
        try:
            shown = [self._settle(place, place.handle, BIRTH_S, begun) for place, begun in self._begun(self._places)]
            self._obs = np.concatenate(shown)
        except Lost as e:
            raise self._died(f"a player could not start: {e}", e) from None
        return self._obs

    def get_state(self) -> Mapping[str, np.ndarray]:
        """Where all players are, and what they played ahead. After a failure: as of the last chunks that came back, and
        what was still to be played, with the weights for it.
        """
        while not self._failed and any(place.answers for place in self._places):
            for place in self._places:
                while place.answers:
                    self.fetch(place)
        out = {"obs": self._obs, "tick": np.array(self._tick), "permitted": np.array(self._permitted - self._next)}
        out["before"] = np.array(self._before + self._next)
        for i, place in enumerate(self._places):
            at = place.position()
            out |= {f"p{i}.games.{k}": np.asarray(v) for k, v in (at.games or {}).items()}
            out |= {f"p{i}.log": at.log, f"p{i}.rng": at.rng, f"p{i}.pending": at.pending}
            out[f"p{i}.done"] = np.array(place.done - self._next)
            for c, chunk in place.chunks.items():
                out |= to_arrays(chunk, f"p{i}.chunk{c - self._next}.")
        for c, leave in self._leaves.items():
            name = f"leave{c - self._next}."
            out |= {f"{name}epsilon": np.array(leave.permit.epsilon), f"{name}keep": np.array(leave.permit.keep)}
            out[f"{name}version"] = np.array(leave.weights.version)
            out |= {f"{name}w{k}": w for k, w in enumerate(leave.weights.arrays)}
        return out

    def set_state(self, state: Mapping[str, np.ndarray]) -> np.ndarray:
        """Go on from `get_state`, with players that have not been permitted anything yet; if there are to be others
        than saved it, it is shared out again.
        """
        self._begin_counting()
        self._before, saved = int(state.get("before", 0)), players_in(state)
        players, permitted = self._players_after(saved), self._before + int(state["permitted"])
        if self._config.player_changes:
            changes = changes_of_players(self._config.player_changes)
            self._recorded = deque(change for change in changes if change[0] >= permitted)
        if players != self.players:
            self._places = self._others(players)
        state = shared_out_again(state, players)
        self._put_back(self._places, state)
        self._tick, self._obs = int(state["tick"]), np.array(state["obs"])
        try:
            for place, begun in self._begun(self._places):
                self._settle(place, place.handle, BIRTH_S, begun)
        except Lost as e:
            raise self._died(f"a player could not go back to its games: {e}", e) from None
        for c in range(int(state["permitted"])):
            if f"leave{c}.epsilon" in state:
                self._allow(self._saved_leave(c, state))
            else:
                self._permitted += 1
        self._weights = None
        self.changes.clear()
        if players != saved:
            self._say_change(players, saved)
        return self._obs

    def _players_after(self, saved: int) -> int:
        """With how many players a save of `saved` goes on. What is recorded, or nodes decide, follows at a border."""
        if self._config.player_changes:
            return saved
        return max((k for k in self._numbers if k <= saved), default=self._numbers[0])

    def _put_back(
        self, places: Sequence[Place], state: Mapping[str, np.ndarray], crcs: Sequence[np.ndarray] | None = None
    ) -> None:
        """What a state holds of each player; its chunks are counted from the one to take from."""
        for i, place in enumerate(places):
            prefix, done = f"p{i}.games.", int(state[f"p{i}.done"])
            games = {k.removeprefix(prefix): np.array(v) for k, v in state.items() if k.startswith(prefix)}
            place.rng, place.pending = np.array(state[f"p{i}.rng"]), np.array(state[f"p{i}.pending"])
            log = np.array(state[f"p{i}.log"], np.int64).reshape(-1, len(place.pending))
            place.games, place.log, place.crc = games or None, [log], None if crcs is None else crcs[i]
            place.done = self._next + done
            place.chunks = {self._next + c: from_arrays(state, f"p{i}.chunk{c}.") for c in range(done)}

    def _saved_leave(self, c: int, state: Mapping[str, np.ndarray]) -> Leave:
        name, arrays = f"leave{c}.", []
        while f"{name}w{len(arrays)}" in state:
            arrays.append(np.array(state[f"{name}w{len(arrays)}"]))
        permit = Permit(c, float(state[f"{name}epsilon"]), bool(state[f"{name}keep"]))
        return Leave(permit, self._handed_over(int(state[f"{name}version"]), arrays))

    def close(self) -> None:
        """End all players. May be called twice."""
        if not self._closed:
            self._closed = True
            self._hosts.close()

    def send(self, actions: np.ndarray) -> None:
        """The players choose actions themselves."""
        raise TypeError("a Crew takes permits, not actions")

    def recv(self) -> Step:
        return self.take()[1]


def _players(n: int) -> str:
    return f"{n} player{'s' * (n > 1)}"


def slack_chunks(config: Config) -> int:
    """The slack in whole chunks."""
    return config.slack_steps // (config.n_envs * config.chunk_vector_steps)

"""Which ends of a run on a cluster are ends, and which are accidents; with a Ray that does what it is told."""

import json
import pathlib
import signal
import types

import pytest

from dqnitro.cluster.nodes import Need
from dqnitro.cluster.team import LOST, RayTeam
from dqnitro.common.files import sealed
from dqnitro.storage.base import LocalStorage
from dqnitro.storage.host import Ended, order_of
from dqnitro.storage.mailbox import Request
from dqnitro.store.run_folder import RunFolder


class FakeRay:
    """Every call of `run` ends at once: with the next of the exit codes, or with a lost actor where that is None."""

    class RayError(Exception):
        pass

    class RayActorError(RayError):
        pass

    def __init__(self, codes):
        self.codes, self.started, self.ended = list(codes), [], 0
        self.exceptions = types.SimpleNamespace(RayError=self.RayError, RayActorError=self.RayActorError)

    def remote(self, **options):
        return lambda kind: types.SimpleNamespace(remote=self._actor)

    def _actor(self):
        def run(order):
            self.started.append(order.arguments)
            return self.codes.pop(0)

        return types.SimpleNamespace(
            node=types.SimpleNamespace(remote=lambda: "somewhere"), run=types.SimpleNamespace(remote=run),
            stop=types.SimpleNamespace(remote=lambda number: None),
        )  # fmt: skip

    def wait(self, refs, timeout):
        return refs, []

    def get(self, ref):
        if ref is None:
            raise self.RayActorError
        if isinstance(ref, Exception):
            raise ref
        return Ended(ref) if isinstance(ref, int) else ref

    def kill(self, actor):
        self.ended += 1


def team_of(codes, seeds=(1,), at_once=2):
    ray, said = FakeRay(codes), []
    here = pathlib.Path(".")

    def order(seed):
        return order_of(["python", str(seed)], here / "log", here, {})

    return RayTeam(types.SimpleNamespace(ray=ray), Need(1, 0, 0), order, seeds, at_once, said.append), ray, said


def followed(team):
    for _ in range(20):
        team.poll()
    return {seed: member.code for seed, member in team.members.items()}


@pytest.mark.parametrize("lost", [None, -signal.SIGKILL, 143, 129])
def test_a_run_that_was_lost_or_stopped_by_nobody_here_starts_again(lost):
    team, ray, said = team_of([lost, lost, 0])
    assert followed(team) == {1: 0} and team.over and len(ray.started) == ray.ended == 3
    assert len(said) == 2 and "it goes on from its last checkpoint (2 of 3)" in said[1]


def test_a_run_that_is_lost_again_and_again_has_failed():
    team, ray, _ = team_of([None] * 10)
    assert followed(team) == {1: -signal.SIGKILL} and len(ray.started) == LOST + 1


def test_other_exit_codes_are_ends_and_the_next_run_takes_the_place():
    team, ray, said = team_of([0, 3, 2], seeds=(1, 2, 3), at_once=1)
    assert followed(team) == {1: 0, 2: 3, 3: 2} and not said
    assert ray.started == [("1",), ("2",), ("3",)]


@pytest.mark.parametrize("code", [None, 143])
def test_what_was_told_to_stop_does_not_start_again(code):
    team, ray, _ = team_of([code], seeds=(1, 2), at_once=1)
    team.poll()
    team.stop(signal.SIGTERM)
    assert followed(team) == {1: 143} and team.over and len(ray.started) == 1


def test_a_node_that_cannot_even_start_a_run_is_one_of_three_losses():
    team, ray, said = team_of([FakeRay.RayError("Traceback\n  line\nFileNotFoundError: /shared/s1.log")] * 10)
    assert followed(team) == {1: -signal.SIGKILL} and len(ray.started) == LOST + 1
    assert "node somewhere cannot run it (FileNotFoundError: /shared/s1.log)" in said[0]
    assert team.members[1].why.endswith("/shared/s1.log)")


def test_a_storage_that_fails_for_long_ends_its_run_with_the_reason():
    team, _, said = team_of([Ended(2, "s3://x cannot be used")])
    assert followed(team) == {1: 2} and team.members[1].why == "s3://x cannot be used" and not said


def test_a_run_whose_files_travel_counts_as_running_here(tmp_path):
    """The command that takes its files holds its lock, from the first file on, until the run is gone."""
    summary, folder, states = json.dumps(sealed({"state": "running"})).encode(), RunFolder(tmp_path / "s1"), []
    team, ray, _ = team_of([])

    def exchanges():
        yield None
        yield Request(1, "put", ("s1/summary.json", 0, summary, True))
        states.append(folder.state())
        yield None
        raise FakeRay.RayError

    answers = exchanges()
    actor = types.SimpleNamespace(exchange=types.SimpleNamespace(remote=lambda answer: answers))
    ray.get = next
    team.serve_files(actor, LocalStorage(tmp_path), str(folder.path))
    assert states == ["running"] and folder.state() == "crashed"

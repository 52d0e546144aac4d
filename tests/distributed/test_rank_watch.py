"""The watch over the other ranks."""

import threading
import time

from dqnitro.distributed import watch
from dqnitro.distributed.watch import Watch
from dqnitro.distributed.world import Place


class SlowStore:
    """A call of it takes a while, as on a busy machine."""

    def __init__(self):
        self.called, self.left = threading.Event(), threading.Event()

    def set(self, key, value):
        self.called.set()
        time.sleep(0.3)
        self.left.set()

    def check(self, keys):
        return False


def test_it_is_out_of_the_store_when_it_is_closed(monkeypatch):
    """Python aborts if it ends while a thread is in there."""
    monkeypatch.setattr(watch, "BEAT_S", 0.01)
    store = SlowStore()
    here = Watch(Place(0, 2), store, lambda rank, why: None)
    here.start()
    assert store.called.wait(60)
    here.close()
    assert store.left.is_set() and not here._thread.is_alive()


def test_one_that_was_never_started_can_be_closed():
    Watch(Place(0, 2), SlowStore(), lambda rank, why: None).close()

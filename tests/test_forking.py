"""What a copy of a process needs to be able to go on."""

import sys
import threading

import pytest

from gradscope.record import forking
from gradscope.record.forking import FORKS, resting

pytestmark = pytest.mark.skipif(not FORKS, reason="only on Linux are there copies")


def test_a_thread_that_waits_for_an_event_rests():
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    before = sys.getswitchinterval()

    assert thread.native_id is not None
    with resting([thread.native_id]) as rest:
        assert rest
        assert sys.getswitchinterval() > before
    over.set()
    thread.join()

    assert sys.getswitchinterval() == before


def test_a_thread_that_asks_for_the_interpreter_does_not_rest(monkeypatch):
    monkeypatch.setattr(forking, "_MADE_BY", 0.005)  # else it has its turn for a second
    is_over = False

    def spin() -> None:
        while not is_over:
            sum(range(1000))

    thread = threading.Thread(target=spin)
    thread.start()
    assert thread.native_id is not None
    with resting([thread.native_id]) as rest:
        pass
    is_over = True
    thread.join()

    assert not rest

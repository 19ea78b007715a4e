"""What a program leaves to its end happens then as it does with Python alone: in the same order,
once, and with all that it uses still there."""

from pathlib import Path

import pytest
from conftest import bare_and_traced

PROGRAM = """
import atexit, sys, threading, time, weakref
import torch

def say(*words):
    print(*words, flush=True)

class Thing:
    def __init__(self, name):
        self.name = name
    def __del__(self):
        say("del", self.name, len(seen), torch.ones(2).sum().item())

seen = []
first, _second = Thing("first"), Thing("second")
itself = Thing("itself")
itself.cycle = itself
atexit.register(say, "at exit")
weakref.finalize(itself, say, "finalized")
threading.Thread(target=lambda: (time.sleep(0.2), say("thread"))).start()
net = torch.nn.Linear(3, 1)
net.thing = Thing("in a module")
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(3):
    optimizer.zero_grad()
    net(torch.ones(2, 3)).sum().backward()
    optimizer.step()
seen.append(step)

def deep(thing):
    {last}

deep(Thing("in a frame"))
"""


@pytest.mark.slow
@pytest.mark.parametrize("last", ["pass", "sys.exit(3)", "raise ValueError('mine')"])
def test_the_end_is_as_without_us(last, tmp_path: Path):
    (tmp_path / "program.py").write_text(PROGRAM.replace("{last}", last), encoding="utf-8")
    bare, seen = bare_and_traced(tmp_path / "program.py")

    assert seen.stdout == bare.stdout
    assert bare.stdout.count("del") == 5

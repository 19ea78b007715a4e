"""Gradients that are never cleared: the repair clears them with names that the program has."""

from pathlib import Path

import pytest
from corpus import diagnosed_text

from gradscope.facts import Fix

LOOP = """\
for _ in range(10):
    x = torch.randn(16, 3)
    loss = ({} - x.sum(1, keepdim=True)).square().mean()
    loss.backward()
"""
NET = "fc = torch.nn.Linear(3, 1)\n"
PAIR = "a, b = torch.randn(3, 1, requires_grad=True), torch.zeros(1, requires_grad=True)\n"
SGD = "torch.optim.SGD(fc.parameters(), lr=0.3)"
AT_ONCE = "    with torch.no_grad():\n"
CASES = {
    "optimizer": (
        f"{NET}opt = {SGD}\n{LOOP.format('fc(x)')}    opt.step()\n",
        ["+    opt.zero_grad()"],
    ),
    "optimizer in a dict": (
        f"{NET}held = {{'net': {SGD}}}\n{LOOP.format('fc(x)')}    held['net'].step()\n",
        ["+    held['net'].zero_grad()"],
    ),
    "two optimizers": (
        f"{NET}head = torch.nn.Linear(3, 3)\nopt = {SGD}\n"
        "other = torch.optim.SGD(head.parameters(), lr=0.3)\n"
        f"{LOOP.format('fc(head(x))')}    opt.step()\n    other.step()\n",
        ["+    opt.zero_grad()", "+    other.zero_grad()"],
    ),
    "module": (
        f"{NET}{LOOP.format('fc(x)')}{AT_ONCE}"
        "        for w in fc.parameters():\n            w -= 0.3 * w.grad\n",
        ["+    fc.zero_grad()"],
    ),
    "list": (
        f"{PAIR}params = [a, b]\n{LOOP.format('x @ a + b')}"
        "    for w in params:\n        w.data -= 0.3 * w.grad\n",
        ["+    for p in params:", "+        p.grad = None"],
    ),
    "one name each": (
        f"{PAIR}{LOOP.format('x @ a + b')}{AT_ONCE}"
        "        a -= 0.3 * a.grad\n        b -= 0.3 * b.grad\n",
        ["+    a.grad = None", "+    b.grad = None"],
    ),
    "closure": (
        f"{NET}opt = {SGD}\nfor _ in range(10):\n    x = torch.randn(16, 3)\n"
        "    def closure():\n        loss = (fc(x) - 1).square().mean()\n        loss.backward()\n"
        "        return loss\n    opt.step(closure)\n",
        ["+        opt.zero_grad()"],
    ),
    "trainer": (
        "class Trainer:\n    def __init__(self):\n        self.net = torch.nn.Linear(3, 1)\n"
        "        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.3)\n"
        "        self.scaler = torch.amp.GradScaler('cpu', enabled=False)\n\n"
        "    def fit(self, x):\n        loss = (self.net(x) - 1).square().mean()\n"
        "        self.scaler.scale(loss).backward()\n        self.scaler.step(self.opt)\n\n"
        "one = Trainer()\nfor _ in range(10):\n    one.fit(torch.randn(16, 3))\n",
        ["+        self.opt.zero_grad()"],
    ),
    "optimizers in a loop": (
        "held = {'all': [torch.nn.Linear(3, 1)]}\n"
        "opts = {'all': [torch.optim.SGD(held['all'][0].parameters(), lr=0.3)]}\n"
        + LOOP.format("held['all'][0](x)")
        + "    for opt in opts['all']:\n        opt.step()\n",
        ["+        opt.zero_grad()"],
    ),
    "no name at backward": (
        "def back(loss):\n    loss.backward()\n\ndef main():\n    fc = torch.nn.Linear(3, 1)\n"
        f"    opt = {SGD}\n    for _ in range(10):\n"
        "        back((fc(torch.randn(16, 3)) - 1).square().mean())\n        opt.step()  # go\n\n"
        "main()\n",
        ["+        opt.zero_grad()"],
    ),
}


def clearing(program: str, folder: Path) -> Fix:
    text = f"import torch\n\ntorch.manual_seed(0)\n{program}"
    (found,) = diagnosed_text(text, folder, verify=True).findings
    assert found.evidence["stale_gradients"] is True
    return found.fixes[0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.long
def test_the_patch_has_the_programs_own_names(case, here):
    program, added = CASES[case]

    fix = clearing(program, here)

    lines = (fix.patch or "").splitlines()
    assert [line for line in lines if line.startswith("+") and line[:3] != "+++"] == added
    assert fix.verified is True


def test_without_a_name_it_is_advice(tmp_path):
    program = (
        "def leaves():\n    held = [torch.randn(3, 1, requires_grad=True)]\n"
        "    def loss(x):\n        return (x @ held[0] - 1).square().mean()\n"
        "    def update():\n        with torch.no_grad():\n"
        "            held[0] -= 0.3 * held[0].grad\n    return loss, update\n\n"
        "loss, update = leaves()\nfor _ in range(10):\n"
        "    loss(torch.randn(16, 3)).backward()\n    update()\n"
    )

    fix = clearing(program, tmp_path)

    assert (fix.patch, fix.code) == (None, "")

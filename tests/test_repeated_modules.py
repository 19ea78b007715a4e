"""One module that stands several times in a container (GS416)."""

import pytest
from corpus import diagnosed_text

PROGRAM = """import torch
import torch.nn as nn
import itertools

torch.manual_seed(0)


class Head(nn.Module):
    def __init__(self, width=6):
        super().__init__()
        self.hidden, self.out = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x, turn=0):
        return x + self.out(torch.tanh(self.hidden(x + turn)))

{functions}
class Net(nn.Module):
    def __init__(self, count=3):
        super().__init__()
        self.body = nn.Linear(4, 6)
        {made}

    def forward(self, x):
        h = torch.tanh(self.body(x))
        {run}


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    x = torch.randn(16, 4)
    optimizer.zero_grad()
    (net(x) - torch.stack([x.sum(1), x[:, 0], x[:, 1]])[..., None]).square().mean().backward()
    optimizer.step()
"""
HEADS = "return torch.stack([head(h) for head in self.heads])"
VIEWS = "return torch.stack([head(torch.relu(h)[:, :]) for head in self.heads])"
COPIES = "import copy"
ONE = {
    "in a list": (
        "self.heads = nn.ModuleList([Head()] * count)",
        HEADS,
        ["        self.heads = nn.ModuleList([Head() for _ in range(count)])"],
    ),
    "the number first": (
        "self.heads = nn.ModuleList(3 * [Head()])",
        VIEWS,
        ["        self.heads = nn.ModuleList([Head() for _ in range(3)])"],
    ),
    "by a name": (
        "head = Head()\n        self.heads = nn.ModuleList([head for _ in range(count)])",
        HEADS,
        [COPIES, "        self.heads = nn.ModuleList([copy.deepcopy(head) for _ in range(count)])"],
    ),
    "one by one": (
        "one = Head()\n        self.heads = nn.ModuleDict(dict(zip('abc', [one, one, one])))",
        HEADS.replace("self.heads", "self.heads.values()"),
        [
            COPIES,
            "        self.heads = nn.ModuleDict(dict(zip('abc', [one, copy.deepcopy(one),"
            " copy.deepcopy(one)])))",
        ],
    ),
    "in a loop": (
        "head, heads = Head(), []\n        for _ in range(count):\n            heads.append(head)\n"
        "        self.heads = nn.ModuleList(heads)",
        HEADS,
        [COPIES, "            heads.append(copy.deepcopy(head))"],
    ),
    "of a function": (
        "self.heads = several(count)",
        HEADS,
        ["    return nn.ModuleList([Head() for _ in range(count)])"],
    ),
    "of a class": (
        "self.heads = Several(count)",
        HEADS,
        ["        super().__init__([Head() for _ in range(count)])"],
    ),
    "added": (
        "self.heads = nn.ModuleList()\n        self.heads.extend([Head()] * count)",
        HEADS,
        ["        self.heads.extend([Head() for _ in range(count)])"],
    ),
    "by name": (
        "head = Head()\n        self.heads = nn.ModuleDict({f'{n}': head for n in range(3)})",
        HEADS.replace("self.heads", "self.heads.values()"),
        [
            COPIES,
            "        self.heads = nn.ModuleDict({f'{n}': copy.deepcopy(head) for n in range(3)})",
        ],
    ),
    "of all keys": (
        "self.heads = nn.ModuleDict(dict.fromkeys('abc', Head()))",
        HEADS.replace("self.heads", "self.heads.values()"),
        ["        self.heads = nn.ModuleDict({key: Head() for key in 'abc'})"],
    ),
    "by itertools": (
        "self.heads = nn.ModuleList(itertools.repeat(Head(), count))",
        HEADS,
        ["        self.heads = nn.ModuleList([Head() for _ in range(count)])"],
    ),
    "of several parts": (
        "self.heads = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.ReLU())] * 3)",
        HEADS,
        [
            "        self.heads = nn.ModuleList([nn.Sequential(nn.Linear(6, 6), nn.ReLU())"
            " for _ in range(3)])"
        ],
    ),
}
FUNCTIONS = """
def several(count):
    return nn.ModuleList([Head()] * count)


class Several(nn.ModuleList):
    def __init__(self, count):
        super().__init__([Head()] * count)

"""
RIGHT = {
    "layers in a row that share": (
        "self.heads = nn.Sequential(*[Head()] * count)",
        "return self.heads(h)",
    ),
    "each made": ("self.heads = nn.ModuleList([Head() for _ in range(count)])", HEADS),
    "nothing to learn": ("self.heads = nn.ModuleList([nn.Tanh()] * count)", HEADS),
    "other inputs": (
        "self.heads = nn.ModuleList([Head()] * count)",
        "return torch.stack([head(h * at) for at, head in enumerate(self.heads)])",
    ),
    "another argument": (
        "self.heads = nn.ModuleList([Head()] * count)",
        "return torch.stack([head(h, at) for at, head in enumerate(self.heads)])",
    ),
    "a part that is shared": (
        "head = Head()\n        self.heads = nn.ModuleList("
        "nn.Sequential(head, nn.Linear(6, 6)) for _ in range(count))",
        HEADS,
    ),
    "one of them": (
        "self.heads = nn.ModuleList([Head()] * count)",
        "return self.heads[0](h)[None].repeat(3, 1, 1)",
    ),
    "outside of a container": ("self.a = self.b = Head()", "return torch.stack([self.a(h)] * 3)"),
}


def test_results_that_differ_by_chance_are_a_warning(tmp_path):
    head = "nn.Sequential(nn.Dropout(0.1), Head())"
    made = f"self.heads = nn.ModuleList([{head}] * count)"
    (found,) = diagnosed_text(program(made, HEADS), tmp_path).findings

    assert (found.rule, str(found.severity)) == ("GS416", "warning")


def program(made, run):
    return PROGRAM.format(functions=FUNCTIONS, made=made, run=run)


@pytest.mark.parametrize(("made", "run", "patch"), ONE.values(), ids=ONE)
@pytest.mark.long
def test_one_module_for_several_is_told_and_made_for_each(made, run, patch, tmp_path):
    (found,) = diagnosed_text(program(made, run), tmp_path, verify=True).findings

    assert (found.rule, found.op, str(found.severity)) == ("GS416", "net.heads", "error")
    assert found.fixes[0].verified
    added = [one[1:] for one in found.fixes[0].patch.splitlines() if one[:1] == "+"][1:]
    assert added == patch


@pytest.mark.parametrize(("made", "run"), RIGHT.values(), ids=RIGHT)
def test_what_is_used_for_other_inputs_is_not(made, run, tmp_path):
    assert not diagnosed_text(program(made, run), tmp_path).findings

"""States that `state_dict()` gave, and that are loaded when training has gone on."""

import pytest
from conftest import bare_and_traced
from corpus import diagnosed_text

TRAINING = """import copy
import torch

net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
other = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)


def train(steps):
    for _ in range(steps):
        opt.zero_grad()
        net(torch.randn(8, 3)).square().mean().backward()
        opt.step()


train(3)
"""
LOST = {
    "at the end": "kept = net.state_dict()\ntrain(4)\nnet.load_state_dict(kept)\n",
    "between": "kept = net.state_dict()\ntrain(4)\nnet.load_state_dict(kept)\ntrain(2)\n",
    "in a checkpoint": "kept = {'net': net.state_dict()}\ntrain(4)\n"
    "net.load_state_dict(kept['net'])\n",
    "copied shallowly": "kept = net.state_dict().copy()\ntrain(4)\nnet.load_state_dict(kept)\n",
    "of a part": "kept = net[0].state_dict()\ntrain(4)\nnet[0].load_state_dict(kept)\n",
}
RIGHT = {
    "cloned": "kept = {k: v.clone() for k, v in net.state_dict().items()}\ntrain(4)\n"
    "net.load_state_dict(kept)\n",
    "deep copy": "kept = copy.deepcopy(net.state_dict())\ntrain(4)\nnet.load_state_dict(kept)\n",
    "averaged in place": "for _ in range(3):\n    state = net.state_dict()\n"
    "    for value in state.values():\n        value.mul_(1)\n"
    "    net.load_state_dict(state)\n    train(2)\n",
    "of another": "kept = net.state_dict()\ntrain(4)\nother.load_state_dict(kept)\n",
    "in part another": "kept = net.state_dict()\ntrain(4)\nkept['0.weight'] = torch.ones(4, 3)\n"
    "net.load_state_dict(kept)\n",
    "saved": "import io\nfile = io.BytesIO()\ntorch.save(net.state_dict(), file)\ntrain(4)\n"
    "file.seek(0)\nnet.load_state_dict(torch.load(file))\n",
}


@pytest.mark.parametrize("rest", LOST.values(), ids=LOST)
@pytest.mark.long
def test_a_state_that_was_not_copied_is_told_and_repaired(rest, tmp_path):
    (found,) = diagnosed_text(TRAINING + rest, tmp_path, verify=True).findings

    assert found.rule == "GS413"
    assert found.location.line == TRAINING.count("\n") + 1
    assert found.fixes[0].verified
    assert "copy.deepcopy(net" in found.fixes[0].patch
    assert ".copy()" not in found.fixes[0].code


@pytest.mark.parametrize("rest", RIGHT.values(), ids=RIGHT)
def test_one_that_can_be_gone_back_to_is_not(rest, tmp_path):
    assert not diagnosed_text(TRAINING + rest, tmp_path).findings


def test_without_copy_in_the_file_the_values_are_cloned(tmp_path):
    text = TRAINING.replace("import copy\n", "").replace("copy.deepcopy(net)", "net")
    (found,) = diagnosed_text(text + LOST["between"], tmp_path, verify=True).findings

    assert found.fixes[0].verified
    assert (
        "{name: value.clone() for name, value in net.state_dict().items()}" in found.fixes[0].code
    )


ITSELF = "for _ in range(3):\n    train(2)\n    other.load_state_dict({}.state_dict())\n"


def test_a_state_that_a_module_is_given_of_itself_is_told_and_repaired(tmp_path):
    (found,) = diagnosed_text(TRAINING + ITSELF.format("other"), tmp_path, verify=True).findings

    assert (found.rule, found.severity) == ("GS413", "error")
    assert found.location.line == TRAINING.count("\n") + 3
    assert found.fixes[0].verified
    assert found.fixes[0].code == "other.load_state_dict(net.state_dict())"


NO_OP = {
    "once": "other.load_state_dict(other.state_dict())\ntrain(2)\n",
    "of the other one": ITSELF.format("net"),
    "written by `copy_`": "for _ in range(3):\n    train(2)\n    state = other.state_dict()\n"
    "    for own, new in zip(state.values(), net.state_dict().values()):\n"
    "        own.copy_(new)\n    other.load_state_dict(state)\n",
}


@pytest.mark.parametrize("rest", NO_OP.values(), ids=NO_OP)
def test_one_that_is_its_own_once_or_is_written_is_not(rest, tmp_path):
    assert not diagnosed_text(TRAINING + rest, tmp_path).findings


SYNC = "net.load_state_dict(other.state_dict())\n"
THROWN_BACK = {
    "each time": "for _ in range(4):\n    train(3)\n    " + SYNC,
    "after many steps": "for _ in range(60):\n    train(3)\n    " + SYNC,
}
MOVED = {
    "the best, at the end": "train(3)\n" + SYNC + "train(3)\n" + SYNC,
    "an average": "for _ in range(4):\n    train(3)\n    for a, b in zip(other.parameters(),"
    " net.parameters()):\n        a.data.lerp_(b.data, 0.5)\n    " + SYNC,
    "the other way": "for _ in range(4):\n    train(3)\n"
    "    other.load_state_dict(net.state_dict())\n",
    "a new start each time": "for _ in range(4):\n"
    "    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    train(3)\n    " + SYNC,
}


@pytest.mark.parametrize("rest", THROWN_BACK.values(), ids=THROWN_BACK)
@pytest.mark.long
def test_weights_that_nobody_trains_are_loaded_over_those_that_are(rest, tmp_path):
    (found,) = diagnosed_text(TRAINING + rest, tmp_path, verify=True).findings

    assert (found.rule, found.severity) == ("GS407", "warning")
    assert found.location.line == (TRAINING + rest).count("\n")
    assert found.fixes[0].verified
    assert "+    other.load_state_dict(net.state_dict())" in found.fixes[0].patch


@pytest.mark.parametrize("rest", MOVED.values(), ids=MOVED)
def test_one_that_follows_or_is_gone_back_to_is_not_told(rest, tmp_path):
    assert not diagnosed_text(TRAINING + rest, tmp_path).findings


ODD = """import traceback
import torch

odd = torch.nn.Linear(1, 1)
odd._register_state_dict_hook(lambda module, state, prefix, about: [*state])
print(odd.state_dict())
net, other = torch.nn.Linear(2, 2), torch.nn.Linear(3, 2)
try:
    net.load_state_dict(other.state_dict())
except RuntimeError:
    print(traceback.format_exc())
net(torch.ones(1, 2)).sum().backward()
"""


@pytest.mark.long
def test_odd_states_and_what_does_not_fit_are_as_without_us(tmp_path):
    (tmp_path / "odd.py").write_text(ODD)
    bare, seen = bare_and_traced(tmp_path / "odd.py")

    assert "size mismatch" in bare.stdout
    assert seen.stdout == bare.stdout
    assert seen.returncode == 0

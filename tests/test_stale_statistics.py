"""Copies of a model that follow its weights, and are evaluated with statistics of another time."""

import pytest
from corpus import diagnosed_text

TRAINING = """import copy
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
teacher = {teacher}
opt = torch.optim.SGD(net.parameters(), lr=0.1)


@torch.no_grad()
def follow(teacher, net):
{follow}


for step in range(8):
    x = torch.randn(8, 3) + 2
    with torch.no_grad():
        target = teacher(x)
    opt.zero_grad()
    (net(x) - target - x.sum(1, keepdim=True)).square().mean().backward()
    opt.step()
    follow(teacher, net)
{rest}"""
COPY = "copy.deepcopy(net).eval()"
AVERAGED = "AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9){}).eval()"
LOOP = """    for own, its in zip({0}.parameters(), {1}.parameters()):
        own.{2}"""
MEAN = LOOP.format("teacher", "net", "mul_(0.9).add_(its, alpha=0.1)")
BUFFERS = "\n    for own, its in zip({0}.buffers(), {1}.buffers()):\n        {2}"
STALE = {
    "mean": (COPY, MEAN, BUFFERS.format("teacher", "net", "own.copy_(its)")),
    "the other way round": (
        COPY,
        LOOP.format("net", "teacher", "data").replace("own.data", "its.data.lerp_(own.data, 0.1)"),
        BUFFERS.format("net", "teacher", "its.copy_(own)"),
    ),
    "by name": (
        COPY,
        "    its = dict(net.named_parameters())\n"
        "    for name, own in teacher.named_parameters():\n"
        "        own.copy_(0.9 * own + 0.1 * its[name])",
        "\n    for own, other in zip(teacher.buffers(), net.buffers()):\n        own.copy_(other)",
    ),
}
COPIED = MEAN + BUFFERS.format("teacher", "net", "own.copy_(its)")
RIGHT = {
    "copied": (COPY, COPIED, ""),
    "averaged": (AVERAGED.format(", use_buffers=True"), "    teacher.update_parameters(net)", ""),
    "torch's own": (AVERAGED.format(""), "    teacher.update_parameters(net)", ""),
    "taken in the end": (COPY, MEAN, "update_bn([torch.randn(8, 3)], teacher)\n"),
    "state": (COPY, "    teacher.load_state_dict(net.state_dict())", ""),
    "fixed": (COPY, "    pass", ""),
    "in train mode": ("copy.deepcopy(net)", MEAN, ""),
    "no statistics to follow": (
        COPY,
        MEAN,
        "net[1].running_mean.zero_()\nnet[1].running_var.fill_(1)\n",
    ),
}


@pytest.mark.parametrize(("teacher", "follow", "patch"), STALE.values(), ids=STALE)
@pytest.mark.long
def test_statistics_that_stay_behind_are_told_and_copied(teacher, follow, patch, tmp_path):
    text = TRAINING.format(teacher=teacher, follow=follow, rest="")
    (found,) = diagnosed_text(text, tmp_path, verify=True).findings

    assert (found.rule, found.op) == ("GS410", "teacher")
    assert found.location.function == "follow"
    assert found.fixes[0].verified
    added = [one[1:] for one in found.fixes[0].patch.splitlines() if one[:2] == "+ "]
    assert patch.strip("\n") in "\n".join(added)


@pytest.mark.parametrize(("teacher", "follow", "rest"), RIGHT.values(), ids=RIGHT)
def test_statistics_that_fit_the_weights_are_not(teacher, follow, rest, tmp_path):
    text = TRAINING.format(teacher=teacher, follow=follow, rest=rest)
    found = diagnosed_text(text, tmp_path).findings

    assert not [one for one in found if one.op == "teacher"]


ENSEMBLE = """import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(0)
nets = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).eval() for _ in range(3)]
state = stack_module_state(nets)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for step in range(5):
    x = torch.randn(8, 3)
    with torch.no_grad():
        target = vmap(lambda *own: functional_call(nets[0], own, (x,)))(*state).mean(0)
    opt.zero_grad()
    (net(x) - target).square().mean().backward()
    opt.step()
"""


def test_the_statistics_of_a_batched_ensemble_are_not_read(tmp_path):
    assert not diagnosed_text(ENSEMBLE, tmp_path).findings

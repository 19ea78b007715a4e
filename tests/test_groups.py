"""GS407 where the groups of an optimizer, split by weight decay, have no place for some parameters,
and choices of what to train that look alike."""

import textwrap

import pytest
from corpus import diagnosed_text, findings, loud, patched

from gradscope.facts import Severity

PROGRAM = """\
import torch
from torch import nn

torch.manual_seed(0)


class Adapted(nn.Linear):
    def __init__(self, inputs, outputs):
        super().__init__(inputs, outputs)
        self.down = nn.Parameter(0.1 * torch.randn(2, inputs))
        self.up = nn.Parameter(0.1 * torch.randn(outputs, 2))

    def forward(self, x):
        return super().forward(x) + x @ self.down.t() @ self.up.t()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 6, 3)
        self.kind = nn.Embedding(5, 6)
        self.norm = nn.LayerNorm(6)
        self.body = Adapted(6, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, x, kind):
        h = self.conv(x).relu().mean(-1) + self.kind(kind)
        return self.head(self.body(self.norm(h)).tanh())


net = Net()
<GROUPS>
for step in range(8):
    x, kind = torch.randn(16, 2, 9), torch.randint(5, (16,))
    loss = (net(x, kind).squeeze(1) - x.mean((1, 2))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
GIVEN = """\
optimizer = torch.optim.AdamW(
    [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}], lr=1e-2
)"""
# Lines with "- " are in the program alone, with "+ " in what the leading patch makes of it.
SPLIT = {
    "by dimensions": f"""
        - decay = [p for p in net.parameters() if p.requires_grad and p.ndim == 2]
        + decay = [p for p in net.parameters() if p.requires_grad and p.ndim >= 2]
        rest = [p for p in net.parameters() if p.requires_grad and p.ndim < 2]
        {textwrap.indent(GIVEN, " " * 8).strip()}
    """,
    "by names, in a function": """
        def made(net, decay):
        -     weights = [p for n, p in net.named_parameters() if n.endswith("weight")]
        +     weights = [p for n, p in net.named_parameters() if not n.endswith("bias")]
            biases = [p for n, p in net.named_parameters() if n.endswith("bias")]
            return [{"params": biases}, {"params": weights, "weight_decay": decay}]


        optimizer = torch.optim.SGD(made(net, 0.05), lr=1e-2)
    """,
    "by conditions of which one says more": f"""
        decay = [p for n, p in net.named_parameters() if p.ndim > 1 and "kind" not in n]
        - rest = [p for n, p in net.named_parameters() if p.ndim <= 1]
        + rest = [p for n, p in net.named_parameters() if p.ndim <= 1 or "kind" in n]
        {textwrap.indent(GIVEN, " " * 8).strip()}
    """,
    "by names, one by one": f"""
        decay, rest = [], []
        for name, p in net.named_parameters():
            if "bias" in name or "norm" in name:
                rest.append(p)
        -     elif p.ndim == 2:
        +     else:
                decay.append(p)
        {textwrap.indent(GIVEN, " " * 8).strip()}
    """,
    "by the classes of modules": """
        decay, rest = set(), set()
        for path, module in net.named_modules():
            for name, p in module.named_parameters():
                full = f"{path}.{name}" if path else name
                if name.endswith("bias"):
                    rest.add(full)
                elif isinstance(module, nn.Linear):
                    decay.add(full)
                elif isinstance(module, (nn.LayerNorm, nn.Embedding)):
                    rest.add(full)
        named = dict(net.named_parameters())
        + decay |= named.keys() - rest
        groups = [
            {"params": [named[n] for n in sorted(list(decay))], "weight_decay": 0.05},
            {"params": [named[n] for n in sorted(list(rest))], "weight_decay": 0.0},
        ]
        optimizer = torch.optim.AdamW(groups, lr=1e-2)
    """,
}
# Whoever chooses what to train does so by the layer.
CHOSEN = {
    "biases and a head": """
        decay = [*net.head.parameters()]
        rest = [p for n, p in net.named_parameters() if n.endswith("bias") and "head" not in n]
    """,
    "biases and a head, split": """
        decay = [net.head.weight]
        rest = [p for n, p in net.named_parameters() if n.endswith("bias")]
    """,
    "a head alone": """
        decay, rest = [net.head.weight], [net.head.bias]
    """,
    "low ranks, and a head": """
        decay = [net.body.up, net.body.down, net.head.weight]
        rest = [net.body.bias, net.head.bias]
    """,
    "the rest by another optimizer": """
        decay = [p for p in net.parameters() if p.ndim == 2]
        rest = [p for p in net.parameters() if p.ndim < 2]
        other = torch.optim.SGD([net.conv.weight], lr=1e-2)
        net.register_forward_pre_hook(lambda *_: other.step() or other.zero_grad())
    """,
    "one weight decay for both": """
        decay = [p for p in net.parameters() if p.ndim == 2]
        rest = [p for p in net.parameters() if p.ndim < 2]
    """,
}


def written(lines: str, mark: str) -> str:
    """The program without the lines that begin with a mark, and without the other mark."""
    kept = (one for one in textwrap.dedent(lines).strip().splitlines() if one[:2] != mark)
    groups = "\n".join(one[2:] if one[:2] in ("- ", "+ ") else one for one in kept)
    return PROGRAM.replace("<GROUPS>", groups)


@pytest.mark.parametrize("case", SPLIT)
@pytest.mark.long
def test_what_is_in_no_group_is_given_to_that_with_weight_decay(case, here):
    program, repaired = (written(SPLIT[case], mark) for mark in ("+ ", "- "))

    (found,) = diagnosed_text(program, here, verify=True).findings

    assert (found.rule, found.evidence["reason"]) == ("GS407", "no-group")
    assert found.severity is Severity.WARNING
    assert found.fixes[0].verified is True, found.fixes[0].verdict
    assert patched(found.fixes[0].patch, here) == repaired
    assert findings(repaired) == []


@pytest.mark.parametrize("case", CHOSEN)
@pytest.mark.long
def test_what_is_chosen_to_be_trained_is_no_split(case):
    given = GIVEN.replace("0.05", "0.0") if "one weight decay" in case else GIVEN
    program = written(f"{textwrap.dedent(CHOSEN[case]).strip()}\n{given}", "+ ")

    assert [found.message for found in loud(program)] == []

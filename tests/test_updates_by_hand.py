"""Updates that a program makes without an optimizer, in place or by new tensors."""

import torch

from gradscope.facts import Update
from gradscope.record import Observation

torch.manual_seed(0)
X = torch.randn(16, 3)


def loss_of(w: torch.Tensor) -> torch.Tensor:
    return (X @ w).square().mean()


def updates(observed: Observation) -> tuple[Update, ...]:
    return observed.sizes.facts().updates


def line_of(update: Update) -> str:
    with open(update.location.file, encoding="utf-8") as lines:
        return list(lines)[update.location.line - 1].strip()


def test_new_values_through_data_are_an_update():
    w = torch.ones(3, requires_grad=True)
    with Observation() as observed:
        for _ in range(8):  # the allocator gives them memory that they have had before
            loss_of(w).backward()
            w.data = w.data - 0.1 * w.grad
            w.grad = None
        loss_of(w).backward()

    found = updates(observed)
    assert [update.step for update in found] == [*range(8)]
    assert {line_of(update) for update in found} == {"w.data = w.data - 0.1 * w.grad"}
    assert not any(update.stale for update in found)


def test_new_leaves_are_an_update_and_continue_the_old_ones():
    params = [(torch.ones(3, requires_grad=True),)]
    with Observation() as observed:
        for _ in range(4):
            (w,) = params[0]
            (grad,) = torch.autograd.grad(loss_of(w), [w])
            params = [((w - 0.1 * grad).detach().requires_grad_(),)]
            del w

    found = updates(observed)
    assert [update.step for update in found] == [0, 1, 2]
    assert "w - 0.1 * grad" in line_of(found[0])
    (leaf,) = observed.sizes.facts().leaves
    assert len(leaf.known) == 4


def test_what_is_added_to_a_parameter_going_forward_is_no_update():
    w = torch.ones(3, requires_grad=True)
    with Observation() as observed:
        for _ in range(3):
            loss_of(w + 1.0).backward()
            w.grad = None

    assert updates(observed) == ()


def attacked(net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """By an offset that is written by hand, before any optimizer has stepped."""
    delta = torch.zeros_like(x).requires_grad_()
    for _ in range(2):
        (grad,) = torch.autograd.grad(net(x + delta).square().mean(), delta)
        with torch.no_grad():
            delta.add_(0.1 * grad.sign())
    return (x + delta).detach()


def test_what_is_written_by_hand_is_not_trained_where_an_optimizer_steps():
    net = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with Observation() as observed:
        for _ in range(3):
            optimizer.zero_grad()
            net(attacked(net, X)).square().mean().backward()
            optimizer.step()

    facts = observed.sizes.facts()
    assert {leaf.name for leaf in facts.leaves if leaf.trained} == {"net.weight", "net.bias"}
    assert not facts.absences

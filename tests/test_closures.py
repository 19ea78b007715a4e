"""What runs in the closure of `optimizer.step(closure)` is judged as it would be outside."""

import textwrap

import pytest
import torch
from torch import nn

from gradscope.diagnose import diagnose
from gradscope.facts import Ending, Finding, Phase
from gradscope.record import Observation

BODIES = {
    "detach": "opt.zero_grad(); loss = head(body(x).detach()).square().mean(); loss.backward()",
    "no_grad": """
        opt.zero_grad()
        with torch.no_grad():
            hidden = body(x)
        loss = head(hidden).square().mean()
        loss.backward()""",
    "unused": "opt.zero_grad(); loss = head(x).square().mean(); loss.backward()",
    "cleared": "loss = head(body(x)).square().mean(); loss.backward(); opt.zero_grad()",
    "never cleared": "loss = (head(body(x)) - 5).square().mean(); loss.backward()",
    "clipped before backward": """
        opt.zero_grad()
        loss = (head(body(x)) - 1e3).square().mean()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        loss.backward()""",
    "healthy": "opt.zero_grad(); loss = head(body(x)).square().mean(); loss.backward()",
}
OUTSIDE = "for _ in range(12):\n{}\n    opt.step()\n"
INSIDE = (
    "for _ in range(12):\n    def closure():\n{}\n        return loss\n    opt.step({}closure)\n"
)


def judged(program: str) -> list[Finding]:
    torch.manual_seed(0)
    body, head = nn.Linear(3, 3), nn.Linear(3, 1)
    opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05)
    names = {"torch": torch, "body": body, "head": head, "opt": opt, "x": torch.randn(8, 3)}
    with Observation() as observed:
        exec(compile(program, "loop.py", "exec"), names)
    return list(diagnose(observed.trace("t", Ending("finished"))))


def said(found: list[Finding]) -> list[tuple[str, str, object]]:
    return [(one.rule, one.message, one.evidence.get("reason")) for one in found]


@pytest.mark.parametrize("keyword", ["", "closure="])
@pytest.mark.parametrize("body", BODIES)
def test_a_closure_is_an_ordinary_step(body, keyword):
    lines = textwrap.dedent(BODIES[body])
    outside = judged(OUTSIDE.format(textwrap.indent(lines, " " * 4)))
    inside = judged(INSIDE.format(textwrap.indent(lines, " " * 8), keyword))

    assert said(inside) == said(outside)
    assert bool(outside) == (body != "healthy")


def test_a_closure_runs_in_the_forward_phase():
    found, *_ = judged(INSIDE.format("        loss = head(x).log().mean(); loss.backward()", ""))

    assert found.phase is Phase.FORWARD and found.op == "log"


class Bilevel(torch.optim.SGD):
    """Its closure gives the loss alone, and the optimizer runs backward itself."""

    def step(self, closure):  # type: ignore[no-untyped-def, override]
        loss = closure()
        loss.backward()
        super().step()


def test_an_optimizer_may_run_backward_itself():
    model = nn.Linear(3, 1)
    optimizer = Bilevel(model.parameters(), lr=0.01)
    with Observation() as observed:
        for _ in range(8):
            optimizer.zero_grad()
            optimizer.step(lambda: model(torch.ones(4, 3)).square().mean())

    assert diagnose(observed.trace("t", Ending("finished"))) == ()


def test_a_closure_that_raises_leaves_the_optimizer():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def fails() -> float:
        raise ValueError("no batch")

    with Observation() as observed:
        with pytest.raises(ValueError, match="no batch"):
            optimizer.step(fails)
        assert not observed.context.in_optimizer
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 3)).square().mean().backward()
            optimizer.step()

    assert diagnose(observed.trace("t", Ending("finished"))) == ()

"""One report that every format is compared on, whole, with a file that a person has read.

`UPDATE_SNAPSHOTS=1 pytest tests/test_report_*` writes the files anew: read the diff.
"""

import difflib
import os
from pathlib import Path

from gradscope.facts import (
    Call,
    Change,
    Effects,
    Ending,
    Environment,
    Event,
    Finding,
    Fix,
    GradientMove,
    Kind,
    Location,
    NotTried,
    Operand,
    Phase,
    Reason,
    Refuted,
    Related,
    Report,
    Severity,
    Step,
    Subject,
    Symptom,
    Trace,
    Trouble,
    Unchanged,
    ValuesMove,
    Verified,
)
from gradscope.report import Options, Sources, by_name
from gradscope.source import lines

SNAPSHOTS = Path(__file__).parent / "snapshots"

GAMMA = """\
import torch


def gamma(x):
    dark = x < 0.003
    return torch.where(dark, 12.9 * x, x ** 0.5)


def loss_function(x):
    return ((x - gamma(x)) ** 2).mean()
"""

METRIC = """\
class Metric(nn.Module):
    def forward(self, z):
        gap = z[:, None] - z[None, :]
        distance = gap.square().sum(-1).sqrt()
        return distance


def margin_loss(metric, z, target):
    distance = metric(z)
    attract = distance[target].mean()
    repel = (1.0 - distance[~target]).clamp_min(0.0).mean()
    return attract + repel
"""

TRAIN = """\
metric = Metric()
for step in range(200):
    loss = margin_loss(metric, embed(batch), target)
    loss.backward()
"""

FILES = {"gamma_loss.py": GAMMA, "lib/metric.py": METRIC, "train.py": TRAIN}


def sources(file: str) -> list[str]:
    return FILES[file].split("\n") if file in FILES else []


def span(
    file: str, line: int, text: str, function: str = "<module>", module: str | None = None
) -> Location:
    """Where `text` stands on that line of one of FILES."""
    col = sources(file)[line - 1].index(text)
    return Location(file, line, col, line, col + len(text), function, module)


def patch(file: str, old: str, new: str) -> str:
    before = FILES[file]
    after = before.replace(old, new)
    return "\n".join(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"a/{file}", f"b/{file}", lineterm=""
        )
    )


def event(id: int, kind: Kind, op: str, location: Location, phase: Phase = Phase.BACKWARD) -> Event:
    call = Call(op, location=location)
    return Event(id, 0, kind, phase, call, call)


def masked_branch() -> Finding:
    power = span("gamma_loss.py", 6, "x ** 0.5", "gamma")
    where = span("gamma_loss.py", 6, "torch.where(dark, 12.9 * x, x ** 0.5)", "gamma")
    return Finding(
        rule="GS101",
        name="masked-branch",
        severity=Severity.ERROR,
        phase=Phase.BACKWARD,
        step=0,
        op="pow",
        node="PowBackward0",
        message="gradient of `x` is NaN at 1 of 5 elements",
        label="slope is inf where `x` is 0",
        why="`where` keeps `12.9 * x` for the dark elements, so the loss never sees this branch. "
        "Backward visits both branches: the discarded one gets gradient 0 from `where` times "
        "slope inf from `**`, and 0 * inf is NaN.",
        location=power,
        related=(
            Related(
                "mask",
                Location("gamma_loss.py", 6, where.col, 6, where.col + 11, "gamma"),
                "hides that element going forward, sends it gradient 0 going back",
            ),
            Related("use", span("gamma_loss.py", 10, "gamma(x)", "loss_function"), "called here"),
        ),
        evidence={
            "index": (0,),
            "operands": {"self": 0.0, "exponent": 0.5},
            "grad_output": 0.0,
            "slope": float("inf"),
            "bad": 1,
            "numel": 5,
        },
        numbers=(
            "`x` is 0 at [0], exponent 0.5",
            "gradient that comes in 0",
            "loss 0.0105, finite",
        ),
        tensors=(
            Operand("self", "x", (5,), "torch.float32", "cpu", 5, zeros=1, min=0.0, max=1.0),
            Operand("grad_output", None, (5,), "torch.float32", "cpu", 5, min=-0.08, max=0.0),
            Operand("output", None, (5,), "torch.float32", "cpu", 5, nan=1, min=-0.04, max=0.14),
        ),
        chain=(
            event(3, Kind.BIRTH, "pow", power),
            event(4, Kind.PROPAGATION, "pow", power),
            event(5, Kind.PROPAGATION, "pow", power),
        ),
        symptoms=(Symptom(Trouble.NAN, Subject.GRADIENT, 0, "x", 1, 5, (0,), 5),),
        fixes=(
            Fix(
                "clamp-domain",
                "keep the base of the power above zero",
                "unsafe",
                verdict=Refuted(ValuesMove(GradientMove("x", 0.25))),
                patch=patch("gamma_loss.py", "x ** 0.5", "x.clamp_min(1e-3) ** 0.5"),
            ),
            Fix(
                "masked-branch",
                "give the power a harmless base where its result is thrown away",
                "safe",
                code="torch.where(dark, 1.0, x) ** 0.5",
                verdict=Verified(
                    Effects(
                        Change(Symptom(Trouble.NAN, Subject.GRADIENT, 0, "x", 1, 5)),
                        loss=(0.0105, 0.0105),
                        gradient_norm=0.1445,
                        unchanged=Unchanged(4, all_of_them=False),
                    )
                ),
                patch=patch("gamma_loss.py", "x ** 0.5", "torch.where(dark, 1.0, x) ** 0.5"),
            ),
        ),
    )


def singular_derivative() -> Finding:
    root = span("lib/metric.py", 4, "sqrt()", "Metric.forward", "metric")
    square = span("lib/metric.py", 4, "square()", "Metric.forward", "metric")
    minus = span("lib/metric.py", 3, "z[:, None] - z[None, :]", "Metric.forward", "metric")
    return Finding(
        rule="GS102",
        name="singular-derivative",
        severity=Severity.ERROR,
        phase=Phase.BACKWARD,
        step=0,
        op="sqrt",
        node="SqrtBackward0",
        message="`sqrt` was differentiated at exactly 0 (32 of 1,024 elements)",
        label="slope is inf where its input is 0",
        why="A point is at distance 0 from itself. There the slope of `sqrt` is inf and the slope "
        "of `square` is 0; their product is NaN, and the sum over the row carries it to every "
        "coordinate.",
        location=root,
        related=(
            Related("use", span("lib/metric.py", 10, "distance[target]", "margin_loss"), "zeros"),
            Related("call", span("train.py", 3, "margin_loss(metric, embed(batch), target)"), ""),
            Related(
                "inner",
                Location("/opt/py/site-packages/torch/functional.py", 431, 15, 431, 40, "norm"),
                "`sqrt` runs here, inside the library",
            ),
        ),
        evidence={"index": (0, 0), "operands": {"self": 0.0}, "grad_output": 0.001, "bad": 32},
        numbers=("all 32 zeros are on the diagonal", "loss 5.421"),
        tensors=(
            Operand("self", None, (32, 32), "torch.float32", "cpu", 1024, zeros=32, min=0, max=41),
        ),
        chain=(
            event(7, Kind.BIRTH, "sqrt", root),
            event(8, Kind.PROPAGATION, "sum", root),
            event(9, Kind.REVIVAL, "square", square),
            event(10, Kind.PROPAGATION, "sub", minus),
        ),
        symptoms=tuple(
            Symptom(Trouble.NAN, Subject.GRADIENT, 0, f"embed.{n}.weight", 4096, 4096, (0, 0))
            for n in range(251)
        ),
        fixes=(
            Fix(
                "epsilon",
                "keep the input of `sqrt` above zero",
                "unsafe",
                patch=patch("lib/metric.py", "sum(-1).sqrt()", "sum(-1).clamp_min(1e-12).sqrt()"),
                verdict=NotTried(Reason.NOT_REPEATABLE),
            ),
        ),
    )


def hidden_inf() -> Finding:
    log = span("train.py", 3, "embed(batch)")
    return Finding(
        rule="GS601",
        name="hidden-inf",
        severity=Severity.WARNING,
        phase=Phase.FORWARD,
        step=0,
        op="div",
        message="an inf of `embed` is hidden by a mask (12 of 512 elements)",
        label="1 / 0 here",
        why="The mask keeps the loss finite. Backward through the division will not be.",
        location=log,
        evidence={"index": (3, 1), "operands": {"self": 1.0, "other": 0.0}, "bad": 12},
        fixes=(
            Fix("masked-branch", "divide where the divisor is not 0", code="n[keep] / d[keep]"),
        ),
    )


def not_observed() -> Finding:
    return Finding(
        rule="GS901",
        name="not-observed",
        severity=Severity.NOTE,
        phase=Phase.FORWARD,
        step=0,
        op="my_kernel",
        message="what `my_kernel` computes could not be observed",
        why="It is a compiled op that writes its result outside of PyTorch.",
    )


def full() -> Report:
    """Two errors, a warning, a note, every outcome of a fix, and a program that died."""
    findings = (masked_branch(), singular_derivative(), hidden_inf(), not_observed())
    return Report(
        target="train.py",
        trace=Trace(
            target="train.py",
            file="train.py",
            symptoms=tuple(one for finding in findings for one in finding.symptoms),
            steps=(Step(0, 5.421, 0.0213, 127),),
            ending=Ending("died", "killed by SIGSEGV after step 0", -11),
            environment=Environment("2.13.0", "3.11.7", "cpu"),
            ops=127,
            notes=("ops inside of `torch.compile` were seen, their places were not",),
        ),
        findings=findings,
        remarks=("no target given: train.py is the one in gradscope.yaml",),
    )


def healthy() -> Report:
    steps = tuple(Step(n, 0.1, 0.012, 127) for n in range(100))
    return Report("gamma_loss.py", Trace("gamma_loss.py", steps=steps, ops=12_700))


def failed() -> Report:
    """A program that raised before anything was wrong with a gradient."""
    end = Ending(
        "raised",
        "ValueError: expected 3 channels, got 4",
        traceback='  File "train.py", line 3, in <module>\n'
        "    loss = margin_loss(metric, embed(batch), target)\n",
        location=span("train.py", 3, "embed(batch)"),
    )
    return Report("train.py", Trace("train.py", ending=end, ops=12))


HOSTILE = (
    "a\x1b]0;owned\x07\x1b[2J\r\n\u202e<script>alert(1)</script>]]>&`|*_[x](http://x)%0A::error::"
)


def hostile() -> Report:
    """Every name, path and text tries to break out of the format that it is printed in."""
    bad = HOSTILE
    location = Location(f"{bad}.py", 1, 0, 1, 4, bad, bad)
    return Report(
        target=bad,
        trace=Trace(
            bad,
            symptoms=(Symptom(Trouble.NAN, Subject.GRADIENT, 0, bad, 1, 2),),
            steps=(Step(0, 1.0, 0.01, 3),),
            ending=Ending("raised", bad, traceback=bad, location=location),
            environment=Environment(bad, bad, bad),
            notes=(bad,),
        ),
        findings=(
            Finding(
                rule="GS101",
                name="masked-branch",
                severity=Severity.ERROR,
                phase=Phase.BACKWARD,
                step=0,
                op=bad,
                node=bad,
                message=bad,
                why=bad,
                label=bad,
                location=location,
                related=(Related("mask", location, bad), Related("use", location, bad)),
                evidence={bad: bad},
                numbers=(bad,),
                tensors=(Operand("self", bad, (2,), bad, bad, 2, nan=1),),
                chain=(
                    event(1, Kind.BIRTH, bad, location),
                    event(2, Kind.PROPAGATION, bad, location),
                ),
                symptoms=(Symptom(Trouble.NAN, Subject.GRADIENT, 0, bad, 1, 2),),
                fixes=(
                    Fix("epsilon", bad, "unsafe", code=bad, verdict=NotTried(Reason.KILLED, bad)),
                    Fix(
                        "epsilon",
                        bad,
                        "safe",
                        patch=f"--- a/{bad}\n+++ b/{bad}\n@@ -1,1 +1,1 @@\n-{bad}\n+{bad}\n",
                        verdict=Verified(
                            Effects(Change(Symptom(Trouble.NAN, Subject.GRADIENT, 0, bad, 1, 2)))
                        ),
                    ),
                ),
            ),
        ),
        remarks=(bad,),
    )


def hostile_sources(file: str) -> list[str]:
    return [HOSTILE.replace("\r\n", "\r\x0c")]


def render(
    name: str,
    report: Report,
    *,
    width: int = 80,
    color: bool = False,
    encoding: str = "utf-8",
    sources: Sources = lines,
    **more: object,
) -> str:
    return by_name(name).render(report, Options(width, color, encoding, sources, **more))


def assert_snapshot(name: str, text: str) -> None:
    file = SNAPSHOTS / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        file.write_text(text, encoding="utf-8", newline="")
    with file.open(encoding="utf-8", newline="") as stream:
        assert text == stream.read()

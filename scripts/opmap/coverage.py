"""Puts each row of the map to the test: the recorder watches its program, the table explains it."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from gradscope.diagnose import diagnose, find_roots
from gradscope.facts import Ending, Finding, Root, Severity, Trace
from gradscope.record import Observation
from gradscope.rules.reading import evidence
from opmap.programs import Program, edged, is_finite, programs

# What a rule may call each class of the map.
FITTING = {
    "infinite-derivative": {"singular-derivative"},
    "undefined-derivative": {"singular-derivative", "empty-reduction"},
    "removable": {"singular-derivative", "overflow", "log-zero", "masked-branch"},
    "degenerate-decomposition": {"degenerate-decomposition"},
    "tiny-input-overflow": {
        "singular-derivative",
        "overflow",
        "underflow",
        "zero-division",
        "degenerate-decomposition",
    },
    "huge-input-overflow": {"overflow", "singular-derivative", "inf-arithmetic", "masked-branch"},
    "cast-overflow": {"overflow"},
    "infinite-input-absorbed": {"inf-arithmetic", "bad-input", "all-masked-softmax"},
}
ATTEMPTS = 500  # programs tried for one row
LIMIT = 120  # seconds for one row
VALUES = {
    "zero-division",
    "log-zero",
    "domain-error",
    "overflow",
    "inf-arithmetic",
    "empty-reduction",
    "all-masked-softmax",
    "degenerate-decomposition",
    "bad-input",
    "underflow",
}


Row = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """What became of one row. `why_not` is empty where it is covered."""

    group: str
    op: str
    reproduced: bool = False
    culprit: str = ""
    edge: str = ""  # its nature and cause
    cause: str = ""
    why_not: str = ""


def judge_apart(row: Row, forward: bool) -> Verdict:
    """`judge` in a child process: a few kernels of PyTorch die on a huge index."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(judge(row, forward)))
    child.start()
    sender.close()
    group = "value" if forward else row["class"]
    try:
        if receiver.poll(LIMIT):
            return receiver.recv()  # type: ignore[no-any-return]
        return Verdict(group, row["op"], why_not=f"took more than {LIMIT} s")
    except EOFError:
        child.join()
        return Verdict(group, row["op"], why_not=f"the process died ({child.exitcode})")
    finally:
        child.kill()
        child.join()


def judge(row: Row, forward: bool) -> Verdict:
    group = "value" if forward else row["class"]
    if group == "huge-finite":
        return Verdict(group, row["op"], why_not="finite: it explodes, and breaks nothing")
    tried = 0
    best: Verdict | None = None
    for program in islice(_candidates(row, forward), ATTEMPTS):
        tried += 1
        if not _reproduces(program, row, forward):
            continue
        verdict = _explained(program, group, row["op"])
        if not verdict.why_not:
            return verdict
        best = best or verdict
    if best is not None:
        return best
    why = "no program put the edge into it" if tried else "no database has sample inputs"
    return Verdict(group, row["op"], why_not=f"{why} ({tried} tried)" if tried else why)


def _candidates(row: Row, forward: bool) -> Iterator[Program]:
    for program in programs(row["op"]):
        places = list(program.leaves()) if forward else row["put_in"]
        for edge in row["edges"]:
            for where in places:
                yield from edged(program, edge, where)


def _run(program: Program) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return program.run()


def _backward(outputs: list[torch.Tensor]) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = [
        1 + 2 * torch.rand(output.shape, generator=generator).to(output.dtype) for output in outputs
    ]
    torch.autograd.backward(outputs, weights)


def _reproduces(program: Program, row: Row, forward: bool) -> bool:
    """Whether the op breaks as the map says: its value, or only the gradient of that input."""
    for one in program.leaves().values():
        one.grad = None
    try:
        outputs = _run(program)
        if not outputs:
            return False
        if forward:
            fed = is_finite(list(program.leaves().values()))
            return fed and not is_finite([output.detach() for output in outputs])
        if not is_finite([output.detach() for output in outputs]):
            return False
        _backward(outputs)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        return False
    leaf = program.leaves().get(row["grad_of"])
    return leaf is not None and leaf.grad is not None and not is_finite([leaf.grad])


def _explained(program: Program, group: str, op: str) -> Verdict:
    try:
        trace = _record(program)
    except Exception as fault:  # a row that breaks the recorder must not hide the others
        return Verdict(
            group, op, True, why_not=f"the recorder raised {type(fault).__name__}: {fault}"
        )
    roots = find_roots(trace)
    if not roots:
        return Verdict(group, op, True, why_not="the recorder found no root")
    return min((_verdict(root, trace, group, op) for root in roots), key=lambda v: bool(v.why_not))


def _record(program: Program) -> Trace:
    for leaf in program.leaves().values():
        leaf.grad = None
    recorder = Observation()
    with recorder:
        _backward(_run(program))
    return recorder.trace("op-map", Ending("finished"))


def _verdict(root: Root, trace: Trace, group: str, op: str) -> Verdict:
    edge = evidence.edge(root.event)
    findings = [one for one in diagnose(trace) if one.severity is Severity.ERROR]
    cause = _cause(findings, root)
    culprit = root.event.op
    fits = VALUES if group == "value" else FITTING[group]
    why_not = ""
    if cause == "bad-input":
        pass  # the edge was in the data: no op is to blame
    elif edge is None:
        why_not = f"`{culprit}` ({root.event.node}) has no such edge in the table"
    elif edge.cause not in fits:
        why_not = f"the table says {edge.cause} of `{culprit}`"
    elif cause not in fits:
        why_not = f"diagnosed as {cause or 'nothing'} at `{culprit}`, the table says {edge.cause}"
    said = f"{edge.nature} {edge.cause}" if edge is not None else ""
    return Verdict(group, op, True, culprit, said, cause, why_not)


def _cause(findings: list[Finding], root: Root) -> str:
    own = [one.name for one in findings if one.op == root.event.op]
    return next(iter(own or [one.name for one in findings]), "")

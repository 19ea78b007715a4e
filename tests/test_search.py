"""Looking for a patch: what it costs grows as the program does, whatever the program."""

import pytest
from corpus import REQUESTS, finding_of
from counting import calls_in

from gradscope.facts import (
    Finding,
    Fix,
    Location,
    Measured,
    NotTried,
    Operand,
    Reason,
    Trace,
)
from gradscope.repair import repaired
from gradscope.repair.budget import Search
from gradscope.source import Source


def chain(count: int) -> tuple[str, str]:
    """Every line reads the one before; the culprit is the last."""
    lines = (f"v{i + 1} = torch.log(torch.exp(v{i}) + 1)" for i in range(count))
    return "\n".join(lines), f"torch.sqrt(v{count})"


def chain_from_the_culprit(count: int) -> tuple[str, str]:
    lines = (f"v{i + 1} = torch.log(torch.exp(v{i}) + 1)" for i in range(count))
    return "v0 = torch.exp(x)\n" + "\n".join(lines), "torch.exp(x)"


def one_name(count: int) -> tuple[str, str]:
    return "h = x\n" + "h = torch.log(torch.exp(h) + 1)\n" * count, "torch.sqrt(h)"


def one_name_in_a_loop(count: int) -> tuple[str, str]:
    body = "    h = torch.log(torch.exp(h) + 1)\n" * count
    return f"h = x\nfor _ in range(3):\n{body}", "torch.sqrt(h)"


def one_name_read_often(count: int) -> tuple[str, str]:
    reads = (f"v{i} = torch.log(p) + {i}" for i in range(count))
    return "p = torch.softmax(x, -1)\n" + "\n".join(reads), "torch.softmax(x, -1)"


def apart(count: int) -> tuple[str, str]:
    lines = (f"v{i} = torch.log(1 + torch.exp(x)) + {i}" for i in range(count))
    return "\n".join(lines), "torch.sqrt(x)"


def numbers(count: int) -> tuple[str, str]:
    return f"t = torch.tensor({[0.5] * 10 * count})", "torch.sqrt(t * x)"


def lines_of_numbers(count: int) -> tuple[str, str]:
    written = "    0.5,\n" * 10 * count
    return f"t = torch.tensor([\n{written}])", "torch.sqrt(t * x)"


def numbers_in_the_culprit(count: int) -> tuple[str, str]:
    return "", f"torch.sqrt(x * torch.tensor({[0.5] * 10 * count}))"


def one_sum(count: int) -> tuple[str, str]:
    return "y = x", f"torch.sqrt(x{' + y' * count})"


def functions(count: int) -> tuple[str, str]:
    lines = (f"def f{i}(z, w=1):\n    p = torch.softmax(z, -1)\n    return p" for i in range(count))
    return "\n".join(lines), "torch.sqrt(f0(x))"


def optimizers(count: int) -> tuple[str, str]:
    lines = (f"o{i} = torch.optim.SGD([x], lr=0.1)\no{i}.step()" for i in range(count))
    return "\n".join(lines), "torch.sqrt(x)"


PROGRAMS = [
    chain, chain_from_the_culprit, one_name, one_name_in_a_loop, one_name_read_often, apart,
    numbers,    lines_of_numbers, numbers_in_the_culprit, one_sum, functions, optimizers,
]  # fmt: skip


def found_in(text: str, culprit: str, tmp_path) -> Finding:
    """A finding at a culprit in a file, with a fix of every kind to look for."""
    text = f"import torch\nx = torch.zeros(3, requires_grad=True)\n{text}\n"
    if culprit not in text:
        text += f"r = {culprit}\n"
    text += "loss = x.sum()\nloss.backward()\n"
    file = tmp_path / "program.py"
    file.write_text(text)
    source = Source(str(file), text)
    start = text.index(culprit)
    place = Location(
        str(file), *source.place(start), *source.place(start + len(culprit)), "<module>"
    )
    op = culprit.partition("(")[0].rpartition(".")[2]
    return finding_of(
        "GS102",
        op=op,
        message="a message",
        why="a reason",
        location=place,
        measured=Measured((("self", 0.0),)),
        tensors=(Operand("self", at=0.0),),
        fixes=tuple(Fix(kind, "a fix", request=one) for kind, one in REQUESTS.items()),
    )


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.long
def test_the_search_grows_as_the_program_does(program, tmp_path):
    counts = []
    for length in (50, 400):
        finding = found_in(*program(length), tmp_path)
        search = Search(seconds=1e9)
        counts.append(calls_in(lambda: repaired(Trace("t"), (finding,), None, search=search)))  # noqa: B023

    assert counts[1] < 12 * counts[0]


def test_a_sum_of_two_thousand_terms_is_no_recursion(tmp_path):
    finding = found_in(*one_sum(2000), tmp_path)

    (served,) = repaired(Trace("t"), (finding,), None)

    assert served.fixes[0].patch is not None


def test_what_the_time_did_not_allow_is_said(tmp_path):
    finding = found_in(*chain(3), tmp_path)
    search = Search(seconds=0.0)

    (served,) = repaired(Trace("t"), (finding,), None, search=search)

    assert search.is_cut
    assert {fix.verdict for fix in served.fixes} == {NotTried(Reason.SEARCH, "0")}


def test_trying_a_patch_takes_no_time_from_the_search(monkeypatch):
    now = 0.0
    monkeypatch.setattr("time.thread_time", lambda: now)
    search, found = Search(seconds=3.5), []

    def ways():
        nonlocal now
        for one in range(9):
            now += 1.0
            yield one

    for one in search.found(ways()):
        found.append(one)
        now += 100.0

    assert (found, search.is_cut) == ([0, 1, 2, 3], True)


def test_a_fault_of_ours_costs_one_finding_its_fixes(tmp_path, monkeypatch):
    def broken(_culprit):
        raise RecursionError("too deep")

    monkeypatch.setattr("gradscope.repair.write.masked.guarded", broken)
    finding = found_in("", "torch.sqrt(x)", tmp_path)

    (served,) = repaired(Trace("t"), (finding,), None)

    verdicts = {fix.kind: fix.verdict for fix in served.fixes}
    assert verdicts["epsilon"] == NotTried(Reason.FAULT, "RecursionError: too deep")


def test_two_thousand_names_for_one_thing_are_no_recursion(tmp_path):
    names = "".join(f"v{i + 1} = v{i}\n" for i in range(2000))
    finding = found_in(f"v0 = torch.softmax(x, -1)\n{names}", "torch.log(v2000)", tmp_path)

    (served,) = repaired(Trace("t"), (finding,), None)

    assert any("log_softmax(x, -1)" in fix.title for fix in served.fixes)

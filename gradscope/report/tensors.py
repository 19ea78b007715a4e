"""The table of the tensors at a culprit: which, of what kind, how much of it is bad."""

from collections.abc import Iterator, Sequence

from gradscope.facts import Operand, number
from gradscope.ops.display import role_name
from gradscope.report.printable import Segment, aligned, clean
from gradscope.report.sentences import share

HEADINGS = ("tensor", "shape", "dtype", "device", "bad", "min", "max")


def rows(tensors: Sequence[Operand]) -> list[tuple[str, ...]]:
    """One row a tensor under HEADINGS. min and max are over the finite elements."""
    found = [
        (
            clean(tensor.called or role_name(tensor.role)),
            str(list(tensor.shape)),
            clean(tensor.dtype.removeprefix("torch.")),
            clean(tensor.device),
            share(tensor.bad, tensor.numel),
            "-" if tensor.min is None else number(tensor.min),
            "-" if tensor.max is None else number(tensor.max),
        )
        for tensor in tensors
    ]
    return list(dict.fromkeys(found))  # what an op reads may also be what it saved


def described(row: Sequence[str]) -> tuple[str, str]:
    """A row in two lines, for pages too narrow for a table."""
    name, shape, dtype, device, bad, least, most = row
    finite = f"{bad} bad" if least == "-" else f"{bad} bad, finite part {least} to {most}"
    return f"{name} {shape} {dtype} {device}", finite


def table(tensors: Sequence[Operand], encoding: str) -> Iterator[tuple[Segment, ...]]:
    """The table in aligned columns, headings first, without any margin."""
    cells = [[clean(cell, encoding) for cell in row] for row in (HEADINGS, *rows(tensors))]
    headings, *padded = zip(*map(aligned, zip(*cells, strict=True)), strict=True)
    bad = HEADINGS.index("bad")
    for row, role in ((headings, "dim"), *((row, "") for row in padded)):
        alarming = role == "" and not row[bad].startswith("0 ")
        yield (
            Segment("  ".join(row[:bad]) + "  ", role),
            Segment(row[bad], "bad" if alarming else role),
            Segment(("  " + "  ".join(row[bad + 1 :])).rstrip(), role),
        )

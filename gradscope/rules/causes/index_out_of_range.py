"""An index that lies outside of what it is to look up."""

from collections.abc import Iterator

from gradscope.facts import Ending, Finding, Fix, OutOfRange, Phase, Raised, Root, Trace
from gradscope.facts import requests as ask
from gradscope.rules.reading import measurements
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases

UNLABELLED = 255  # what data sets of images write where there is no class


class IndexOutOfRange(Rule):
    """
    ## What it does
    Finds the index that `embedding`, `gather`, `index_select`, `x[i]` or the target of a
    classification refused: its value, its place, and how many elements there are to look up.

    ## Why is this bad?
    The exception names neither the index nor the table. On a GPU it comes as a device-side assert,
    at whatever line runs next, and every later call fails too: gradscope looks at the indices of
    the failing step before they are used.

    ## Example
    ```python
    import torch

    table = torch.randn(10, 4, requires_grad=True)
    - words = torch.tensor([3, 10])
    + words = torch.tensor([3, 9])
    torch.nn.functional.embedding(words, table).sum().backward()
    ```

    ## Fix safety
    There is no patch in general: whether the index is wrong or the table too small is for the data
    to say. Targets that mean "no class" can be left out with `ignore_index`.
    """

    code = "GS505"
    name = "index-out-of-range"
    phase = Phase.DATA

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        if trace.raised is not None and isinstance(trace.raised.why, OutOfRange):
            yield self._about(trace.raised, trace.raised.why)
        elif trace.ending.device_assert and trace.raised is None and not roots:
            yield self._on_a_device(trace.ending)

    def _on_a_device(self, ending: Ending) -> Finding:
        return self.found(
            "a kernel on the GPU refused its operands: nearly always an index out of range",
            "Kernels run later than the lines that ask for them, so that the exception comes at"
            " some later line, and neither the op nor the index is known. On the CPU the op itself"
            " raises, and both are told.",
            location=ending.location,
            label="noticed here, or before",
            fixes=(Fix("data", "run it on the CPU", code="CUDA_VISIBLE_DEVICES= gradscope trace"),),
        )

    def _about(self, raised: Raised, found: OutOfRange) -> Finding:
        named = {one.role: one for one in raised.operands}
        index, into = named.get(found.role), named.get(found.into)
        table = phrases.name(into, "what it looks up")
        place = phrases.place(found.index)
        what = f"`{index.called}{place}`" if index and index.called else f"the index at {place}"
        what = what if place else phrases.name(index, "the index")
        count = phrases.of_total(found.bad, found.numel)
        return self.found(
            f"{what} is {found.value}, and dimension {found.dim} of {table} has {found.size}"
            f" elements ({count} outside)",
            f"`{phrases.spelled(raised.call.op)}` takes 0 to {found.size - 1} here. An index beyond"
            " comes from data that was not mapped to these numbers, a table that was made too"
            " small, or a count that starts at 1.",
            raised.call,
            step=raised.step,
            label=f"index {found.value}, {found.size} elements",
            evidence=measurements.fields_of(found, "index", "value", "size", "dim", "bad", "numel"),
            tensors=raised.operands,
            fixes=tuple(_fixes(found)),
        )


def _fixes(found: OutOfRange) -> Iterator[Fix | ask.Request]:
    is_class = found.role == "target"
    if is_class and found.only and (found.value < 0 or found.value == UNLABELLED):
        yield ask.IgnoreTarget(found.value)
    if found.value >= 0:
        yield Fix("data", f"make room for {found.value + 1} or more, or map the indices")
    if found.value == found.size and found.only and not is_class:
        yield ask.BoundIndex(found.dim)  # of an upper end that is computed

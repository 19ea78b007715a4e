"""Half precision near the ends of its range, in a healthy run."""

from collections.abc import Iterator
from itertools import islice

from gradscope.facts import Finding, Headroom, Root, Severity, Trace
from gradscope.rules.reading import evidence, measurements
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class HalfHeadroom(Rule):
    """
    ## What it does
    Finds float16 or bfloat16 results near the ends of their range, on the way to a healthy loss.
    Near are a factor of 4 from the largest number, and all elements subnormal.

    ## Why is this bad?
    float16 ends at 65504. Activations move by more than a factor of 4 between batches, and what
    leaves the range is inf (GS204). Below 6e-5 float16 loses digits until only 0 is left (GS205).

    ## Example
    ```python
    import torch

    x = torch.tensor([1.0, 240.0], dtype=torch.float16, requires_grad=True)
    - (x * x).float().sum().backward()
    + (x.float() * x.float()).sum().backward()
    ```

    ## Fix safety
    There is no patch: computing the op in float32, in bfloat16 or on scaled values is a choice.
    """

    code = "GS603"
    name = "half-headroom"
    severity = Severity.WARNING
    of_hazards = True
    MOST = 3  # told a run: those with the least room

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        harmed = evidence.harmed(trace, roots)
        found = (one for one in trace.headroom if one.call.location not in harmed)
        yield from map(self._about, islice(found, self.MOST))

    def _about(self, one: Headroom) -> Finding:
        op, largest = phrases.spelled(one.call.op), phrases.number(one.largest)
        limit, count = phrases.number(one.limit), phrases.of_total(one.near, one.numel)
        if one.limit > 1:
            room, end = one.limit / one.largest, "largest number"
            message = f"`{op}` gives {largest} in {one.dtype}, which ends at {limit} ({count})"
            why = f"A factor of {phrases.number(room)} is left. What lies beyond it is inf."
            label = f"a factor of {room:.2g} is left"
        else:
            room, end = one.largest / one.limit, "smallest normal number"
            message = f"`{op}` gives at most {largest} in {one.dtype}: all is subnormal ({count})"
            why = f"Below {limit} {one.dtype} has fewer digits the smaller a number is, and then 0."
            label = f"{room:.2g} of the smallest normal number"
        return self.found(
            message,
            why,
            one.call,
            step=one.step,
            label=label,
            numbers=(f"largest magnitude {largest}; {end} of {one.dtype} {limit}",),
            evidence={
                **measurements.fields_of(one, "largest", "limit"),
                "margin": room,
                **measurements.fields_of(one, "near", "numel", "dtype"),
            },
        )

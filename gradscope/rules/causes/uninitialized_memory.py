"""A value that was read from memory that nothing had written."""

from gradscope.facts import Finding, Fix, Kind, Operand, Root, Trace, plural
from gradscope.facts import requests as ask
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule
from gradscope.rules.wording import phrases


class UninitializedMemory(Rule):
    """
    ## What it does
    Finds elements of `torch.empty`, `empty_like` or `new_empty` that were read before the program
    had written them.

    ## Why is this bad?
    Such memory holds whatever was there before: often 0, sometimes NaN or 1e38. The program works
    on one machine and breaks on the next. gradscope fills it with NaN while it watches, so that
    every such read shows.

    ## Example
    ```python
    import torch

    x = torch.tensor([0.2, 0.8], requires_grad=True)
    - y = torch.empty(3)
    + y = torch.zeros(3)
    y[:2] = x
    y.sum().backward()
    ```

    ## Fix safety
    Unsafe: elements that held garbage hold 0 now, and the result is the same on every run.
    """

    code = "GS503"
    name = "uninitialized-memory"

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        event = root.event
        is_hidden = evidence.situation(root) is evidence.Situation.HIDDEN
        if event.kind is not Kind.UNINITIALIZED or is_hidden:
            return None
        held = event.output
        if held is not None and held.held_as == "parameter" and held.name:
            return self._of_parameter(root, trace, held, held.name)
        op, size = phrases.spelled(event.op), plural(event.numel, "element")
        name = phrases.name(event.output, "The result")
        return self.finding(
            root,
            trace,
            message=f"`{op}` allocated {size} that were read before they were written",
            label="allocated here, and not filled",
            why=f"`{op}` allocates memory without writing to it. {name} was used before all of it"
            " was filled, so the result is what happened to lie there. gradscope fills such memory"
            " with NaN to make every such read visible.",
            fixes=(
                ask.FillMemory(event.op),
                Fix("data", "fill every element before it is read", "display-only"),
            ),
        )

    def _of_parameter(self, root: Root, trace: Trace, held: Operand, name: str) -> Finding:
        owner, _, own = name.rpartition(".")
        return self.finding(
            root,
            trace,
            message=f"the parameter `{name}` was read before anything was written to it",
            label="given memory here that is not filled",
            why=f"The module was made without memory, or its memory was left as it was, and `{own}`"
            f" of `{owner}` was neither initialised nor loaded after that: it is what happened to"
            " lie there. gradscope fills such memory with NaN to make every such read visible.",
            fixes=(ask.FillParameter(name, len(held.shape) == 1),),
        )

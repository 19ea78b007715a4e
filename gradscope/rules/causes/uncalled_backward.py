"""A module with a method `backward` of its own, which autograd knows nothing of."""

from collections.abc import Iterator

from gradscope.facts import Finding, Phase, Root, Severity, Trace
from gradscope.facts import requests as ask
from gradscope.rules.rule import Rule, places


class UncalledBackward(Rule):
    """
    ## What it does
    Finds a module with a method `backward` that nobody calls, in a program that trains.

    ## Why is this bad?
    Autograd differentiates what `forward` computes. It calls the `backward` of an
    `autograd.Function`, and never one of an `nn.Module`: a gradient reversal that is written so
    passes the gradient on as it is, and no error is raised.

    ## Example
    ```python
    import torch

    class Reverse(torch.nn.Module):
        def forward(self, x):
    -         return x
    +         out = x.view_as(x)
    +         if out.requires_grad:
    +             out.register_hook(self.backward)
    +         return out

        def backward(self, grad):
            return -grad

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Reverse(), torch.nn.Linear(4, 1))
    model(torch.ones(2, 4)).square().mean().backward()
    ```

    ## Fix safety
    Unsafe: training takes other steps, which is the point. Where `forward` computes something, and
    `backward` is what is left of a derivation by hand, it can be deleted: that is a warning.
    """

    code = "GS304"
    name = "uncalled-backward"
    phase = Phase.BACKWARD
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for own in trace.magnitudes.own_backwards:
            does = "passes its input on" if own.passes_on else "computes something"
            # What passes its input on is where autograd can be told of the method, whose text may
            # stay; beside what computes, it may be the method that is to go.
            place, label = own.location, "nobody calls this"
            related = ("use", own.forward, "this is differentiated")
            if own.passes_on and own.returned is not None:
                place, label, related = own.returned, related[2], ("use", place, label)
            yield self.found(
                f"`{own.name}.backward` is never called: autograd differentiates `forward`",
                f"`{own.name}` is a module, and autograd calls the `backward` of an"
                f" `autograd.Function` alone. Its `forward` {does}, and the gradient is the"
                " derivative of that, whatever `backward` says.",
                severity=Severity.ERROR if own.passes_on else Severity.WARNING,
                op=own.name,
                location=place,
                label=label,
                related=places(related),
                evidence={"class": own.name, "passes_on": own.passes_on},
                fixes=(ask.HookBackward(own),),
            )

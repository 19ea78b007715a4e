"""A model that trains as if it were evaluated, or is evaluated as if it trained, or with statistics
of another time or of the last batch alone."""

from collections.abc import Iterator, Sequence

from gradscope.facts import (
    EvalUndone,
    Finding,
    HastyStatistics,
    KeptDropout,
    ModeKept,
    Root,
    Severity,
    StaleStatistics,
    Step,
    Trace,
    plural,
    text_of,
)
from gradscope.facts import requests as ask
from gradscope.rules.reading import measurements
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases

_MOST_PLACES = 3


class WrongMode(Rule):
    """
    ## What it does
    Finds a model with BatchNorm or Dropout that is trained in eval mode, or that runs without
    gradients in train mode, now and then, as an evaluation does. Or a copy of a model that follows
    its weights, and is evaluated with the statistics that its BatchNorm was copied with. Or one
    that is evaluated with those of the last batch, since its momentum is above 0.5. Or one that
    calls `F.dropout` in eval mode, and does not tell it so. Or a frozen part, set to eval mode,
    that `train()` of the whole model sets back.

    ## Why is this bad?
    In eval mode BatchNorm normalises by statistics that no longer follow the data, and Dropout does
    nothing. In train mode an evaluation hangs on what else is in its batch, drops activations at
    random, and moves the statistics of BatchNorm by data that the model is not trained on.
    `parameters()` leaves these statistics out, which are buffers: weights that follow another model
    without them are evaluated with a mean and a variance that belong to other weights. Torch gives
    the last batch the weight `momentum`, where others give it 1 - momentum. `train()` is of all
    that is in a module, frozen or not.

    ## Example
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
    +     model.train()
        for step in range(4):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            optimizer.step()
        model.eval()
    ```

    ## Fix safety
    Unsafe: what is trained and evaluated changes. A note where it may be on purpose, as statistics
    of other data that are frozen for small batches, and samples that are drawn with Dropout; a
    warning where training began in train mode, and goes on in eval mode, where BatchNorm never took
    any statistics, and where what is frozen had an `eval()` of its own.
    """

    code = "GS410"
    name = "wrong-mode"
    of_sizes = True

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        for kept in trace.magnitudes.modes:
            if isinstance(kept, ModeKept):
                yield self._about(kept, trace.steps)
            elif isinstance(kept, StaleStatistics):
                yield self._about_stale(kept)
            elif isinstance(kept, HastyStatistics):
                yield self._about_hasty(kept)
            elif isinstance(kept, KeptDropout):
                yield self._about_dropout(kept)
            else:
                yield self._about_undone(kept)

    def _about(self, kept: ModeKept, steps: Sequence[Step]) -> Finding:
        parts, times = phrases.listed(kept.parts), plural(kept.times, "time")
        is_switched = kept.mode == "eval" and _has_switched(kept, steps)
        if kept.mode == "eval":
            message = (
                f"`{kept.model}` is in eval mode in the last {kept.times} of {kept.passes} passes"
            )
            why = (
                f"{parts} in it then do not do what they do in training: no statistics are"
                " followed, nothing is dropped. `eval()` lasts until `train()` is called."
            )
            if kept.untouched:
                why += (
                    " It has never seen data in train mode: its mean is 0 and its variance 1, as"
                    " it was made, so that it normalises nothing."
                )
            label = "sets eval mode"
        else:
            message = f"`{kept.model}` runs in train mode without gradients, {times} between passes"
            why = (
                f"{parts} in it then do what they do in training: the result hangs on the rest of"
                " the batch, or on chance, and statistics move by data that is not trained on."
            )
            label = "runs here"
        return self.found(
            message,
            why,
            severity=Severity.WARNING if is_switched or kept.untouched else Severity.NOTE,
            step=kept.last,
            op=kept.model,
            location=next(iter(kept.sites), None),
            label=label,
            evidence=measurements.fields_of(kept, "mode", "parts", "times", "passes"),
            fixes=(ask.SetMode(kept),),
        )

    def _about_stale(self, stale: StaleStatistics) -> Finding:
        kept = "mean 0 and variance 1" if stale.untouched else "the statistics it was copied with"
        place = stale.written_at or stale.runs_at
        runs = places(("evaluated", stale.runs_at, "normalises by them"))
        return self.found(
            f"BatchNorm of `{stale.model}` keeps {kept}, and only its weights move",
            f"Its weights follow those of `{stale.source}`, whose statistics have moved; its own"
            " have not. They are buffers, which `parameters()` leaves out, and in eval mode it"
            " normalises by them.",
            severity=Severity.ERROR,
            step=stale.last,
            op=stale.model,
            location=place,
            label="follows the weights alone" if stale.written_at else "normalises by them",
            related=runs if stale.written_at else (),
            evidence=measurements.fields_of(stale, "source", "runs"),
            fixes=(ask.FollowStatistics(stale),),
        )

    def _about_hasty(self, hasty: HastyStatistics) -> Finding:
        momentum = text_of(hasty.momentum)
        place, *others = hasty.places or (None,)
        return self.found(
            f"`{hasty.model}` is evaluated with statistics of the last batch: `{hasty.kind}` has"
            f" momentum {momentum}",
            f"Torch computes `(1 - momentum) * running + momentum * batch`: {hasty.momentum:.0%} of"
            " a mean and a variance come from the last batch. What other frameworks call momentum"
            " is 1 minus this one.",
            severity=Severity.WARNING,
            step=hasty.last,
            op=hasty.model,
            location=place,
            label="is the weight of the last batch",
            related=places(*(("use", one, "here too") for one in others)),
            evidence=measurements.fields_of(hasty, "momentum", "norms", "runs"),
            fixes=(ask.LowerMomentum(hasty),),
        )

    def _about_dropout(self, kept: KeptDropout) -> Finding:
        drop, *others = kept.drops
        is_left_out = drop.argument == "training"
        told = "left out" if is_left_out else "the same in each mode"
        return self.found(
            f"`{drop.op}` drops values while `{kept.model}` is in eval mode",
            f"`eval()` sets a flag of modules, which a function does not know: it goes by its"
            f" argument `{drop.argument}`, which is {told}"
            + (", and True then." if is_left_out else ".")
            + " The model is evaluated with noise, and with part of its values left out.",
            severity=Severity.WARNING,
            step=kept.last,
            op=drop.op,
            location=drop.place,
            label="drops in eval mode too",
            related=places(*(("use", one.place, "here too") for one in others)),
            evidence={"places": len(kept.drops)},
            fixes=(ask.DropInTraining(kept),),
        )

    def _about_undone(self, undone: EvalUndone) -> Finding:
        first, *others = undone.calls
        return self.found(
            "`train()` sets back to train mode what is frozen, and was set to eval mode:"
            f" {phrases.listed(undone.parts)}",
            "It sets the mode of all that is in a module."
            f" {phrases.listed(undone.kinds)} in there ran in train mode in {undone.passes} passes:"
            " BatchNorm then normalises by the batch, and moves statistics that belong to weights"
            " which stay; Dropout drops values.",
            severity=Severity.WARNING,
            step=undone.last,
            op=undone.parts[0],
            location=first.place,
            label="sets train mode",
            related=(
                *places(*(("call", one, "sets eval mode") for one in undone.set_at[:_MOST_PLACES])),
                *places(*(("use", one.place, "here too") for one in others[:_MOST_PLACES])),
            ),
            evidence={"parts": len(undone.parts), "passes": undone.passes},
            fixes=(ask.SetEvalAgain(undone),),
        )


def _has_switched(kept: ModeKept, steps: Sequence[Step]) -> bool:
    """Whether what the program trains since then it had trained in train mode before: another loop
    may keep the statistics of a model that is there."""
    before = [one for one in steps if one.index <= kept.last - kept.times]
    last = next((one for one in reversed(steps) if one.index <= kept.last), None)
    return last is not None and any(one.backward_at == last.backward_at for one in before)

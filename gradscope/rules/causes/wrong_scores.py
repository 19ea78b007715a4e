"""Probabilities for a loss that takes raw scores, or log-probabilities."""

import math
from collections.abc import Iterator

from gradscope.facts import Finding, Root, Scores, Severity, Trace
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases


class WrongScores(Rule):
    """
    ## What it does
    Finds a loss that takes raw scores, or log-probabilities, and is given probabilities: a softmax
    before `cross_entropy`, a sigmoid before `binary_cross_entropy_with_logits`, a softmax without
    a logarithm before `nll_loss`, or a log_softmax over the samples. Likewise the weights of a sum
    within each sample (attention, pooling) which a softmax has made over the samples of the batch.

    ## Why is this bad?
    Nothing raises, and the loss falls a little. Normalised twice, the best probability of n classes
    is e / (e + n - 1), so that the loss stays high and the gradient small. Of probabilities,
    `nll_loss` is minus the one that is right: its gradient fades just where a prediction is wrong.

    ## Example
    ```python
    import torch

    x, y = torch.randn(8, 3), torch.arange(8) % 4
    model = torch.nn.Linear(3, 4)
    - torch.nn.functional.cross_entropy(model(x).softmax(1), y).backward()
    + torch.nn.functional.cross_entropy(model(x), y).backward()
    ```

    ## Fix safety
    Unsafe: the loss is another one. What else reads the probabilities gets them all the same, as
    far as the source tells.
    """

    code = "GS412"
    name = "wrong-scores"
    severity = Severity.WARNING

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from map(self._about, trace.scores)

    def _about(self, one: Scores) -> Finding:
        made, taken = phrases.spelled(one.made.op), phrases.spelled(one.taken.op)
        fix: ask.Request = ask.GiveScores(made, one.taken.location, one.logarithms)
        label, use = "makes probabilities", "takes other numbers"
        if one.raw:
            # What takes one class of each sample has a twin that normalises first.
            fix = ask.TakeScores() if has(one.taken.op, Trait.CHOOSES) else ask.NormaliseScores()
            message = f"`{taken}` takes log-probabilities, and is given raw scores"
            label = "reads them as log-probabilities"
            why = (
                f"`{taken}` takes no logarithm and normalises nothing: the loss falls without end"
                " as the scores of what is right grow. No other class has to lose for it."
            )
        elif one.along is not None and one.weights:
            along, dim = one.along
            fix = ask.AlongClasses(made, dim)
            label, use = "normalises over the samples", "sums within each sample"
            message = (
                f"`{made}` normalises along dimension {along}, that of the samples; what it weighs"
                f" is summed over dimension {dim}"
            )
            why = (
                f"`{taken}` adds up {one.classes} terms of each sample, whose weights do not sum to"
                f" 1: along dimension {along} it is those of different samples that do. What the"
                " model makes of a sample depends on which others are in its batch; alone, each"
                " term has the weight 1."
            )
        elif one.along is not None:
            along, classes = one.along
            fix = ask.AlongClasses(made, classes)
            label, use = "normalises over the samples", "takes one class of each sample"
            message = (
                f"`{made}` normalises along dimension {along}, the classes are along {classes}"
            )
            why = (
                f"`{taken}` takes of each sample one of the classes along dimension {classes}."
                f" Along dimension {along} it is the samples whose probabilities sum to 1: to raise"
                " that of one sample lowers those of all others, whatever they are."
            )
        elif one.taken.op == "kl_div":
            message = f"the loss takes log-probabilities, and is given those that `{made}` makes"
            why = (
                "`kl_div` takes no logarithm of its first argument. Of probabilities it makes a"
                " number that falls below 0 and is no distance: its least is not where the two are"
                " equal."
            )
        elif one.logarithms:
            message = f"the loss takes log-probabilities, and is given those that `{made}` makes"
            why = (
                f"`{taken}` takes no logarithm: the loss is minus the probability of the right"
                " class, never below -1. Its gradient fades where that is near 0, which is where"
                " most is to be learnt."
            )
        else:
            best = math.e / (math.e + one.classes - 1)
            message = f"the loss normalises scores that `{made}` has normalised before"
            why = (
                f"`{taken}` takes raw scores. Of numbers between 0 and 1 it makes at most"
                f" {phrases.number(best)} for the right one of {one.classes}, so that the loss"
                f" stays above {phrases.number(-math.log(best))} however good the model is, and"
                " the gradient small."
            )
        at = one.taken.location if not one.raw else None
        return self.found(
            message,
            why,
            one.made,
            step=one.step,
            label=label,
            severity=Severity.ERROR if one.raw else self.severity,
            related=places(("use", at, use)),
            evidence={} if one.weights else {"classes": one.classes},
            fixes=(fix,),
        )

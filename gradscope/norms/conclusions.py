"""The whole story of `gradscope norms`: run, measure, describe, conclude."""

import math
from collections.abc import Iterator
from functools import partial

from gradscope.config import Config
from gradscope.errors import GradscopeError
from gradscope.facts import Finding, Magnitudes, Report, Trace
from gradscope.norms import distribution
from gradscope.norms.facts import Measured, NormOptions, NormReport, clip_coefficient
from gradscope.norms.rows import joined
from gradscope.pipeline import conclude, require_backward, untouched
from gradscope.programs import RunOptions, Target, run
from gradscope.programs.ranks import Ranks
from gradscope.report.closing import ended_by, rank_remarks
from gradscope.report.status import Doing, Stages
from gradscope.rules import RULES

_UNSCALED = 0.99


def norms(
    target: Target,
    options: NormOptions,
    config: Config,
    *,
    stdout_to_stderr: bool = False,
    remarks: tuple[str, ...] = (),
    stages: Stages | None = None,
    ranks: Ranks | None = None,
) -> NormReport | None:
    """Run a target, measure its gradients at every step, and say what clipping would do. Of several
    ranks one tells it, with the norms of whole gradients; the others None.

    Raises GradscopeError where no backward ran or nothing received a gradient.
    """
    stages = stages or Stages()
    stages.begin(Doing.RUNNING)
    run_options = RunOptions.configured(config, stdout_to_stderr=stdout_to_stderr)
    seen = run(
        target,
        run_options,
        on_progress=stages.progress(run_options.steps),
        measure=partial(_measure, options),
        ranks=ranks,
    )
    others: list[Magnitudes] = []
    if ranks is not None:
        seen, others = ranks.joined(seen)
        ranked = ranks.agree(ranks.share(seen))
        if not ranks.leads:
            return None
        remarks = (*remarks, *rank_remarks(ranked))
    measured, end = seen.magnitudes.measured, seen.ending
    if not seen.steps and (end.gave_up or end.kind == "interrupted"):
        what = f"{target.name} ended before its first backward: {end.detail}"
        raise GradscopeError(what, help="run it without gradscope first", detail=end.traceback)
    require_backward(target, seen)
    if not isinstance(measured, Measured) or not measured.rows:
        raise GradscopeError(
            f"no parameter of {target.name} received a gradient",
            help="requires_grad must be True for what should learn",
        )
    elsewhere = (one.measured for one in others)
    parts = [one for one in elsewhere if isinstance(one, Measured)]
    measured = joined(measured, parts, options)
    stages.begin(Doing.DIAGNOSING)

    def of_sizes(finding: Finding) -> bool:
        return RULES[finding.rule].of_sizes  # what is not finite is the business of `trace`

    report = conclude(target.name, seen, config, about=of_sizes, repair=untouched, remarks=remarks)
    return described(report, measured, options)


def described(report: Report, measured: Measured, options: NormOptions) -> NormReport:
    """What follows from the measurements; pure."""
    seen = report.trace
    totals = [
        # Where every gradient is finite, their powers left the dtype.
        total if math.isfinite(total) or _bad_at(seen, step) else exact
        for step, total, exact in zip(measured.steps, measured.totals, measured.exact, strict=True)
    ]
    bounds = distribution.bounds(totals, options.max_norm)
    max_norm = options.max_norm
    if max_norm is None and bounds:
        max_norm = bounds[0].value
    shown = totals[measured.shown]
    coefficient = measured.coefficient
    if coefficient is None and max_norm is not None:
        coefficient = clip_coefficient(shown, max_norm)
    return NormReport(
        judged=report,
        options=options,
        measured=measured,
        distribution=distribution.describe(totals, measured.steps),
        bounds=bounds,
        max_norm=max_norm,
        coefficient=coefficient,
        notes=tuple(_notes(seen, measured)),
    )


def _measure(options: NormOptions) -> object:
    from gradscope.norms.meter import Measure

    return Measure(options)


def _bad_at(seen: Trace, step: int) -> list[str]:
    """The leaves whose gradient was not finite at a step, the one nearest to the loss first."""
    leaves = seen.magnitudes.leaves
    return [
        leaf.name
        for leaf in leaves
        if step < len(leaf.norms)
        and (norm := leaf.norms[step]) is not None
        and not math.isfinite(norm)
    ]


def _not_finite(seen: Trace, measured: Measured) -> Iterator[str]:
    """Gradients that are not finite at the step that is shown, else at the first other one."""
    rows = {row.name: row for row in measured.rows if row.bad}
    step, names = measured.step, list(rows)
    if not names:
        numbered = zip(measured.steps, measured.totals, strict=True)
        steps = (step for step, total in numbered if not math.isfinite(total))
        step, names = next(((at, bad) for at in steps if (bad := _bad_at(seen, at))), (0, []))
    if not names:
        return
    first = rows.get(names[0])
    where = f" ({first.bad} of {first.numel} elements)" if first else f" (at step {step})"
    many = len(names) > 1
    yield (
        f"{len(names)} gradient{'s are' if many else ' is'} not finite, first `{names[0]}`{where}:"
        f" clip_grad_norm_ would turn {'them' if many else 'it'} into NaN and every other gradient"
        " into 0 or NaN; `gradscope trace` names the op"
    )


def _notes(seen: Trace, measured: Measured) -> Iterator[str]:
    if seen.ending.is_cut_short:
        yield f"not measured to its end: {ended_by(seen.ending)}"
    yield from _not_finite(seen, measured)
    yield from (f"not checked: {one.what} ({one.why})" for one in seen.not_checked)
    bad = any(row.bad for row in measured.rows)
    if not bad and not math.isfinite(measured.totals[measured.shown]):
        yield (
            f"every gradient is finite, but their powers overflow: torch's total is"
            f" {measured.totals[measured.shown]}, in float64 it is"
            f" {measured.exact[measured.shown]:.6g}. clip_grad_norm_ would set every gradient to 0"
        )
    sparse = [row.name for row in measured.rows if row.sparse]
    if sparse:
        yield (
            f"{len(sparse)} gradient{'s are' if len(sparse) > 1 else ' is'} sparse, first"
            f" `{sparse[0]}`: clip_grad_norm_ raises NotImplementedError on"
            f" {'them' if len(sparse) > 1 else 'it'}; the norms here are of the coalesced values"
        )
    updates = seen.magnitudes.updates
    ratios = [update.clipped for update in updates if update.clipped is not None]
    shrunk = [ratio for ratio in ratios if 0 < ratio < _UNSCALED]
    if shrunk:
        yield (
            f"the program itself scales its gradients before `optimizer.step()`, by"
            f" {min(shrunk):.3g} to {max(shrunk):.3g}: the norms here are those before"
        )
    if any(update.stale for update in updates):
        yield "gradients of earlier steps were not cleared: each norm is that of their sum"

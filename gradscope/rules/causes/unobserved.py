"""What could not be seen of a run."""

from collections.abc import Iterator
from dataclasses import replace

from gradscope.facts import Compiling, Finding, Fix, Root, Severity, Trace, Unexamined
from gradscope.rules.reading import evidence
from gradscope.rules.rule import Rule, places
from gradscope.rules.wording import phrases

_NARROW = Fix(
    "graph",
    "find out what of the compiler breaks it, one backend after the other",
    "display-only",
    'torch.compile(model, backend="eager")  # then "aot_eager", then "inductor"',
)


class Unobserved(Rule):
    """
    ## What it does
    Finds what gradscope could not see of a run: saved tensors behind hooks, a tensor without
    values, memory too large to follow, a bad value that a collective brought from another rank, the
    ops of compiled code, or of a step that was only watched; and the ops that torch itself computes
    otherwise while somebody looks. Where only compiled code breaks, and
    the same program is finite when it runs eagerly, that is an error.

    ## Why is this bad?
    A report that is silent about something it did not look at reads like a clean one.

    ## Fix safety
    There is nothing to repair. Where the message names a setting, another run with it shows more.
    """

    code = "GS902"
    name = "unobserved"
    severity = Severity.NOTE

    def explain(self, root: Root, trace: Trace) -> Finding | None:
        if evidence.situation(root) is not evidence.Situation.ELSEWHERE:
            return None
        event, reader = root.event, evidence.reader(root)
        one = evidence.outside(event)
        what = phrases.name(one, "what it received")
        of = phrases.of_total(event.bad, event.numel)
        bad = phrases.bad_word(one.nan, event.bad - one.nan) if one else "NaN"
        met = reader.location if reader is not event.blame else None
        found = self.finding(
            root,
            trace,
            message=f"{what} came from another rank with {bad} at {of}",
            label=f"`{event.op}` brought it here",
            why="All that this rank gave to the collective was finite. What made the values bad ran"
            " in another process: its own report names it.",
            related=places(("use", met, f"computes with {what}")),
        )
        return replace(found, severity=Severity.ERROR)

    def _only_watched(self, at: Unexamined, trace: Trace) -> Finding:
        bad = phrases.symptoms(one for one in trace.symptoms if one.step <= at.step)
        first = {(one.kind, one.tensor): one for one in reversed(trace.symptoms)}
        if at.only_compiled:
            return self.found(
                f"at step {at.step} {bad} in compiled code, and finite when run eagerly",
                "The program ran again, and what `torch.compile` is given ran uncompiled there: all"
                " was finite. What breaks is made in compiling: ops that the backend fuses or"
                " rewrites, or a backend of the program's own.",
                severity=Severity.ERROR,
                step=at.step,
                location=trace.compiled.location if trace.compiled is not None else None,
                label="compiled here",
                symptoms=tuple(reversed(first.values())),
                fixes=(_NARROW,),
            )
        return self.found(
            f"at step {at.step} {bad}, and the ops from step {at.since} on that may have led there"
            " were not looked at",
            "These steps were only watched: whether what they train with is finite."
            " `gradscope trace` runs a program again to look at such steps; --every-step, or"
            " every_step=True, looks at the ops of all.",
            severity=Severity.ERROR,
            step=at.step,
            symptoms=tuple(reversed(first.values())),
        )

    def _compiled(self, one: Compiling) -> Finding:
        if one.left_out:
            headline = "what `torch.compile` is given ran uncompiled where each op was looked at"
            why = "Compiled code shows none of its ops."
        else:
            headline = "the program compiles code, so its steps were only watched"
            why = (
                "Compiled code shows none of its ops: whether loss, gradients and parameters are"
                " finite is seen of it. --every-step runs it uncompiled, and looks at each op."
            )
        return self.found(headline, why, location=one.location, label="compiled here")

    def check(self, trace: Trace, roots: tuple[Root, ...]) -> Iterator[Finding]:
        yield from super().check(trace, roots)
        if trace.unexamined is not None and trace.symptoms:
            yield self._only_watched(trace.unexamined, trace)
        elif trace.compiled is not None:
            yield self._compiled(trace.compiled)
        if trace.rounded_otherwise:
            ops = phrases.listed([phrases.spelled(op) for op in trace.rounded_otherwise])
            yield self.found(
                f"gradients of {ops} may differ in the last digit, or in the sign of a 0, where"
                " each op is looked at",
                "That takes a dispatch mode, under which torch computes them by another formula."
                " In steps that are only watched they are as ever.",
            )
        for note in trace.notes:
            yield self.found(note.rstrip("."), "What happened there is not part of this report.")

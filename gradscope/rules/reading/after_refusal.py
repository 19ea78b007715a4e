"""What is asked for where autograd refused, the likeliest first."""

from collections.abc import Iterator
from itertools import pairwise

from gradscope.facts import Call, Fix, Location, NoGradient, refusals
from gradscope.facts import requests as ask
from gradscope.ops.traits import Trait, has

_OF_FREED = (ask.ComputeAfterUpdate, ask.KeepGraph)  # mend a graph of which a part is gone


_OWN_LAYOUT = {
    True: "give these parameters an optimizer of their own that takes sparse gradients, as"
    " `SparseAdam` and `SGD` do",
    False: "give these parameters an optimizer of their own that takes dense gradients",
}
_KEPT_REAL = "keep the base of the power at 0 or above: `max(0.0, base) ** power`"
_LEFT_OUT = "leave out of training what the parameters have no part in"
_SAME_ORDER = "give it the parameters of the optimizer that saved the state, in their order"


def requests(refusal: refusals.Refusal) -> Iterator[Fix | ask.Request]:
    match refusal:
        case refusals.ChangedInPlace():
            yield from _changed(refusal)
        case refusals.GraphFreed(shared=shared):
            yield from _shared(shared, refusal)
        case refusals.WithoutGraph(switch=switch) if switch:
            yield ask.SwitchOffWithin(switch, refusal.frames)
        case refusals.WithoutGraph(reason=reason, to_learn=modules, turns=turns):
            if reason is NoGradient.FROZEN and modules:
                yield ask.Thaw(modules, turns)
            is_apart = refusal.apart and reason is NoGradient.FROZEN
            yield Fix("graph", _LEFT_OUT, "unsafe") if is_apart else ask.Reattach(reason)
        case refusals.LeafWritten(name=name, trained=trained):
            ways = ask.WithoutGrad(), ask.CopyLeaf(name)
            yield from ways if trained else reversed(ways)
        case refusals.NoLeaf(name=name, updated=updated, nameless=nameless):
            if updated:
                yield ask.UpdateInPlace()
                return
            yield from (ask.LeafAtLast(),) if nameless else ()
            yield ask.RetainGradient(name)
        case refusals.ComputedGiven():
            yield ask.LeafAtLast()
        case refusals.NothingGiven(unregistered=unregistered, consumed=consumed):
            if consumed:
                yield ask.KeepAsList()
            elif unregistered:
                yield ask.Reattach(NoGradient.UNREGISTERED)
        case refusals.GivenTwice(whole=whole, part=part):
            yield ask.LeaveOutOfGroup(whole, part)
        case refusals.CopiedWithGraph(attribute=attribute):
            yield ask.KeepWithoutGraph(attribute)
        case refusals.WholeNumbers():
            yield ask.WithFloats()
        case refusals.ReadAsArray(name=name):
            yield ask.DetachForArray(name)
        case refusals.SwitchedOff(name=name):
            yield ask.DetachInstead(name)
        case refusals.ParameterReplaced(name=name):
            yield ask.WriteIntoParameter(name)
        case refusals.ComplexLoss():
            yield ask.ByMagnitude()
        case refusals.SavedNoTensor(names=names):
            yield ask.KeepOnContext(names)
        case refusals.PastScaler():
            yield ask.StepThroughScaler()
        case refusals.StateOfAnother(in_order=in_order, loaded=loaded):
            if loaded is not None and not in_order:
                yield ask.StartStateAnew(loaded)
            yield Fix("graph", _SAME_ORDER, "unsafe")
        case refusals.LayoutRefused(sparse=sparse, layers=layers):
            if layers:
                yield ask.SetSparse(not sparse, layers)
            yield Fix("graph", _OWN_LAYOUT[sparse], "unsafe")
        case refusals.ComplexSetting(location=location):
            if location is not None:
                yield ask.BoundBase()
            else:
                yield Fix("clamp-domain", _KEPT_REAL, "unsafe")
        case refusals.ComputedAgain(location=place) if place is not None:
            yield ask.RunOnce(place)
        case refusals.UnscaledTwice():
            yield ask.UnscaleBeforeStep()
        case refusals.NotTwice(marks=marks) if marks:
            yield ask.Unmark(marks)
        case refusals.NotTwice(op=op):
            yield ask.DifferentiableForm(op)
        case refusals.ViewWritten(name=name, raised_at=place):
            yield ask.OutOfPlace(place)
            yield ask.CopyLeaf(name)
        case refusals.Unreduced():
            yield ask.FindUnused()
        case refusals.NotScalar(raised_at=place):
            yield ask.ReduceLoss(place)
        case refusals.NotUsed(original=original, read=read) if original and read is not None:
            inner = (one for one, by in pairwise(read.frames) if by == refusal.location)
            yield ask.HandOver(original, refusal.name, refusal.holders, next(inner, None))
        case refusals.NotUsed(reason=reason, name=name, instead=instead, read=read, given=given):
            if given is not None:
                yield ask.GiveInstead(given)
            if read is not None:
                yield ask.JoinViews()
            if instead:
                yield ask.DifferentiateBy(instead)
            if reason:
                yield ask.Reattach(reason, name)
            if reason is not NoGradient.LEAFLESS and read is None and given is None:
                yield ask.AllowUnused()


def is_carried(shared: refusals.Shared | None) -> bool:
    """Whether a value of one step was read in the next one, and is made in each."""
    return shared is not None and shared.again and shared.used is not None


def kept_apart(shared: refusals.Shared) -> Location | None:
    """The statement that keeps a carried value as an attribute, where another one makes it."""
    kept = next((one.set_at for one in shared.carried if one.set_at is not None), None)
    made = shared.made.location if shared.made is not None else None
    if kept is None or made is None or kept.file != made.file:
        return kept
    return None if kept.line <= made.line <= (kept.end_line or kept.line) else kept


def _changed(refusal: refusals.ChangedInPlace) -> Iterator[ask.Request]:
    shared, saved = refusal.shared, refusal.saved
    if shared is not None and (shared.used is not None or is_once(shared, refusal.raised_at)):
        asked = _shared(shared, refusal)
        yield from (one for one in asked if not isinstance(one, _OF_FREED))
    write = refusal.writes[0] if refusal.writes else None
    place = write.location if write is not None else None
    updated, backward = parting(write, refusal)
    copies = (
        (ask.CopyWhenSaved(saved, refusal.role, refusal.name, place),) if saved is not None else ()
    )
    if write is None:
        yield from copies
        return
    if write.optimizer and updated is not None and backward is not None:
        # What the second loss gives the parameters that were stepped is for nobody if it is there
        # to train others: a later step would go along with it.
        later = ask.UpdateLater(write, updated, backward)
        anew = ask.ComputeAfterUpdate(refusal.above, updated, backward)
        yield from (anew, later) if refusal.apart or refusal.cleared else (later, anew)
        return
    if write.lasts and updated is not None and backward is not None:
        yield from (*copies, ask.UpdateLater(write, updated, backward))
        return
    is_copied = not write.recorded and not write.within  # which autograd keeps for others as well
    copies_first = is_copied or _is_one_line(write, saved)
    first, last = (copies, ()) if copies_first else ((), copies)
    yield from (*first, ask.OutOfPlace(write.location, write.module), *last)


def _is_one_line(write: refusals.Write, saved: Call | None) -> bool:
    """Whether one line reads a tensor and writes it: a copy before it would not part the two, and
    one behind it comes too late where both are in a library's layers that it calls."""
    read = saved.location if saved is not None else None
    if read is None or write.location is None or write.location.line != read.line:
        return False
    within = write.module and write.location.col == read.col
    return not (within and write.location.end_col == read.end_col)


def parting(
    write: refusals.Write | None, refusal: refusals.Refusal
) -> tuple[Location | None, Location | None]:
    """The lines of one function that lead to an update and to what raised: of the innermost one
    that both have come through."""
    both = zip(reversed(write.frames if write else ()), reversed(refusal.frames), strict=False)
    apart = ((one, other) for one, other in both if one != other)
    place = write.location if write is not None else None
    return next(apart, (place, refusal.raised_at))


def updated_at(refusal: refusals.ChangedInPlace) -> Location | None:
    """Where the first write was made: of an update by what has also called the backward, and may be
    called for several, the line that calls it for this one."""
    write = refusal.writes[0] if refusal.writes else None
    place, raised = write.location if write is not None else None, refusal.raised_at
    if place is None or raised is None or not (write and write.optimizer):
        return place
    is_shared = (place.file, place.function) == (raised.file, raised.function)
    return parting(write, refusal)[0] if is_shared else place


def is_once(shared: refusals.Shared, raised_at: Location | None) -> bool:
    """Whether one backward, in a loop, runs for the second time through what was computed once."""
    return not shared.again and shared.once is not None and shared.backward == raised_at


def is_for_others(shared: refusals.Shared) -> bool:
    """Whether the present loss is there to train others than those that the value is made of, which
    the earlier one has trained."""
    return shared.trained and shared.apart


def _shared(shared: refusals.Shared, refusal: refusals.Refusal) -> Iterator[ask.Request]:
    raised_at = refusal.raised_at
    if shared.constant and shared.backward is not None:
        yield ask.KeepGraph(shared.backward, learnt=True)
        return
    if is_carried(shared):
        if shared.dropped is not None:
            yield ask.KeepDetached(shared.dropped)
        if shared.made is not None and has(shared.made.op, Trait.CLAMPS):
            yield ask.ProjectLeaf(shared.made)
        # One of several under a key is read by one line as the others are.
        is_keyed = any(one.name.endswith("]") for one in shared.carried)
        if shared.used is not None and is_keyed:
            if shared.made is not None and shared.made.view:  # a part, which is taken to be kept
                yield ask.DetachMade(shared.made)
            yield ask.DetachRead(shared.used)
        for one in shared.carried:
            yield ask.DetachCarried(one, emptied=one.parts == "list" and one.kept)
        if shared.used is not None and not is_keyed:  # what is not there after the first steps
            yield ask.DetachRead(shared.used)
        return
    if is_once(shared, raised_at) and raised_at is not None:
        anew = ask.ComputeAnew(shared.calls, raised_at, shared.once)
        if shared.anew and shared.made is not None:  # what it learnt from both would cancel out
            yield ask.DetachMade(shared.made)
        detached = map(ask.DetachCarried, shared.carried if shared.used is not None else ())
        if shared.trained:  # what is trained goes on being so, where it can
            yield from (anew, ask.DetachRead(shared.used)) if shared.used is not None else (anew,)
            return
        yield from (*detached, anew) if shared.updates else (anew, *detached)
        yield ask.KeepGraph(raised_at)
        return
    if shared.weighed and shared.name:  # a weight is not there to be trained by what it weighs
        detach = ask.DetachUse(shared.weighed[0], shared.name, shared.weighed[1:])
        if not shared.entwined:
            yield detach
        elif shared.backward is not None:
            yield ask.KeepGraph(shared.backward, detach=detach)
    if shared.used is not None and is_for_others(shared):
        yield ask.DetachUse(shared.used, shared.name)
    if shared.updates and not shared.trained and shared.first_use is not None:
        yield ask.DetachUse(shared.first_use, shared.name)
    updated, backward = parting(shared.updates[-1] if shared.updates else None, refusal)
    if shared.trained and updated is not None and backward is not None:
        yield ask.ComputeAfterUpdate((*shared.calls, *shared.above), updated, backward)
    # A graph of parameters that have been moved since has gradients of what they were.
    if shared.backward is not None and not shared.trained:
        yield ask.KeepGraph(shared.backward)

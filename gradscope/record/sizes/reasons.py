"""What keeps a gradient from a leaf at one step: a cut in the forward pass, or a node that hands on
zero."""

import inspect
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CodeType

import torch

from gradscope.facts import Absence, Call, Location, NoGradient
from gradscope.ops.traits import Trait, has
from gradscope.record.grad_modes import guard_of
from gradscope.record.graph import reached
from gradscope.record.journal import to_call
from gradscope.record.sites import place_of, resolve
from gradscope.record.sizes.built import Built, last_layer
from gradscope.record.sizes.crossings import Crossing, Crossings, above
from gradscope.record.sizes.cuts import Cut
from gradscope.record.sizes.flow import Flow

_FLUSHED = 2.0**-10  # norm of a gradient that a slope below 1 may bring under float16's smallest
_BEYOND_SCALING = 2.0**-48  # rounding in float64, which no loss scale makes a signal
_REASONS = (
    (NoGradient.DEAD_RELU, Trait.RECTIFIES),
    (NoGradient.ZERO_OP, Trait.STEPS),
    (NoGradient.SAMPLED, Trait.DRAWS),
    (NoGradient.SATURATED, Trait.SATURATES | Trait.CLAMPS),
    (NoGradient.MASKED, Trait.MASKS),
    (NoGradient.OVERWRITTEN, Trait.WRITES),
    (NoGradient.MASKED, Trait.CHOOSES),
    (NoGradient.ZERO_WEIGHT, Trait.MULTIPLIES | Trait.DIVIDES),
    (NoGradient.ZERO_VALUE, Trait.FLAT_AT_ZERO),
)


# No gradient at all


def why_missing(step: int, leaf: torch.Tensor, flow: Flow, reached: int, held: bool) -> Absence:
    """`reached` are the cuts upstream of what is differentiated; `held`: by a module."""
    absence = Absence("", True, NoGradient.UNUSED if held else NoGradient.STALE, False, step)
    bit = flow.bit_of(leaf)
    cut = blocking(bit, flow, reached) or _read_out(bit, flow)
    if cut is None:
        if not bit and (early := place_of(flow.early.of(leaf))) is not None:
            return replace(absence, reason=NoGradient.LATE, location=early)
        if not bit or (held and not flow.is_used(bit)):
            return absence
        site = flow.last_use(bit)
        reason = NoGradient.DIFFERENTIATED if flow.differentiated & bit else NoGradient.UNREACHED
        return replace(absence, reason=reason, location=place_of(site))
    reason, call, location, related = explained(cut)
    return replace(absence, reason=reason, call=call, location=location, related=related)


def explained(cut: Cut) -> tuple[NoGradient, Call, Location | None, Location | None]:
    """The reason, the call, the place, and what else to point at: where a guard cuts, the place is
    the guard."""
    user = cut.note.user
    location, related = place_of(user), None
    reason = _reason_of(cut)
    if reason is NoGradient.NO_GRAD and (guard := guard_of(user)) is not None:
        location, related = guard, location
    return reason, to_call(cut.note), location, related


def cut_upstream(flow: Flow, tensor: torch.Tensor) -> Cut | None:
    """The last cut upstream of a value without a graph, else of all that were more than idle."""
    _, cuts = flow.of(tensor)
    for found in (list(flow.cuts_in(cuts)), [cut for cut in flow.cuts if cut.lost & ~cut.idle]):
        telling = [cut for cut in found if cut.reason is not NoGradient.INTEGER] or found
        if telling:
            return telling[-1]
    return None


def blocking(bit: int, flow: Flow, reached: int) -> Cut | None:
    """The cut that keeps a leaf from the loss: the last one upstream of the loss, else of all that
    were more than idle.

    The last, since autograd itself detaches what it saves, on memory that goes on being used; but
    of a term that trains nobody the one in it, since that term was there to train somebody.
    """
    idle = (one.cut for one in flow.constants.found_in(reached) if one.sum is not None)
    terms = {*map(_line, idle)} - {None}
    upstream = [cut for cut in flow.cuts_in(reached) if cut.lost & bit]
    # What the loss reads derivatives of, another pass may have cut: as an evaluation does.
    is_read = flow.differentiated & bit and flow.is_used(bit)
    anywhere = [cut for cut in flow.cuts if cut.lost & ~cut.idle & bit and not is_read]
    for cuts in (upstream, anywhere):
        telling = [cut for cut in cuts if cut.reason is not NoGradient.INTEGER] or cuts
        within = [cut for cut in telling if _line(cut) in terms] if terms else []
        if telling:
            return (within or telling)[-1]
    return None


def _line(cut: Cut) -> tuple[str, int] | None:
    place = place_of(cut.note.user)
    return (place.file, place.line) if place is not None else None


def _read_out(bit: int, flow: Flow) -> Cut | None:
    """Where a layer detached the leaf itself, to go on with its numbers; nothing else read it."""
    if flow.is_used(bit):
        return None
    found = (one for one in flow.cuts if one.idle & bit and one.owned)
    return next((one for one in found if one.reason is NoGradient.DETACH), None)


def straightened(bit: int, flow: Flow, reached: int) -> Cut | None:
    """The second derivative of straight lines that lies between a leaf and the loss."""
    found = (one for one in flow.cuts_in(reached) if one.reason is NoGradient.PIECEWISE_LINEAR)
    return next((one for one in found if one.lost & bit), None)


def _reason_of(cut: Cut) -> NoGradient:
    """What lies behind a cut that the user has not written so."""
    inner = {code for code, _ in cut.note.inner}
    if cut.reason is NoGradient.NO_GRAD and not inner.isdisjoint(_draws()):
        return NoGradient.SAMPLED
    return cut.reason


def _draws() -> set[CodeType]:
    """The code of every `sample` of a distribution, torch's and those of other packages."""
    kinds = reached([torch.distributions.Distribution], type.__subclasses__)
    methods = (vars(kind).get("sample", _draws) for kind in kinds)
    codes = (getattr(inspect.unwrap(method), "__code__", None) for method in methods)
    return {code for code in codes if code is not None}


# A gradient of zeros


def stepped(crossings: Crossings) -> Iterator[tuple[Crossing, list[torch.Tensor]]]:
    """The ops without a slope, as a rounding, that are all that reads what they round, with the
    leaves below: what is computed with their result, in a part of the loss, trains none of these.
    """
    found = crossings.found
    flat = [one for one in found if one.is_zero_into(0) and has(one.name, Trait.STEPS)]
    if not flat or not crossings.is_whole:
        return
    read = Counter(at for one in found for at in one.below.values())
    for one in flat:
        if not one.below or any(read[at] > 1 for at in one.below.values()):
            continue
        inside = reached(one.below.values(), lambda at: found[at].below.values())
        leaves = {leaf for at in inside for leaf in found[at].leaves.values()}
        yield one, [crossings.variables[at] for at in sorted(leaves)]


def why_zero(step: int, leaf: int, crossings: Crossings, built: Built) -> tuple[Absence, object]:
    """For the leaf at a position of `crossings.variables`; with what leaves its elements out where
    that is the same op at every step."""
    absence = Absence("", False, NoGradient.UNKNOWN, False, step)
    if _cancels(leaf, crossings.found):
        return replace(absence, reason=NoGradient.CANCELLED), None
    ends = [
        (position, edge, _zero_reason(crossings.found[position], edge))
        for position, edge in _ends(leaf, crossings.found)
    ]
    if not ends:
        return absence, None
    # Of several ways that end, one that ends at a factor of 0 may open when that is trained. One
    # that ends where a tensor meets itself never does, and nobody writes that on purpose.
    first = (NoGradient.ITSELF, NoGradient.ZERO_WEIGHT)
    preferred = (one for reason in first for one in ends if one[-1] is reason)
    position, edge, reason = next(preferred, ends[0])
    crossing = crossings.found[position]
    is_one_of_several = any(crossing.into)
    deciding = _decider(position, crossings.found)
    selection = deciding.selection if deciding.full else None
    if selection is not None and is_one_of_several:
        crossing, reason = deciding, NoGradient.LEFT_OUT
    call = crossing.call
    absence = replace(
        absence,
        reason=reason,
        call=call,
        node=crossing.name,
        location=call.location,
        grad_output=crossing.out,
        siblings=is_one_of_several and _prefers_another(deciding),
        dims=crossing.dims,
    )
    if reason is NoGradient.ZERO_WEIGHT:
        absence = replace(absence, nearer=_is_nearer(position, edge, crossings.found))
    if reason is NoGradient.DEAD_RELU:
        site = built.put_last(crossing.note)
        alike = (at for at, one in enumerate(crossings.found) if built.is_alike(one.note, site))
        # What a helper builds ends a layer at one place, and the model at another.
        if all(_is_last(at, crossings.found) for at in (position, *alike)):
            put_at = last_layer(*site[0]) if site else None
            absence = replace(absence, ends=True, put_at=put_at)
        elif _is_last(position, crossings.found) and len(site) > 1:
            absence = replace(absence, ends=True, built_at=resolve(*site[1]))
    return absence, selection


def _ends(leaf: int, crossings: Sequence[Crossing]) -> Iterator[tuple[int, int]]:
    """The crossings above a leaf that took a gradient and passed on exactly zero, each with the
    input; the nearest first."""
    takers = defaultdict[int, list[tuple[int, int]]](list)
    waiting: list[tuple[int, int]] = []
    for position, crossing in enumerate(crossings):
        for edge, below in crossing.below.items():
            takers[below].append((position, edge))
        waiting += [(position, edge) for edge, taken in crossing.leaves.items() if taken == leaf]
    seen = set()
    for position, edge in waiting:
        crossing = crossings[position]
        if crossing.out is None or position in seen:
            continue
        if crossing.is_zero_into(edge) or (crossing.flat is NoGradient.ITSELF and crossing.out):
            yield position, edge
            continue
        seen.add(position)
        waiting += takers[position]


def _decider(position: int, crossings: Sequence[Crossing]) -> Crossing:
    """The crossing that made the zeros which another one at most joins, adds up or hands on."""
    while _hands_on(crossings[position]):
        takers = [one for one in above(position, crossings) if crossings[one].out is not None]
        if len(takers) != 1:
            break
        (position,) = takers
    return crossings[position]


def _is_last(position: int, crossings: Sequence[Crossing]) -> bool:
    """Whether nothing that is trained is read between a crossing and the loss."""
    later = {position}
    # Each stands before those below it.
    for place in range(position - 1, -1, -1):
        one = crossings[place]
        if not later.isdisjoint(one.below.values()):
            if any(_is_leaf(one, edge, crossings) for edge in (*one.below, *one.leaves)):
                return False
            later.add(place)
    return True


def _is_leaf(crossing: Crossing, edge: int, crossings: Sequence[Crossing]) -> bool:
    """Whether an input is a leaf as it is, or a view or a copy of one."""
    while edge in crossing.below:
        crossing, edge = crossings[crossing.below[edge]], 0
        is_view = crossing.note is not None and crossing.note.info.view
        if not (is_view or has(crossing.name, Trait.COPIES)):
            return False
    return edge in crossing.leaves


def _is_nearer(position: int, edge: int, crossings: Sequence[Crossing]) -> bool:
    """Whether what an input of a product is made of is nearer to the program's input than the other
    factor: that factor is a leaf, and this is none; of two leaves, it meets the input first."""
    product = crossings[position]
    factors = [one for one in (*product.below, *product.leaves) if product.is_zero_into(one)]
    if not all(_is_leaf(product, one, crossings) for one in factors):
        return not _is_leaf(product, edge, crossings)
    return (edge == max(factors)) is _reads_last(position, crossings)


def _reads_last(position: int, crossings: Sequence[Crossing]) -> bool:
    """Whether a product of two weights meets the input with the second of them: `x @ (B @ A).T`."""
    is_turned = False
    for place in range(position - 1, -1, -1):
        one = crossings[place]
        edges = [edge for edge, below in one.below.items() if below == position]
        if not edges:
            continue
        if has(one.name, Trait.MULTIPLIES) and one.name != "MulBackward0":
            is_right = edges[0] == len(one.into) - 1  # of those that require no gradient, too
            return is_turned is is_right or one.name.startswith("Convolution")
        is_turned ^= one.name.startswith(("TBackward", "Transpose", "Permute"))
        position = place
    return True


def _hands_on(crossing: Crossing) -> bool:
    if has(crossing.name, Trait.JOINS | Trait.ADDS | Trait.SUMS | Trait.COPIES):
        return True
    note = crossing.note
    return note is not None and note.info.view and not has(crossing.name, Trait.CHOOSES)


def _prefers_another(crossing: Crossing) -> bool:
    """Whether it takes the larger or the smaller of several values, and no flat part is met."""
    is_flat = has(crossing.name, Trait.RECTIFIES | Trait.CLAMPS | Trait.CLEANS)
    return has(crossing.name, Trait.BY_VALUE) and not is_flat


def _cancels(leaf: int, crossings: Sequence[Crossing]) -> bool:
    """Whether what comes back to a leaf is a sum whose terms are not 0: the gradients of several
    uses, or of the elements that it was added to. As its derivative that is right, and 0 by chance
    or for good: both sides of a difference get the same offset."""
    return any(
        crossing.into[edge]
        or has(crossing.name, Trait.ADDS)
        or (edge == 0 and has(crossing.name, Trait.ADDS_FIRST))
        for crossing in crossings
        for edge, taken in crossing.leaves.items()
        if taken == leaf and edge < len(crossing.into) and crossing.out
    )


def _zero_reason(crossing: Crossing, edge: int) -> NoGradient:
    named = (reason for reason, kinds in _REASONS if has(crossing.name, kinds))
    is_half = edge < len(crossing.half) and crossing.half[edge]
    if is_half and _BEYOND_SCALING < (crossing.out or 0.0) < _FLUSHED:
        return NoGradient.UNDERFLOW
    return crossing.flat or next(named, NoGradient.UNKNOWN)

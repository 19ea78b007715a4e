"""Why a leaf has no gradient, or one that is exactly zero."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from gradscope.facts import Absence, Call, Leaf, Location
from gradscope.record.journal import module_path
from gradscope.record.sites import Site, resolve
from gradscope.record.sizes.crossings import Crossings
from gradscope.record.sizes.flow import Cut, Flow
from gradscope.record.sizes.growth import Crossing
from gradscope.record.sizes.layers import Layers, definition, guarding_with, packaged, siblings

_RECTIFIERS = ("Relu", "Threshold", "Hardtanh", "Relu6", "Hardswish")
_SATURATE = ("Sigmoid", "Tanh", "Softmax", "Erf", "Gelu", "Silu", "Softplus", "Elu", "Clamp")
_DRAWS = ("Normal", "Bernoulli", "Poisson", "Binomial", "Multinomial", "Cauchy", "Exponential")
_STEPS = ("Sign", "Round", "Floor", "Ceil", "Trunc", "Heaviside", "FloorDivide", "Rint")
_WRITES = ("Zero", "Fill", "CopySlices", "CopyBackwards", "MaskedFill", "IndexPut", "IndexFill")
_PRODUCTS = ("Mul", "Mm", "Addmm", "Bmm", "Baddbmm", "Convolution", "Linear", "Div", "Dot", "Mv")
_CHOICES = (
    "Where",
    "Index",
    "Slice",
    "Select",
    "Gather",
    "Max",
    "Min",
    "Narrow",
    "Split",
    "Embedding",
)

_FLUSHED = 2.0**-10  # norm of a gradient that a slope below 1 may bring under float16's smallest
_REASONS = (
    ("dead-relu", _RECTIFIERS),
    ("zero-op", _STEPS),
    ("sampled", _DRAWS),
    ("saturated", _SATURATE),
    ("overwritten", _WRITES),
    ("masked", _CHOICES),
    ("zero-weight", _PRODUCTS),
)


class Absences:
    """Collects reasons at the inspected steps; says in the end which leaves stayed without."""

    def __init__(self, layers: Layers) -> None:
        self.layers = layers
        self._missing: dict[int, Absence] = {}
        self._zero: dict[int, Absence] = {}
        self._looked = False

    def look(
        self,
        step: int,
        flow: Flow,
        roots: Sequence[torch.Tensor],
        crossings: Crossings | None,
        zero: set[int],
        trained: Mapping[int, torch.Tensor],
    ) -> None:
        """After the backward of an inspected step. `zero` are leaves by id."""
        self._looked = True
        reached = [flow.of(root) for root in roots]
        cuts = 0
        for _, upstream in reached:
            cuts |= upstream
        for leaf in (*self.layers.parameters.values(), *trained.values()):
            if leaf.requires_grad and leaf.grad is None:
                self._missing[id(leaf)] = self._why_missing(step, leaf, flow, cuts)
        if crossings is None:
            return
        for position, leaf in enumerate(crossings.variables):
            if id(leaf) in zero:
                self._zero[id(leaf)] = self._why_zero(step, position, crossings, flow)

    def _why_missing(self, step: int, leaf: torch.Tensor, flow: Flow, reached: int) -> Absence:
        bit = flow.bit_of(leaf)
        if not bit:
            reason = "unused" if id(leaf) in self.layers.parameters else "stale"
            return Absence("", True, reason, False, step)
        cut = _blocking(bit, flow, reached)
        if cut is None:
            site = flow.last_use(bit)
            location = resolve(*site[0]) if site else None
            reason = "differentiated" if flow.differentiated & bit else "unreached"
            return Absence("", True, reason, False, step, location=location)
        location = resolve(*cut.user[0]) if cut.user else None
        related = None
        reason = _reason_of(cut)
        if reason == "no_grad":
            guard = _guard(cut.user)
            if guard is not None:
                location, related = guard, location
        return Absence(
            leaf="",
            missing=True,
            reason=reason,
            trained=False,
            step=step,
            call=_call(cut.op, "", cut.user, cut.inner, None),
            location=location,
            related=related,
        )

    def _why_zero(self, step: int, leaf: int, crossings: Crossings, flow: Flow) -> Absence:
        found = _where_it_ends(leaf, crossings.found)
        if found is None:
            return Absence("", False, "unknown", False, step)
        position, edge = found
        crossing = crossings.found[position]
        call = call_of(crossing, flow)
        return Absence(
            leaf="",
            missing=False,
            reason=_reason(crossing, edge),
            trained=False,
            step=step,
            call=call,
            node=_short(crossing.name),
            location=call.location,
            grad_output=crossing.out,
        )

    def facts(
        self,
        leaves: Sequence[Leaf],
        trained: dict[int, torch.Tensor],
        names: dict[int, str],
        given: set[int],
    ) -> tuple[Absence, ...]:
        """The leaves that never had a gradient, or never one other than zero. `given` had one
        that somebody else put there."""
        if not self._looked:
            return ()
        by_name = {leaf.name: leaf for leaf in leaves}
        found = []
        candidates = {**self.layers.parameters, **trained}
        gone = {
            key
            for key, leaf in candidates.items()
            if leaf.requires_grad
            and key not in given
            and not _known(by_name.get(self._name(key, names)))
        }
        spare = self._spare(gone, trained)
        for key in candidates:
            if key not in gone or key in spare:
                continue
            absence = self._missing.get(key)
            if absence is None and key in trained:
                absence = Absence("", True, "stale", True, 0)
            if absence is not None and candidates[key].numel():
                name = self._name(key, names)
                found.append(self._finish(absence, key, name, key in trained, gone))
        found += self._unregistered(by_name)
        for leaf in leaves:
            if leaf.known and not any(leaf.known):
                key = next((key for key, name in self._all_names(names) if name == leaf.name), -1)
                absence = self._zero.get(key) or Absence("", False, "unknown", False, 0)
                found.append(self._finish(absence, key, leaf.name, leaf.trained, set()))
        return tuple(found)

    def _unregistered(self, leaves: Mapping[str, Leaf]) -> Iterator[Absence]:
        """What a module holds in a place that its `parameters()` skips."""
        for owner in self.layers.unregistered.values():
            leaf = leaves.get(owner.name)
            # A tensor that is there for one pass alone is a batch whose gradient is asked for.
            if leaf is not None and len(leaf.known) > 1 and any(leaf.known) and not leaf.trained:
                place, _ = definition(owner)
                yield Absence(leaf.name, False, "unregistered", False, 0, location=place)

    def _spare(self, gone: set[int], trained: dict[int, torch.Tensor]) -> set[int]:
        """The parameters of modules of which nothing was read, and that nobody trains: the layer
        that TransformerEncoder copies, an older model."""
        roots = {key: id(owner.path[0][1]) for key, owner in self.layers.owners.items()}
        alive = {
            root
            for key, root in roots.items()
            if key not in gone or key in trained or not self._is_unread(key)
        }
        return {key for key, root in roots.items() if root not in alive}

    def _is_unread(self, key: int) -> bool:
        absence = self._missing.get(key)
        if absence is None:
            return False
        inner = absence.call.inner if absence.call is not None else None
        is_copied = inner is not None and inner.function.endswith("__deepcopy__")
        return absence.reason == "unused" or is_copied

    def _name(self, key: int, names: dict[int, str]) -> str:
        owner = self.layers.owners.get(key)
        return owner.name if owner is not None else names.get(key, "")

    def _all_names(self, names: dict[int, str]) -> list[tuple[int, str]]:
        return [(key, self._name(key, names)) for key in {*self._zero, *names}]

    def _finish(
        self, absence: Absence, key: int, name: str, trained: bool, gone: set[int]
    ) -> Absence:
        location, related, beside, foreign = absence.location, absence.related, False, False
        owner = None
        if key in self.layers.parameters:
            owner = self.layers.unused(self.layers.parameters[key], gone)
        if owner is not None:
            beside, foreign = siblings(owner), packaged(owner)
            if absence.reason == "unused":
                location, related = definition(owner)
        return Absence(
            leaf=name,
            missing=absence.missing,
            reason=absence.reason,
            trained=trained,
            step=absence.step,
            call=absence.call,
            node=absence.node,
            location=location,
            related=related,
            grad_output=absence.grad_output,
            siblings=beside,
            packaged=foreign,
        )


def call_of(crossing: Crossing, flow: Flow | None) -> Call:
    """The forward call that made a node."""
    noted = flow.calls.get(crossing.seq) if flow is not None else None
    if noted is None:
        return Call(
            op=_short(crossing.name).removesuffix("Backward0").lower(),
            node=_short(crossing.name),
        )
    return _call(
        noted.op, noted.overload, noted.user, noted.inner, module_path(noted.module), crossing
    )


def _known(leaf: Leaf | None) -> bool:
    return leaf is not None and bool(leaf.known)


def _blocking(bit: int, flow: Flow, reached: int) -> Cut | None:
    """The cut that keeps a leaf from the loss: the last one upstream of the loss, else of all.

    The last, since autograd itself detaches what it saves, on memory that goes on being used.
    """
    upstream = [cut for cut in flow.cuts_in(reached) if cut.lost & bit]
    anywhere = [cut for cut in flow.cuts if cut.lost & bit]
    for cuts in (upstream, anywhere):
        telling = [cut for cut in cuts if cut.reason != "integer"] or cuts
        if telling:
            return telling[-1]
    return None


def _reason_of(cut: Cut) -> str:
    """What lies behind a `no_grad` that the user has not written."""
    if cut.reason != "no_grad":
        return cut.reason
    if any(code.co_name == "sample" for code, _ in cut.inner):
        return "sampled"
    in_function = any(
        code.co_name == "forward" and code.co_varnames[:1] != ("self",) for code, _ in cut.user
    )
    return "function" if in_function else "no_grad"


def _guard(user: Site) -> Location | None:
    for code, lasti in user:
        found = guarding_with(code, resolve(code, lasti).line)
        if found is not None:
            return found
    return None


def _where_it_ends(leaf: int, crossings: Sequence[Crossing]) -> tuple[int, int] | None:
    """The crossing above a leaf that took a gradient and passed on exactly zero, and the input."""
    above: dict[int, list[tuple[int, int]]] = {}
    starts: list[tuple[int, int]] = []
    for position, crossing in enumerate(crossings):
        for edge, below in crossing.below.items():
            above.setdefault(below, []).append((position, edge))
        starts += [(position, edge) for edge, taken in crossing.leaves.items() if taken == leaf]
    waiting, seen = starts, set()
    while waiting:
        position, edge = waiting.pop(0)
        crossing = crossings[position]
        if crossing.out is None or position in seen:
            continue
        if crossing.out > 0 and edge < len(crossing.into) and not crossing.into[edge]:
            return position, edge
        seen.add(position)
        waiting += above.get(position, [])
    return None


def _reason(crossing: Crossing, edge: int) -> str:
    name = _short(crossing.name)
    named = next((reason for reason, stems in _REASONS if name.startswith(stems)), None)
    is_half = edge < len(crossing.half) and crossing.half[edge]
    if is_half and (named is None or (crossing.out or 0.0) < _FLUSHED):
        return "underflow"
    return named or "unknown"


def _short(name: str) -> str:
    return name.removeprefix("torch::autograd::")


def _call(
    op: str,
    overload: str,
    user: Site,
    inner: Site,
    module: str | None,
    crossing: Crossing | None = None,
) -> Call:
    frames = tuple(
        resolve(code, lasti, module if depth == 0 else None)
        for depth, (code, lasti) in enumerate(user)
    )
    return Call(
        op=op,
        overload=overload,
        location=frames[0] if frames else None,
        inner=resolve(*inner[0]) if inner else None,
        frames=frames,
        node=_short(crossing.name) if crossing is not None else None,
        seq=crossing.seq if crossing is not None else None,
    )

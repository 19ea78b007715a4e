"""Which steps are looked at in full, and what is put around the program to do so."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

import torch

from gradscope.dataclass import dataclass
from gradscope.facts import Activation
from gradscope.record.context import RunContext
from gradscope.record.dispatch import Dispatch
from gradscope.record.graph import Nodes, leaf_ids
from gradscope.record.schedule import is_chosen
from gradscope.record.sites import Site
from gradscope.record.sizes.crossings import Crossing, Crossings
from gradscope.record.sizes.flow import Flow
from gradscope.record.sizes.readouts import EarlyReads
from gradscope.record.tracing import is_profiling


@dataclass(frozen=True, slots=True)
class Inspected:
    """What was measured of the graph of one backward pass, which `frame` has asked for: at its
    nodes, and of the results of the calls, by sequence number."""

    step: int
    crossings: Crossings
    activations: Mapping[int, Activation]
    frame: FrameType

    @property
    def nodes(self) -> Sequence[Crossing]:
        """Each before those below it."""
        return self.crossings.found


_MOST_GROWN = 16  # graphs looked at because they had grown
_AFTER = 16  # steps: so many are watched at most before somebody looks (see `between_looks`)
_GROWN = 1.5  # times the largest graph so far
_sequence_nr = torch._C._autograd._get_sequence_nr


class Inspection:
    """Watches the forward and hooks the backward of the first steps, then of ever fewer, and the
    backward of those whose graph has grown. `asked` tells of one more step, that somebody asks for,
    or None; of those right after it the forward is watched, in case that backward raises."""

    def __init__(self, context: RunContext) -> None:
        self.asked: Callable[[], int | None] = lambda: None
        self._context = context
        self.steps: list[int] = []
        self.flow: Flow | None = None
        self.refused: Flow | None = None  # of the forward whose backward raised
        self.reached: set[int] = set()  # the leaves, by id, of the graphs whose backward raised
        self._left: Flow | None = None  # the last forward that was watched
        self._in_case = False  # the present one is, in case that its backward raises
        self._largest = 0  # nodes made for the largest graph that was inspected
        self.made = self._made_until = 0  # nodes of the last graph; of all until then
        self._dispatch = Dispatch(context)
        self._early = EarlyReads()

    def begin(self, dispatch: Dispatch) -> None:
        """By what ops are seen."""
        self._dispatch = dispatch
        self._made_until = _sequence_nr()
        self.watch_forward(0)

    def pause(self, paused: bool) -> None:
        if self.flow is not None:
            self.flow.paused = paused

    def watch_forward(self, passes: int, *, wanted: bool = False) -> None:
        """Watch the coming forward, after so many passes, if it is to be inspected."""
        asked = self.asked() or 0  # which is looked at in any case
        is_due = wanted or is_chosen(passes) or passes == asked
        in_case = 0 < asked < passes <= asked + _AFTER
        if self.flow is not None or not (is_due or in_case) or is_profiling():
            return
        self._in_case = not is_due
        self.flow = Flow(self._context, self._early)
        self._dispatch.follow(self.flow)

    def leave_forward(self) -> Flow | None:
        flow, self.flow, self.refused = self.flow, None, None
        if flow is not None:
            self._dispatch.follow(None)
        self._left = flow
        return None if self._in_case else flow

    def zero_factors(self) -> Mapping[int | None, Site]:
        """Where factors became 0, by the numbers of their products, in that last forward."""
        return self._left.zeros.factors if self._left is not None else {}

    def note_refused(self, above: Nodes) -> None:
        """The backward of this graph raised: the next one is inspected in its place."""
        self.refused = self._left
        self.reached |= leaf_ids(above)
        self.look_anew()
        if self._left is not None:
            self.watch_forward(0)

    def look_anew(self) -> None:
        """What was inspected so far was not training: the next backward is, whatever its graph."""
        self._largest = 0

    @property
    def most_made(self) -> float:
        """Nodes that a graph has at most which is not to be looked at for its size."""
        is_wanted = not self._largest or len(self.steps) < _MOST_GROWN
        return _GROWN * self._largest if is_wanted else math.inf

    def note_coasted(self, made_until: int) -> None:
        """Some passes went by, the last one when the sequence counter was there."""
        self._made_until = made_until

    def look_at_models(self) -> None:
        """The next pass may be one of a model that is new, whose leaves are not known yet."""
        if len(self.steps) < _MOST_GROWN:
            self._largest = 0

    def graph_has_grown(self) -> bool:
        """Asked once before each pass: whether its graph is to be looked at for that."""
        now = _sequence_nr()
        self.made, self._made_until = now - self._made_until, now
        return self.made > self.most_made

    def hook_backward(
        self, step: int, roots: Sequence[torch.Tensor], flow: Flow | None, frame: FrameType
    ) -> Crossings:
        """Of a pass that is inspected, which `frame` asks for."""
        self._largest = max(self._largest, self.made)
        if step not in self.steps[-1:]:  # of one that raised
            self.steps.append(step)
        self._context.names.look(frame)
        selections = flow.selections if flow is not None else None
        crossings = Crossings([root.grad_fn for root in roots], self._context, selections)
        self._context.seen.hold(roots, crossings.nodes)
        return crossings

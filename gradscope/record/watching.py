"""What is asked of a step that is only watched: whether what it trains with is finite, and whether
its gradient is absurd beside those before it."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch

from gradscope.facts import Ending, Kind, Unexamined
from gradscope.record import graph
from gradscope.record.context import RunContext
from gradscope.record.depth import Depth
from gradscope.record.events.symptoms import Symptoms
from gradscope.record.finite import holds_bad, item, quick_sum
from gradscope.record.held import any_alive
from gradscope.record.optimizers import Work, parameters_of
from gradscope.record.passes import BackwardPass
from gradscope.record.sizes.clearing import Versions, changed_since, versions_of
from gradscope.record.sizes.gradients import Sizes
from gradscope.record.tracing import unobserved

_EVERY = 16  # steps from one look at the parameters to the next
_LONGEST = 8  # passes of one update in full: of many, as LBFGS asks for, the later ones are alike
_sequence_nr = torch._C._autograd._get_sequence_nr
_SMALL = 2**14  # elements: copying them costs less than an op for each of them


class Watching:
    """Asks it, chooses the `depth` of the coming step, and keeps what it then did not see.

    Called between ops.
    """

    def __init__(self, context: RunContext, symptoms: Symptoms, depth: Depth, sizes: Sizes) -> None:
        self.context = context
        self.symptoms = symptoms
        self.depth = depth
        self.sizes = sizes
        self.leaves = sizes.leaves.alive  # that the program is known to have
        self.alone = False  # in this process
        # By optimizer: what the steps below it have left in the parameters was finite.
        self._clean: dict[object, int] = {}
        self._unexamined: Unexamined | None = None
        self._had_optimizer: bool | None = None
        self._updated = 0  # the step that began with the last update
        self._before: Versions = {}
        self._reached, self._made_until = (-1, -1), 0  # nodes and leaves of the last graph
        self.surges = Surges()

    # Between two steps

    def is_clean(self) -> bool:
        """Whether nothing bad is left of the steps so far, gradients and buffers included: what a
        later step is then found to have, came after them."""
        if self.symptoms.confirmed or self.symptoms.are_waiting:
            return False
        left = [one for leaf in self.leaves() for one in (leaf, leaf.grad)]
        if not all_finite([*left, *self._buffers()]):
            return False
        self._clean = dict.fromkeys(self._clean or (None,), self.context.step)
        return True

    def look_in_full_from(self, step: int | None) -> None:
        self.depth.full_from = step
        if step is not None and step <= self.context.step:
            self.depth.look_in_full(self.context.step)

    def begin_backward(self, loss: float | None) -> None:
        """What a program does between an update and the next backward, as evaluating itself, is
        seen with the step before; where the loss it then has is bad, so is the rest of that step.
        Without an optimizer an update by hand may follow a backward."""
        is_bad = loss is not None and loss - loss != 0.0
        if not self.depth.is_full or self.context.bad_in_step or is_bad:
            return
        is_one_of_many = self.context.step - self._updated >= _LONGEST
        updates = self.context.updates
        adds_up = updates is not None or self._has_optimizer()
        if is_one_of_many and adds_up and self.depth.full_from is None:
            self._choose(None, may_watch=True)
        elif updates is not None or not adds_up:
            self._choose(updates, may_watch=True)

    def _has_optimizer(self) -> bool:
        """One that was made before anybody looked, and has not stepped yet."""
        if self._had_optimizer is None:
            self._had_optimizer = any_alive(torch.optim.Optimizer)
        return self._had_optimizer

    def end_backward(self) -> None:
        if self.context.updates is None:
            self.check_leaves()
            self._choose(None)

    def end_update(self, work: Work) -> None:
        if work.over:
            optimizer = work.optimizer
            self._clean.pop(None, None)  # of the passes before the first update
            self._check(id(optimizer), lambda: parameters_of(optimizer))
            self._updated = self.context.step
            self._choose(self.context.updates)

    def _choose(self, updates: int | None, *, may_watch: bool = False) -> None:
        step = self.context.step
        if self.depth.is_due(step, updates, self.sizes) or self.symptoms.are_waiting:
            if not self.depth.is_full:
                self._look_at_what_is_left()
            self.depth.look_in_full(step)
        elif may_watch:
            self.depth.watch()

    # In a step

    def begin_calmly(self) -> None:
        """A pass that is one of many (see `Observation`) is about to run."""
        if self.context.updates is None:
            self._before = versions_of(self.leaves())

    def gives_bad_gradients(self, root: torch.Tensor) -> bool:
        """Whether that pass, of this root, has. The graph is walked where it may have reached other
        leaves than the last one that was: as many nodes were made, and known leaves have got
        gradients."""
        if self.context.updates is not None:
            self.surges.sample(self.context.step, self.leaves)
            return False
        leaves = [leaf for leaf, _ in changed_since(self._before, self.leaves())]
        made, self._made_until = _sequence_nr() - self._made_until, _sequence_nr()
        if (made, len(leaves)) != self._reached:
            above = graph.consumers([root.grad_fn] if root.grad_fn is not None else [])
            self.context.seen.hold((root,), list(above))
            leaves = graph.leaves(above)
            self._reached = made, len(leaves)
        if len(leaves) == 1:
            self.surges.follow(leaves[0])
        known = self.surges.sample(self.context.step, self.leaves)
        if len(leaves) != 1 or leaves[0].grad is not known:
            with unobserved():
                self.context.bad_in_step = not all_finite(leaf.grad for leaf in leaves)
        return self.context.bad_in_step

    def look_at_gradients(self, one: BackwardPass, handed_out: Any) -> None:
        """Of a backward pass: what it has handed out, else what the leaves have. What optimizers
        take is looked at when they do."""
        self.surges.sample(self.context.step, self.leaves)
        if self.depth.is_full or (self.context.updates is not None and not handed_out):
            return
        grads = handed_out
        if not handed_out:
            self.context.seen.hold(one.roots, list(one.above))
            grads = [leaf.grad for leaf in graph.leaves(one.above)]
        self.context.bad_in_step |= not all_finite(grads)

    def check_leaves(self) -> None:
        """In a program without an optimizer."""
        self._check(None, self.leaves)

    def _check(self, key: object, held: Callable[[], Iterable[torch.Tensor]]) -> None:
        """Now and then those of one optimizer, since what is NaN stays so; with them the buffers,
        which no optimizer holds and a bad value may come from. And at each step in full that
        steps may follow which are only watched."""
        step = max(self.context.step - 1, 0)
        if self.depth.is_full:
            if self.depth.full_from is not None and step >= self.depth.full_from:
                return
        elif step < self._clean.get(key, 0) + _EVERY - 1:
            return
        with unobserved():
            found = list(held())
            if not all_finite(found):
                self._note_bad(found)
            elif all_finite(self._buffers()):
                self._clean[key] = step + 1

    def _look_at_what_is_left(self) -> None:
        """Of steps that were only watched, where one in full follows: what is bad in all that it
        reads would look as if it had come from outside."""
        with unobserved():
            self._note_bad(self.leaves())

    def _note_bad(self, held: list[torch.Tensor]) -> None:
        if not (self.depth.is_full or all_finite(held)):
            self.symptoms.note_bad_parameters(held)
            self.symptoms.on_confirmed()

    def _buffers(self) -> Iterable[torch.Tensor]:
        modules = self.context.names.running.values()
        return (buffer for module in modules for buffer in module.buffers())

    def finish(self) -> None:
        """The program is over: its last steps may have left something bad."""
        self.surges.settle()
        if self._unexamined is None and not self.depth.is_full:
            found = list(self.leaves())
            if not all_finite(found):
                self.symptoms.note_bad_parameters(found)
            elif self.alone and not (self.context.is_torn and _has_peers()):
                self.symptoms.note_left_gradients()
            if self.symptoms.confirmed:
                self.note_confirmed()

    # What was not seen

    def note_confirmed(self) -> None:
        """There are symptoms. From now on, if the program goes on, every step is worth a look."""
        if self._unexamined is None and not self._are_examined():
            first = min(self.symptoms.confirmed, key=lambda symptom: symptom.step)
            self._unexamined = Unexamined(first.step, self._since, first.subject)
            self.depth.full_from = self.context.step

    @property
    def _since(self) -> int:
        return min(self._clean.values(), default=0)

    def _are_examined(self) -> bool:
        """Whether what led to the symptoms was seen: of what came in from outside of the step, that
        it did so from the program's start on."""
        if not self.depth.is_full:
            return False
        if not self.depth.full_since or self.depth.full_from is not None:
            return True
        events = [symptom.event for symptom in self.symptoms.confirmed]
        ways = self.context.journal.ancestors(*(event for event in events if event is not None))
        return None not in events and all(raw.fact.kind is not Kind.SOURCE for raw in ways)

    def unexamined(self, ending: Ending) -> Unexamined | None:
        """Of a program that ended like this."""
        if self._unexamined is None and ending.gave_up and not self.depth.is_full:
            return Unexamined(self.context.step, self._since, None)
        return self._unexamined


def _has_peers() -> bool:
    """Whether collectives may be under way, which have not filled all of their memory yet."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized()


def all_finite(tensors: Iterable[Any]) -> bool:
    """Whether none of them holds NaN or inf: by one fused pass over all, and exactly where that
    says no, since sums may leave the range of the dtype. What is no tensor is passed over."""
    small: list[torch.Tensor] = []
    large: list[torch.Tensor] = []
    others: list[torch.Tensor] = []
    for one in tensors:
        if type(one) is torch.nn.Parameter or type(one) is torch.Tensor:
            (small if one.numel() <= _SMALL else large).append(one)
        elif isinstance(one, torch.Tensor):
            others.append(one)
    try:
        total = _total(small, large)
        is_finite = total - total == 0.0
    except (RuntimeError, NotImplementedError, TypeError):
        is_finite = False  # sparse, integers, float8, several devices
    return (is_finite or not any(map(holds_bad, (*small, *large)))) and not any(
        map(holds_bad, others)
    )


def _total(small: list[torch.Tensor], large: list[torch.Tensor]) -> float:
    """A number that is finite only where all are. Small ones are added up as one."""
    sums = [norm.sum() for norm in torch._foreach_norm(large, 2.0)] if large else []
    if small:
        flat = torch._C._nn.flatten_dense_tensors(small) if len(small) > 1 else small[0]
        sums.append(quick_sum(flat))
    return float(sum(map(item, sums)))


_SURGE = 1e4  # times the largest so far: batches differ by a hundred at most
_FEWEST = 2  # steps before, that are told by
_SAMPLED = 2**12  # elements: their product with themselves costs a microsecond


class Surges:
    """Samples one small leaf a step: the last one on the way back, through which most of the graph
    is differentiated. Its size is read one step later, so that no device is waited for."""

    def __init__(self) -> None:
        self.first: int | None = None  # the first step that was
        self._leaf: torch.Tensor | None = None
        self._waiting: tuple[int, torch.Tensor] | None = None
        self._largest = 0.0
        self._known = 0

    def sample(
        self, step: int, leaves: Callable[[], Iterable[torch.Tensor]]
    ) -> torch.Tensor | None:
        """After a backward, unobserved; `leaves` gives those of the program, in the order of their
        gradients. The gradient that was looked at, where it is known to be finite."""
        self.settle()
        if self.first is not None:
            return None
        grad = self._leaf.grad if self._leaf is not None else None
        if grad is None:
            grad = self._choose(leaves())
        if grad is None:
            return None
        plain = grad.detach() if grad.requires_grad else grad
        flat = plain if plain.dim() == 1 else plain.reshape(-1)
        self._waiting = step, torch.dot(flat, flat)
        return grad if grad.is_cpu and math.isfinite(self.settle()) else None

    def follow(self, leaf: torch.Tensor) -> None:
        """No other leaf has a new gradient."""
        if leaf is not self._leaf:
            self._choose((leaf,))

    def _choose(self, leaves: Iterable[torch.Tensor]) -> torch.Tensor | None:
        graded = [leaf for leaf in leaves if leaf.numel() <= _SAMPLED and _is_plain(leaf.grad)]
        self._leaf = graded[-1] if graded else None
        self._largest, self._known = 0.0, 0
        return self._leaf.grad if self._leaf is not None else None

    def settle(self) -> float:
        """Read what was sampled last: the size of that gradient."""
        if self._waiting is None:
            return math.nan
        step, square = self._waiting
        self._waiting = None
        size = math.sqrt(max(item(square), 0.0))
        if self._known >= _FEWEST and 0.0 < _SURGE * self._largest < size < math.inf:
            self.first = step
        self._largest, self._known = max(self._largest, size), self._known + 1
        return size


def _is_plain(grad: torch.Tensor | None) -> bool:
    if type(grad) is not torch.Tensor or grad.layout is not torch.strided or grad.is_meta:
        return False
    return grad.dtype in (torch.float32, torch.float64)

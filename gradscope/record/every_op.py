"""The reading that looks at each op: births, propagations and kills of bad values, what they harm,
and what else only ops show."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from gradscope.facts import Ancestor, Approach, Headroom, Kind, Setting, Trace
from gradscope.record.array_faults import array_faults
from gradscope.record.context import RunContext
from gradscope.record.data import Loaders
from gradscope.record.depth import Depth
from gradscope.record.events.masks import Hidden
from gradscope.record.events.received import follow_objects
from gradscope.record.events.symptoms import Symptoms
from gradscope.record.finite import has_nan, plain
from gradscope.record.given_names import GivenNames
from gradscope.record.held import scopes_of
from gradscope.record.identical import LoneValues, Units
from gradscope.record.mode import RecordingMode
from gradscope.record.optimizers import Work, bad_settings
from gradscope.record.passes import BackwardPass, Engine
from gradscope.record.repeats import Repeats
from gradscope.record.saturated import Saturation
from gradscope.record.scores import GivenScores
from gradscope.record.sites import OURS, kind_of, user_frames
from gradscope.record.sizes.gradients import Sizes
from gradscope.record.stand_ins import is_elsewhere, stand_in, standing, without_us
from gradscope.record.tracing import computes_values, unobserved
from gradscope.record.watching import Watching

_SETTINGS_KEPT = 64
_CAPTURED = "the ops of CUDA graphs were not observed, neither captured nor replayed"


class EveryOp:
    """Looks at the ops of the steps that `depth` chooses, and watches the others. `sizes` is told
    of what it asks about single ops, `on_confirmed` is called once there are symptoms. Told of
    passes and updates unobserved."""

    def __init__(
        self,
        context: RunContext,
        sizes: Sizes,
        on_confirmed: Callable[[], None],
        full_from: int | None,
        *,
        hazards: bool,
    ) -> None:
        self.context = context
        self.sizes = sizes
        self._on_confirmed = on_confirmed
        self.symptoms = Symptoms(context, self._confirmed)
        self.hidden = Hidden(context, sizes.inspection.zero_factors)
        self.scores = GivenScores(context)
        self.saturation = Saturation(context)
        self.units = Units(context)
        self.lone = LoneValues(context)
        self.repeats = Repeats(context)
        self.given_names = GivenNames(context)
        self.mode = RecordingMode(context, sizes, self.symptoms.note_bad_write, hazards=hazards)
        self.depth = Depth(self.mode, full_from)
        self.watching = Watching(context, self.symptoms, self.depth, sizes)
        sizes.inspection.asked = lambda: self.depth.full_from
        sizes.usages.on_bad_unscaled = self.bad_unscaled
        sizes.modes.on_evaluation = self.watching.begin_evaluation
        self.settings: list[Setting] = []
        self._device = torch.device("cpu")  # of the last loss
        self._modules: list[Mapping[str, Any]] = []  # the variables of those that asked last

    def begin(self, stack: ExitStack, thread: int) -> None:
        """Until `stack` ends."""
        Loaders(self.context, self.sees_ops).install(stack)
        hooks = torch.autograd.graph.saved_tensors_hooks
        stand_in(stack, hooks, "__init__", _hooks_init(self.mode, thread))
        tensors: Any = torch.Tensor
        reads = [(tensors, name) for name in ("tolist", "numpy", "__reduce_ex__")]
        for owner, name in (*reads, (torch._tensor_str, "_str")):
            read = _telling_reads(self, standing(owner, name), thread)
            stand_in(stack, owner, name, read, of_each=owner is tensors)
        for name in ("item", "__float__"):
            read = _telling_nan(self, standing(tensors, name), thread)
            stand_in(stack, tensors, name, read, of_each=True)
        self.depth.compiled.follow(stack, lambda: self.depth.note_compiled(self.context.step))
        follow_objects(stack, self.context.received)
        self.given_names.install(stack, thread)
        self._follow_captures(stack)
        self.depth.begin(stack)
        self.mode.refusable.switches.begin(stack, thread)

    def end(self) -> None:
        """The program is over."""
        self._look_at_kept(self._modules)
        if not self.depth.is_full:
            self.context.shielded("its variables", self.mode.reads.note_unseen, self._modules)
        self.watching.finish()
        self.mode.leave(())

    def sees_ops(self) -> bool:
        """Whether the program's ops are looked at now."""
        return self.depth.is_full and not (self.context.is_blind or self.mode.capturing)

    def note_watched_nan(self, frame: Any) -> None:
        """It made one of a NaN in a step whose ops nobody sees."""
        if not (self.context.is_blind or self.mode.capturing or self.depth.is_full):
            self.context.shielded("item", self.mode.reads.note_watched, frame)

    def _look_at_kept(self, scopes: Iterable[Mapping[str, Any]]) -> None:
        if self.context.provenance or self.mode.reads:
            self.context.shielded("its variables", self.mode.reads.look_at_kept, scopes)

    def _look_at_variables(self, one: BackwardPass) -> None:
        """Those of the frames that have called backward."""
        self._modules = [frame.f_globals for frame in user_frames(one.frame)]
        self._look_at_kept(scopes_of(one.frame))

    # Steps

    def run_backward(self, engine: Engine, one: BackwardPass) -> Any:
        self.context.shielded("backward", self.mode.window.close)
        if self.sees_ops() and not self.context.nested > 1:
            self._device = one.roots[0].device if one.roots else self._device
            self.context.shielded("its variables", self._look_at_variables, one)
            self.context.shielded("backward", self.scores.before_backward, one)
            self.context.shielded("backward", self.saturation.before_backward, one)
        journal = self.context.journal
        around = journal.transforms
        journal.transforms = torch._C._functorch.get_dynamic_layer_stack_depth()
        try:
            result = engine(one)
        except RuntimeError:
            self.context.shielded("backward", self.mode.refusable.note_refused)
            raise
        finally:
            journal.transforms = around
            if self.context.nested == 1:
                self.context.shielded("backward", self.mode.leave, one.roots)
                self.mode.overwrites.forget()
        if self.sees_ops() and not torch._C._are_functorch_transforms_active():
            self.context.shielded("backward", self.mode.refusable.note_pass, one)
        return result

    def end_backward(self, one: BackwardPass, result: Any, *, last: bool) -> None:
        """That of a step is over, the `last` one as far as is known."""
        asked, shielded = () if one.accumulates else one.handed, self.context.shielded
        shielded("backward", self.watching.look_at_gradients, one, result if asked else None)
        suspects = one.roots if one.loss is None or one.loss - one.loss != 0.0 else []
        found = one, suspects, asked, result
        shielded("backward", self.symptoms.after_backward, *found, last=last)
        by_graph = (
            self.hidden,
            self.mode.broadcasts,
            self.scores,
            self.units,
            self.lone,
            self.repeats,
        )
        for by in by_graph:
            shielded("backward", by.after_backward, one)
        if self.mode.margins is not None:
            shielded("backward", self.mode.margins.after_backward, one)

    def end_step(self) -> None:
        """Between steps: keep only what a later step can still lead back to."""
        context, journal = self.context, self.context.journal
        context.received.forget_dead()
        if journal.events:
            context.provenance.forget_dead()
            alive = [stain.event for stain in context.provenance]
            journal.keep_only([*alive, *self.symptoms.held(), *self.mode.reads.held()])
        self.watching.end_backward()

    def calm(self) -> tuple[float, float]:
        """How many passes, and updates, may come until one has to be looked at in full, or what
        became of something bad."""
        is_waited_for = self.symptoms.are_waiting or self.symptoms.confirmed
        if self.depth.is_full or is_waited_for or self.context.provenance.holds_unintended():
            return 0, 0
        return self.depth.calm(self.context.step, self.context.updates)

    def optimizer_begins(self, work: Work) -> None:
        if self.context.is_blind or (self.depth.is_full and not self.mode.is_on):
            return
        self.context.shielded("the optimizer", self.mode.window.close)
        self.context.in_optimizer = True
        if work.updates and self.depth.is_full:
            self.context.shielded("the optimizer", self._look_at_optimizer, work.optimizer)

    def _look_at_optimizer(self, optimizer: Any) -> None:
        self.symptoms.before_optimizer(optimizer)
        if len(self.settings) < _SETTINGS_KEPT:
            self.settings += bad_settings(optimizer, self.context.step)

    def bad_unscaled(self, optimizer: Any) -> None:
        """A scaler has left it out, and not for its scale."""
        if self.depth.is_full and not self.context.is_blind:
            self.symptoms.before_optimizer(optimizer)

    def optimizer_ends(self, work: Work) -> None:
        shielded = self.context.shielded
        if work.over and self.sees_ops():
            shielded("the optimizer", self.mode.refusable.note_update, work)
        if not self.context.in_optimizer:
            return
        shielded("the optimizer", self.mode.window.close)
        self.context.in_optimizer = False
        if self.context.bad_in_step:
            shielded("the optimizer", self.symptoms.after_optimizer, work.optimizer)
        shielded("the optimizer", self.watching.end_update, work)

    def _follow_captures(self, stack: ExitStack) -> None:
        """Look away while a CUDA graph is captured, until `stack` ends: a question of ours would
        become a part of the graph, or break the capture off."""
        graph = torch.cuda.CUDAGraph
        original_begin, original_end = graph.capture_begin, graph.capture_end

        def capture_begin(graph: Any, *args: Any, **kwargs: Any) -> None:
            self.mode.window.close()
            self.mode.capturing = True
            original_begin(graph, *args, **kwargs)

        def capture_end(graph: Any) -> None:
            try:
                original_end(graph)
            finally:
                self.mode.capturing = False
                if _CAPTURED not in self.context.notes:
                    self.context.notes.append(_CAPTURED)

        stand_in(stack, graph, "capture_begin", capture_begin)
        stand_in(stack, graph, "capture_end", capture_end)

    # The end

    def _confirmed(self) -> None:
        """A symptom is one."""
        self.watching.note_confirmed()
        self._on_confirmed()

    def with_ops(self, trace: Trace) -> Trace:
        """A trace with what the ops have shown so far, of a program that ends as it says."""
        ending, journal, mode = trace.ending, self.context.journal, self.mode
        over = ending.kind != "stopped"
        symptoms = self.symptoms.settled(ending) if over else self.symptoms.confirmed
        sent = self.symptoms.sent()
        suffered = (*symptoms, sent) if sent is not None else symptoms
        ends = [symptom.event for symptom in suffered if symptom.event is not None]
        known = list(journal.ancestors(*ends))
        wanted = {raw.fact.id for raw in known}
        above = {seq for raw in known for seq in _seqs(raw.fact.ancestry)}
        for kill in [raw for raw in journal.events.values() if raw.fact.kind is Kind.KILL]:
            way = {raw.fact.id for raw in journal.ancestors(kill.fact.id)}
            if wanted & way or kill.seq in above:
                wanted |= way
        events = [journal.freeze(raw) for id, raw in journal.events.items() if id in wanted]
        devices = [one.output.device for one in events if one.output is not None]
        device = max(filter(None, devices), default=str(self._device))
        return replace(
            trace,
            events=tuple(events),
            symptoms=(*trace.symptoms, *symptoms),
            sent=sent,
            environment=replace(trace.environment, device=device),
            ops=mode.ops,
            not_checked=(*trace.not_checked, *mode.not_checked),
            gradients=self.symptoms.gradients,
            overwrites=tuple(mode.overwrites.found),
            nan_reads=mode.reads.facts(),
            unseen_read=mode.reads.watched,
            hidden=self.hidden.events(wanted),
            approaches=mode.margins.worst(Approach) if mode.margins is not None else (),
            headroom=mode.margins.worst(Headroom) if mode.margins is not None else (),
            broadcasts=tuple(mode.broadcasts.found.values()),
            redraws=mode.redraws.facts(),
            scores=tuple(self.scores.found.values()),
            unreached=tuple(self.scores.unreached.values()),
            saturated=self.saturation.facts(),
            identical=tuple(self.units.found.values()),
            lone=tuple(self.lone.found.values()),
            repeated=self.repeats.facts(),
            array_faults=array_faults(self._modules, events),
            lost_averages=mode.polyak.facts(self.sizes.updates.trained, self.context.names.owners),
            unknown_names=self.given_names.facts(),
            settings=tuple(self.settings),
            unexamined=self.watching.unexamined(ending, trace.refusal),
            raised=mode.raised.fact(ending),
            surged=self.sizes.surges.first,
            compiled=self.depth.compiled.fact(),
            rounded_otherwise=tuple(self.context.rounded_otherwise),
        )


def _seqs(above: Iterable[Ancestor | None]) -> Iterator[int]:
    """Of the calls that made what an event's op was given."""
    for one in filter(None, above):
        if one.call is not None and one.call.seq is not None:
            yield one.call.seq
        yield from _seqs(one.inputs)


def _telling_reads(reading: EveryOp, original: Any, thread: int) -> Callable[..., Any]:
    """A list, an array, a pickle (`torch.save`) and a text of a tensor: all are made without an op
    that a mode could see, in C++ or with all modes off."""

    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        if is_elsewhere(thread):
            return original(self, *args, **kwargs)
        frame = sys._getframe(1)
        if computes_values() and kind_of(frame.f_code) != OURS:
            with unobserved():
                if reading.sees_ops():
                    reading.mode.note_read(self, None, frame)
                elif self.numel() == 1 and plain(self) is not None and has_nan(self):
                    reading.note_watched_nan(frame)
        with without_us:
            return original(self, *args, **kwargs)

    return read


def _telling_nan(reading: EveryOp, original: Any, thread: int) -> Callable[..., Any]:
    """A number of a tensor, in a step whose ops nobody sees: in the others their mode does."""

    def read(self: Any) -> Any:
        with without_us:
            value = original(self)
        if not is_elsewhere(thread) and value != value and not reading.depth.is_full:
            reading.note_watched_nan(sys._getframe(1))
        return value

    return read


def _hooks_init(mode: RecordingMode, thread: int) -> Callable[..., Any]:
    """Sees what saved-tensor hooks (checkpoint, offloading) give back to a node. Unpacking a
    second time, to look for ourselves, would run the user's hook again."""
    original = torch.autograd.graph.saved_tensors_hooks.__init__

    def __init__(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        def unpack(packed: Any) -> Any:
            tensor = unpack_hook(packed)
            if not is_elsewhere(thread):
                mode.note_unpacked(tensor)
            return tensor

        original(self, pack_hook, unpack)

    return __init__

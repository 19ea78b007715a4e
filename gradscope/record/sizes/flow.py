"""Which leaves each value depends on, and where that dependence was cut: one forward pass.

A parameter without a gradient was not used, or something between it and the loss threw the graph
away. Every memory carries two sets, as bits: the leaves that a gradient could still reach, and
the cuts that lie upstream of it. Beside that, which ops leave the same elements out whatever the
data.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from types import FrameType
from typing import Any

import torch

from gradscope.facts import NoGradient
from gradscope.ops.traits import Trait, has
from gradscope.record.context import RunContext
from gradscope.record.events.provenance import storage_key
from gradscope.record.finite import unwrapped
from gradscope.record.graph import are_straight, consumers, is_true_leaf, leaves
from gradscope.record.journal import Note
from gradscope.record.oprun import checkpoint_around, flatten
from gradscope.record.passes import BackwardPass
from gradscope.record.schema import OpInfo, read_schema
from gradscope.record.sites import Site, note_site
from gradscope.record.sizes.crossings import Activations
from gradscope.record.sizes.cuts import NUMBERS, Cut, Selection, cut_by, is_whole, selection_of
from gradscope.record.sizes.graphless import Constant, Constants, Terms, Zeros, is_term, passed_over
from gradscope.record.sizes.readouts import EarlyReads, Readouts
from gradscope.record.tracing import computes_values

_current_node = torch._C._current_autograd_node


class Flow:
    """Told of the ops of one forward pass. Holds no tensor but the leaves."""

    def __init__(self, context: RunContext, early: EarlyReads) -> None:
        self._context, self.early = context, early
        self.paused = False
        self.activations, self.targets = Activations(), Activations()
        self.selections: dict[int, Selection] = {}  # by the number of the call
        self.cuts: list[Cut] = []
        self.carried_cuts: list[Site] = []  # where `detach` took what an earlier step has left
        self._bits: dict[int, int] = {}
        self._leaves: list[torch.Tensor] = []
        self._state: dict[int, tuple[int, int]] = {}
        self._made: dict[int, Site] = {}  # where the values in a memory were computed from leaves
        self._readouts = Readouts()
        self._detached: dict[int, int] = {}  # the cuts upstream, by address
        self._trail: list[tuple[int, Site]] = []  # ops with leaves upstream
        self._used = 0  # the leaves that were read otherwise than idly
        self._idle = 0  # the cuts of leaves that were read idly and of nothing else
        self.constants = Constants()
        self._terms = Terms()
        self._compared = 0  # the cuts upstream of comparisons of what has no graph
        self._weights: set[int] = set()  # memories of parameters with rows
        self.zeros = Zeros()
        self.differentiated = 0  # the leaves upstream of what the program differentiates
        self.handed_out = 0  # the leaves that it does so by

    def note(
        self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, made: int
    ) -> None:
        """An op has run. It has made the node `made - 1`, or none (0)."""
        # A question about sizes or strides may come from inside autograd, which then holds a lock
        # that our own questions (is it a leaf?) would wait for.
        tells = flatten(out) or read_schema(func).name in NUMBERS
        if tells and not self.paused and _current_node() is None and computes_values():
            try:
                self._follow(read_schema(func), args, kwargs, out, made)
            except Exception:  # a fault of ours costs the reasons, not the program
                self.paused = True

    def _follow(
        self, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any, made: int
    ) -> None:
        self.zeros.note(info, args, out, made, sys._getframe(2))
        if info.written and _is_given_values(out):
            return
        if info.shape_only:
            self._pass_on(info, (), out, (0, 0), set())
            return
        site: tuple[Site, Site] | None = None
        if made:
            call = self._context.journal.calls[made - 1]
            site = call.user, call.inner
            if (selection := selection_of(info, args)) is not None:
                self.selections[made - 1] = selection
            self.activations.note(made - 1, out)
            if info.name == "sub":
                alike = (one for one in args[:2] if getattr(one, "shape", None) == out.shape)
                self.targets.note(made - 1, [one for one in alike if not one.requires_grad])
        elif self._context.function is not None and not torch.is_grad_enabled():
            self.activations.note(self._context.seq - 1, out)  # its last op makes its result
        live, themselves, cuts, read = self._upstream(args, kwargs)
        if info.name == "detach" and not live and args[0].requires_grad:
            self.carried_cuts.append(note_site(sys._getframe(2))[0])
        if self.constants and cuts:
            if info.name == "detach" and not note_site(sys._getframe(2))[1]:
                self._let_be(out)
            others = [self.of(one) for one in flatten(args)]
            is_apart = not (torch.is_grad_enabled() and self._weights.isdisjoint(read))
            used = info, flatten(args), out, cuts, read, others
            cuts &= ~self.constants.intended(*used, is_apart=is_apart)
        if live:
            self._trail.append((live, (site or note_site(sys._getframe(2)))[0]))
            self._readouts.note(out, live)
        elif flatten(args):
            self.early.note(flatten(args), out, lambda: note_site(sys._getframe(4))[0])
        if info.name == "lift_fresh":
            cuts, read = 0, set()  # of what was in this memory before
        if not live and info.name == "lift_fresh" and (live := self._readouts.upstream(out)):
            if (before := self._detached.get(out.data_ptr())) is not None:
                live, cuts = 0, cuts | before  # what NumPy gives back of it
        if cuts and not live and isinstance(out, float):  # of what was detached before it is read
            earlier = [one for one in self._cuts_before_term(args[0]) if one.lost]
            if earlier:
                note = Note(info, *note_site(sys._getframe(2)), None)
                number = replace(earlier[-1], reason=NoGradient.NUMBER, note=note)
                self._terms.note_number(out, number)
        if info.name == "_to_copy" and self.cuts and self.cuts[-1].of_term:
            self._note_copied(note_site(sys._getframe(2))[0])
        if cuts and not live and all(map(is_whole, flatten(out))):
            self._compared |= cuts
        reason = cut_by(info.name, out) if live else None
        if reason is NoGradient.DETACH and self._is_autograds(site):
            reason = None
        elif reason is NoGradient.NO_GRAD and self._context.function is not None:
            reason, site = NoGradient.FUNCTION, site or note_site(sys._getframe(2))
            if (outer := checkpoint_around(sys._getframe(2))) is not None:
                reason, site = NoGradient.CHECKPOINT, note_site(outer)
        is_idle = reason is NoGradient.DETACH or (
            reason is NoGradient.NO_GRAD and self._context.module is None
        )
        idle = themselves if is_idle else 0
        self._used |= live & ~idle
        if reason:
            site = site or note_site(sys._getframe(2))
            over = self._lost_over(args[0]) if reason is NoGradient.DETACH else 0
            if over and torch.is_grad_enabled():
                self._add_cut(NoGradient.STRAIGHT_THROUGH, info, site, over)
                cuts |= self._follow_constant(site)
            of_term = any(is_term(one) and one.requires_grad for one in flatten(args))
            owned = bool(idle) and self._is_of_caller(args)
            cuts |= self._add_cut(reason, info, site, live, idle, of_term=of_term, owned=owned)
            self._terms.note_number(out, self.cuts[-1])
            drawn = storage_key(out) if isinstance(out, torch.Tensor) else None
            if reason is NoGradient.NO_GRAD and site[1] and drawn not in read:  # nor a view
                cuts |= self._follow_constant(site, drawn=drawn)
            live = 0
            if reason is NoGradient.DETACH and isinstance(out, torch.Tensor) and out.is_cpu:
                self._detached[out.data_ptr()] = cuts
        elif live and isinstance(out, list | tuple) and any(map(is_whole, out)):
            # `sort` and `max` give values with a graph, and positions without.
            cut = self._add_cut(NoGradient.INTEGER, info, site or note_site(sys._getframe(2)), live)
            keys = (storage_key(one) for one in out if is_whole(one))
            self._state.update({key: (0, cuts | cut) for key in keys if key is not None})
        elif live and has(info.name, Trait.DRAWS):  # a graph whose slopes are 0, as `normal` has
            site = site or note_site(sys._getframe(2))
            cuts |= self._add_cut(NoGradient.SAMPLED, info, site, live)
            cuts |= self._follow_constant(site, drawn=storage_key(out))
            live = 0
        elif live and made and has(info.name, Trait.ADDS) and is_term(out):
            for term, lost in self._terms.without_graph(args, self._cuts_before_term):
                bit = self._add_cut(term.reason, OpInfo(""), (term.note.user, term.note.inner), 0)
                self.constants.add(bit, Constant(term, lost, sum=made - 1))
                cuts |= bit
        self._pass_on(info, args, out, (live, cuts), read)

    def bit_of(self, leaf: torch.Tensor) -> int:
        """The leaf's bit; 0 where no op of this pass has read it."""
        return self._bits.get(id(leaf), 0)

    def is_used(self, bit: int) -> bool:
        return bool(self._used & bit)

    def first_use(self, bit: int) -> Site:
        """The first op that read a leaf."""
        return next((site for live, site in self._trail if live & bit), ())

    def last_use(self, bit: int) -> Site:
        """The last op that read a leaf, or what was made of it."""
        return next((site for live, site in reversed(self._trail) if live & bit), ())

    def of(self, tensor: torch.Tensor) -> tuple[int, int]:
        """The leaves and the cuts upstream of a value."""
        key = storage_key(tensor)
        return self._state.get(key, (0, 0)) if key is not None else (0, 0)

    def note_differentiated(self, values: Sequence[Any], by: Sequence[torch.Tensor]) -> None:
        """The program takes derivatives of these by leaves, to go on computing with them."""
        for leaf in by:
            self.handed_out |= self.bit_of(leaf)
        for value in values:
            if isinstance(value, torch.Tensor):
                self.differentiated |= self.of(value)[0]

    def note_handed_out(self, one: BackwardPass, result: Sequence[Any]) -> None:
        """The program was handed gradients, with their graph or without."""
        given = [unwrapped(each) for each in result if isinstance(each, torch.Tensor)]
        # Around `torch.func.grad` there may be a graph of the program's.
        if one.create_graph or any(each.grad_fn is not None for each in given):
            self._note_gradients(one.outputs, given, one.frame)
        else:
            self._note_lost(NoGradient.CONSTANT, one.outputs, one.inputs, given, one.frame)

    def _note_lost(
        self,
        reason: NoGradient,
        values: Sequence[Any],
        by: Sequence[Any],
        gradients: Sequence[Any],
        frame: FrameType,
    ) -> None:
        keys = (storage_key(one) for one in gradients if isinstance(one, torch.Tensor))
        upstream = [self.of(value) for value in values if isinstance(value, torch.Tensor)]
        live = cuts = 0
        for reached, before in upstream:
            live, cuts = live | reached, cuts | before
        site = note_site(frame)
        cuts |= self._add_cut(reason, OpInfo(""), site, live, live)
        cuts |= self._follow_constant(site, self._learnt(by))
        self._state.update({key: (0, cuts) for key in keys if key is not None})

    def _note_gradients(
        self, values: Sequence[Any], gradients: Sequence[Any], frame: FrameType
    ) -> None:
        """The program was handed these of some values, with their graph. Where all are 0, and the
        values hold a slope that is constant, no parameter has a part in them."""
        if are_straight(values, gradients):
            self._note_lost(NoGradient.PIECEWISE_LINEAR, values, (), gradients, frame)
            return
        for one in gradients:
            key = storage_key(one) if isinstance(one, torch.Tensor) and one.grad_fn else None
            if key is not None:
                self._state[key] = sum(map(self.bit_of, leaves(consumers([one.grad_fn])))), 0

    def _follow_constant(
        self, site: tuple[Site, Site], by: Iterable[int] = (), drawn: int | None = None
    ) -> int:
        """The bit of what the last cut has given."""
        cut = self.cuts[-1]
        bit = self._add_cut(cut.reason, OpInfo(""), site, 0)
        self.constants.add(bit, Constant(cut, cut.lost, frozenset(by), drawn))
        return bit

    def _note_copied(self, user: Site) -> None:
        """`torch.tensor(loss)` detaches and copies in one instruction, which nobody means so."""
        last = self.cuts[-1]
        if last.reason is NoGradient.DETACH and last.note.user == user:
            self.cuts[-1] = replace(last, of_term=False)

    def _is_of_caller(self, args: Sequence[Any]) -> bool:
        """Whether one of these is a parameter of the very module that runs."""
        frame = self._context.module
        held = frame.module._parameters.values() if frame is not None else ()
        return any(one is parameter for one in flatten(args) for parameter in held)

    def _cuts_before_term(self, term: torch.Tensor) -> list[Cut]:
        """But for those of what was detached to be compared, which has no slope as it is."""
        cuts = self.of(term)[1]
        return [
            one
            for at, one in enumerate(self.cuts)
            if cuts >> at & 1 and (one.reason is NoGradient.INTEGER or not self._compared >> at & 1)
        ]

    def _learnt(self, tensors: Sequence[Any]) -> Iterator[int]:
        """The memories of those that are parameters, or made of such."""
        parameters = 0
        for leaf in self._leaves:
            if isinstance(leaf, torch.nn.Parameter):
                parameters |= self.bit_of(leaf)
        for one in tensors:
            if isinstance(one, torch.Tensor) and (self.of(one)[0] | self.bit_of(one)) & parameters:
                if (key := storage_key(one)) is not None:
                    yield key

    def _lost_over(self, tensor: torch.Tensor) -> int:
        """The leaves of what it is made of, and is 0 times."""
        gone = (consumers([node]) for node in passed_over(tensor.grad_fn))
        return sum({self.bit_of(leaf) for above in gone for leaf in leaves(above)})

    def _let_be(self, out: Any) -> None:
        """The program itself has detached what has no graph as it is: it knows."""
        key = storage_key(out)
        if key in self._state:
            live, cuts = self._state[key]
            self._state[key] = live, cuts & ~self.constants.bits

    def cuts_in(self, bits: int) -> Iterator[Cut]:
        return (cut for position, cut in enumerate(self.cuts) if bits >> position & 1)

    def _upstream(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, int, int, set[int]]:
        """The leaves upstream of an op's arguments, those that are arguments themselves and nothing
        else, the cuts upstream, and the memories that all of them lie in."""
        live = themselves = cuts = 0
        read = set()
        for tensor in flatten((*args, *kwargs.values())):
            key = storage_key(tensor)
            if key is not None:
                read.add(key)
            needs = tensor.requires_grad
            if needs and is_true_leaf(tensor):
                if key in self._state:
                    cuts |= self._cuts_before(tensor, key)
                themselves |= self._register(tensor)
                continue
            state = self._state.get(key, (0, 0)) if key is not None else (0, 0)
            cuts |= state[1]
            if needs:
                live |= state[0]
                if not state[0]:
                    # The ops inside a custom Function's forward run without a graph; the
                    # Function gives its result one again.
                    for cut in self.cuts_in(state[1]):
                        live |= cut.lost
        return live | themselves, themselves & ~live, cuts, read

    def _cuts_before(self, leaf: torch.Tensor, key: int) -> int:
        """The cuts upstream of the values that a leaf began with: `x.detach().requires_grad_()`,
        `nn.Parameter(layer(x))`. That it began with those of another leaf is no use of that one."""
        live, cuts = self._state[key]
        if live and isinstance(leaf, torch.nn.Parameter) and id(leaf) not in self._bits:
            site = self._made.get(key, ()), ()
            cuts |= self._add_cut(NoGradient.REWRAPPED, OpInfo(""), site, live)
        self._state[key] = (live, cuts & ~self._idle)
        return self._state[key][1]

    def _register(self, leaf: torch.Tensor) -> int:
        bit = self._bits.get(id(leaf))
        if bit is None:
            bit = self._bits[id(leaf)] = 1 << len(self._leaves)
            self._leaves.append(leaf)
            key = storage_key(leaf) if isinstance(leaf, torch.nn.Parameter) else None
            if key is not None and leaf.dim() > 1:
                self._weights.add(key)
        return bit

    def _is_autograds(self, site: tuple[Site, Site] | None) -> bool:
        """Whether the detach is of a result that an op keeps for its own backward: it then comes
        from the very instruction that called the op."""
        last = self._context.journal.call_of(self._context.seq - 1)
        return last is not None and (last.user, last.inner) == (site or note_site(sys._getframe(3)))

    def _add_cut(
        self,
        reason: NoGradient,
        info: OpInfo,
        site: tuple[Site, Site],
        lost: int,
        idle: int = 0,
        *,
        of_term: bool = False,
        owned: bool = False,
    ) -> int:
        """Its bit."""
        inside = reason in (NoGradient.FUNCTION, NoGradient.CHECKPOINT)
        custom = self._context.function if inside else None
        self.cuts.append(Cut(reason, Note(info, *site, None, custom), lost, idle, of_term, owned))
        if lost == idle:
            self._idle |= 1 << (len(self.cuts) - 1)
        return 1 << (len(self.cuts) - 1)

    def _pass_on(
        self, info: OpInfo, args: tuple[Any, ...], out: Any, state: tuple[int, int], read: set[int]
    ) -> None:
        given = (*flatten(out), *info.written_tensors(args, {}))
        results = {id(one): one for one in given}  # what writes gives what it has written
        for tensor in results.values():
            key = storage_key(tensor) if id(tensor) not in self._bits else None
            if key is None or (len(results) > 1 and is_whole(tensor)):
                continue
            before = self._state.get(key)
            if key in read and before is not None:
                # A view, or a write into a part: the memory still holds what it held.
                self._state[key] = (before[0] | state[0], before[1] | state[1])
            elif before is not None or state != (0, 0):
                self._state[key] = state
                if state[0]:
                    self._made[key] = self._trail[-1][1]


def _is_given_values(out: Any) -> bool:
    """Whether an op that writes gave a leaf other values, as an initialisation does: that is no
    use of the leaf, and takes it out of no graph."""
    is_leaf = isinstance(out, torch.Tensor) and out.requires_grad and out.is_leaf
    return is_leaf and not torch.is_grad_enabled()

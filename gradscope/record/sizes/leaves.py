"""The leaves that a program trains, by name, and the norms of their gradients."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

import torch

from gradscope.facts import Leaf, Location
from gradscope.record.events.provenance import Memories
from gradscope.record.finite import dtype_of, elements, is_wrapped, shard_of
from gradscope.record.held import outermost
from gradscope.record.names import Names, flat_part
from gradscope.record.passes import Graded
from gradscope.record.sites import Site, note_site, place_of
from gradscope.record.sizes.built import Built
from gradscope.record.sizes.crossings import norm_of
from gradscope.record.stand_ins import around, stand_in
from gradscope.source.hand_updates import is_lost


@dataclass(slots=True)
class Watched:
    """A leaf while the program runs, `fact` as it was when it was met. Only parameters are held;
    other leaves may go."""

    fact: Leaf
    ref: Callable[[], torch.Tensor | None]
    trained: bool = False
    weight: float = 0.0
    remade: int = 0
    handed_out: bool = False  # the program was given its gradient, by `torch.autograd.grad`
    norms: list[float | None] = field(default_factory=list)
    replaced_at: Site = ()
    # Where what may replace it was computed, with the first and the last step.
    computed: dict[Site, tuple[int, int]] = field(default_factory=dict)

    def lost_at(self) -> Location | None:
        """Where the program computes, pass by pass, what its next values were to be, and gives that
        to a name alone."""
        if self.trained or len(self.computed) != 1:
            return None
        ((site, (first, last)),) = self.computed.items()
        place = place_of(site) if first < last else None
        return place if place is not None and is_lost(place) else None

    @property
    def name(self) -> str:
        return self.fact.name

    @property
    def is_parameter(self) -> bool:
        return self.fact.held_as == "parameter"

    @property
    def has_stayed_zero(self) -> bool:
        """Whether it is a module's, and has been 0 everywhere since it was met."""
        return bool(self.fact.owner) and not (self.fact.start or self.weight)


class Replacement(NamedTuple):
    """`name` is that of the leaf whose values went in, `user` where the new ones were computed."""

    name: str
    user: Site


MISSED = 3  # updates that an optimizer made with a parameter which the program has replaced


@dataclass(slots=True)
class Succession:
    """A parameter that took the name of one which an optimizer holds. `site` is where a module was
    given the new one itself. `missed`: the passes since then that updates followed in which an
    optimizer held the old one alone."""

    name: str
    old: torch.Tensor
    new: torch.Tensor
    site: Site = ()
    missed: list[int] = field(default_factory=list)
    taken: bool = False  # some optimizer holds the new one

    def note_update(self, step: int, held: set[int]) -> None:
        self.taken |= id(self.new) in held
        if id(self.old) in held and len(self.missed) < MISSED:
            self.missed.append(step)

    @property
    def is_lost(self) -> bool:
        return len(self.missed) >= MISSED and not self.taken


class Leaves:
    """The leaves seen so far, by name: a leaf may go, its norms stay."""

    def __init__(self, known: Names, built: Built) -> None:
        self.known = known
        self.watched: dict[str, Watched] = {}
        self.names: dict[int, str] = {}
        self._places: dict[int, str] = {}  # names by address
        self._addresses: dict[str, int] = {}  # and the other way round
        # What was computed from a leaf in its own shape, and may turn up in its place: `w.data =
        # w.data - lr * w.grad`, or `w = (w - lr * grad).detach().requires_grad_()`. By its memory,
        # which no other tensor can get while we refer to it; the memory itself is let go with the
        # program's last tensor in it.
        self._results: Memories[Replacement] = Memories()
        self.successions: dict[str, Succession] = {}
        # By id of what a module was given and no pass has met: where, and what was there before;
        # and those that a module was given while one ran.
        self._assigned: dict[int, tuple[Site, int]] = {}
        self._given_in_call: set[int] = set()
        # By id, the names of those that took the place of a parameter which was never met.
        self.stand_for: dict[int, str] = {}
        self.built = built

    def install(self, stack: ExitStack, thread: int) -> None:
        """Until `stack` ends, see which parameters of modules are replaced, and let torch swap any:
        it refuses to where there is a weak reference, as ours are, which go before."""
        swap: Callable[[Any, Any], None] = torch.utils.swap_tensors
        self.built.install(stack, thread)

        def swap_tensors(t1: torch.Tensor, t2: torch.Tensor) -> None:
            self._let_go(t1)
            self._let_go(t2)
            swap(t1, t2)

        stand_in(stack, torch.utils, "swap_tensors", swap_tensors)
        watch = partial(around, stack, thread, torch.nn.Module, "register_parameter")
        watch(before=self._note_assigned, after=self.built.note_given)

    def _note_assigned(self, frame: FrameType, one: torch.nn.Module, name: str, param: Any) -> None:
        old = vars(one).get("_parameters", {}).get(name)
        if old is not None and param is not None and old is not param:
            _, before = self._assigned.pop(id(old), ((), id(old)))
            self._assigned[id(param)] = note_site(frame)[0], before
            if outermost(frame)[0] is not None:
                self._given_in_call.add(id(param))

    def stored_with(self, tensor: Any) -> torch.Tensor | None:
        """The leaf that a tensor is or shares its memory with, as `leaf.data` does."""
        if not self._places or not has_memory(tensor):
            return None
        watched = self.watched.get(self._places.get(tensor.data_ptr(), ""))
        leaf = watched.ref() if watched is not None else None
        return leaf if leaf is not None and leaf.data_ptr() == tensor.data_ptr() else None

    def note_result(
        self, step: int, operand: Any, result: torch.Tensor, site: Callable[[], Site]
    ) -> None:
        """What was computed from a leaf, or from what will replace one, may replace it."""
        leaf = self.stored_with(operand)
        before = self._result(operand) if leaf is None else None
        name = self.names.get(id(leaf)) if leaf is not None else before.name if before else None
        if name is not None and operand.shape == result.shape and has_memory(result):
            replacement = Replacement(name, site())
            self._results.put(result, replacement)
            if leaf is not None:
                computed = self.watched[name].computed
                first, _ = computed.get(replacement.user, (step, step))
                computed[replacement.user] = first, step

    @property
    def have_results(self) -> bool:
        return len(self._results) > 0

    def _result(self, tensor: Any) -> Replacement | None:
        return self._results.of(tensor) if self.have_results and has_memory(tensor) else None

    def replacements(
        self, more: Iterable[torch.Tensor]
    ) -> Iterator[tuple[torch.Tensor, Replacement]]:
        """What took the place of a leaf's values, or of the leaf, since it was last met: of those
        that are known, and of `more`."""
        for leaf in (*self.alive(), *more) if self.have_results else ():
            found = self._result(leaf)
            if found is not None and self._places.get(leaf.data_ptr()) != found.name:
                yield leaf, found

    def is_lost(self, name: str, leaf: torch.Tensor, held: set[int]) -> bool:
        """Whether what has the name now is another tensor than the one that an optimizer holds."""
        known, watched = self.successions.get(name), self.watched.get(name)
        old = watched.ref() if watched is not None else None
        gone = known is not None and not known.taken
        return gone or (old is not leaf and old is not None and id(old) in held)

    def settle(self, leaf: torch.Tensor, replacement: Replacement) -> Watched | None:
        """A leaf continues the record of the one that it replaces."""
        watched = self.watched.get(replacement.name)
        if watched is not None:
            watched.ref = _reference(leaf)
            self.names[id(leaf)] = watched.name
            self._locate(leaf, watched.name)
        return watched

    def _locate(self, leaf: torch.Tensor, name: str) -> None:
        """It is there now, and not where it was before: its next values may be put there again."""
        before = self._addresses.get(name)
        if before is not None and self._places.get(before) == name:
            del self._places[before]
        self._addresses[name] = address = leaf.data_ptr()
        self._places[address] = name

    def forget_results(self) -> None:
        """Of what is gone without having replaced a leaf: a penalty computes `w - w0` each step."""
        self._results.forget_dead()

    def alive(self) -> list[torch.Tensor]:
        found = (watched.ref() for watched in self.watched.values())
        return [leaf for leaf in found if leaf is not None]

    def in_module_order(self, graded: Graded) -> Graded:
        """As `model.parameters()` gives them; what belongs to no module follows, by name."""
        place = {key: position for position, key in enumerate(self.known.owners)}
        last = len(place)
        return sorted(
            graded, key=lambda pair: (place.get(id(pair[0]), last), self.name_of(pair[0]))
        )

    def forget(self) -> None:
        """Drop the norms so far, and keep the names."""
        for watched in self.watched.values():
            watched.norms.clear()

    def note(self, step: int, norms: dict[int, float], *, weigh: bool) -> None:
        """Write down the norms of one step, by id; with `weigh` those of the leaves themselves."""
        for watched in self.watched.values():
            current = watched.ref()
            watched.norms += [None] * (step - len(watched.norms))
            watched.norms.append(norms.get(id(current)) if current is not None else None)
            if weigh and current is not None:
                watched.weight = norm_of(current)

    def facts(self, steps: int) -> tuple[Leaf, ...]:
        return tuple(
            replace(
                one.fact,
                trained=one.trained,
                weight=one.weight,
                remade=one.remade,
                lost_at=one.lost_at(),
                replaced_at=place_of(one.replaced_at),
                zeroed=self.built.zeroed(one.ref(), self.known) if one.has_stayed_zero else None,
                uniform=one.fact.uniform and not one.handed_out,
                norms=(*one.norms, *[None] * (steps - len(one.norms))),
            )
            for one in self.watched.values()
        )

    def note_handed_out(self, is_it: Callable[[torch.Tensor], object]) -> None:
        """Of those that may be something to learn: nobody asks for that of others."""
        for watched in self.watched.values():
            leaf = watched.ref() if watched.fact.uniform else None
            watched.handed_out |= leaf is not None and bool(is_it(leaf))

    def _let_go(self, leaf: Any) -> None:
        """Forget where a leaf is until it is met again; its name and norms stay."""
        watched = self.watched.get(self.names.get(id(leaf), ""))
        is_weak = watched is not None and not (watched.is_parameter and watched.fact.held)
        if watched is not None and is_weak and watched.ref() is leaf:
            watched.ref = lambda: None

    def name_of(self, leaf: torch.Tensor) -> str:
        return self.names[id(leaf)]

    def fact_of(self, leaf: torch.Tensor) -> Leaf:
        return self.watched[self.name_of(leaf)].fact

    def meet(self, leaf: torch.Tensor, frame: Any) -> Watched:
        """The record of a leaf; a new tensor under the name of one that is gone continues it."""
        name = self.names.get(id(leaf))
        watched = self.watched.get(name) if name is not None else None
        if watched is not None and watched.ref() is leaf:
            return watched
        held = self.known.name_of_leaf(leaf, frame)
        name = held or self._name_of_nobodys(leaf)
        self.names[id(leaf)] = name
        if has_memory(leaf):
            self._locate(leaf, name)
        watched = self.watched.get(name)
        site, old = self._assigned.pop(id(leaf), ((), 0))
        if old:
            self.stand_for.setdefault(old, name)
        if watched is not None:
            self._note_succession(watched, leaf, site)
            watched.remade += watched.is_parameter
            watched.replaced_at = site
            watched.ref = _reference(leaf, watched.fact.held)
            return watched
        owner = self.known.owners.get(id(leaf))
        path = owner.path if owner is not None else ()
        shard, shape = flat_part(path, leaf) or (shard_of(leaf), tuple(leaf.shape))
        fact = Leaf(
            name=name,
            shape=shape,
            dtype=dtype_of(leaf),
            numel=elements(leaf),
            held_as="parameter" if isinstance(leaf, torch.nn.Parameter) else "leaf",
            trained=False,
            weight=0.0,
            norms=(),
            start=norm_of(leaf),
            owner=self.known.owner_of(leaf),
            shard=shard,
            training=path[-1][1].training if path else True,
            held=held is not None,
            uniform=_is_uniform(leaf),
        )
        watched = Watched(fact, _reference(leaf, fact.held))
        if id(leaf) in self._given_in_call:
            watched.replaced_at = site
        self.watched[name] = watched
        return watched

    def _note_succession(self, watched: Watched, leaf: torch.Tensor, site: Site) -> None:
        old, known = watched.ref(), self.successions.get(watched.name)
        if known is not None and not known.taken:
            known.new = leaf
        elif watched.trained and old is not None and old is not leaf:
            self.successions[watched.name] = Succession(watched.name, old, leaf, site)

    def _name_of_nobodys(self, leaf: torch.Tensor) -> str:
        """That of a parameter like it which nobody held and which is gone, or a new one."""
        kind = "parameter" if isinstance(leaf, torch.nn.Parameter) else "leaf"
        like = kind, tuple(leaf.shape), dtype_of(leaf)
        for one in self.watched.values() if kind == "parameter" else ():
            fact = one.fact
            is_like = not fact.held and (fact.held_as, fact.shape, fact.dtype) == like
            if is_like and one.ref() is None:
                return fact.name
        taken = sum(name.startswith(f"{kind} ") for name in self.watched)
        return f"{kind} {taken + 1}"


_SAMPLED = 8  # elements
_SMALL = 64  # elements: what is learnt beside a model is hardly ever more


def _is_uniform(leaf: torch.Tensor) -> bool:
    if isinstance(leaf, torch.nn.Parameter) or not has_memory(leaf):
        return False
    return 0 < leaf.numel() <= _SMALL and bool((leaf == leaf.flatten()[0]).all())


def _reference(leaf: torch.Tensor, held: bool = True) -> Callable[[], torch.Tensor | None]:
    """Strong for a parameter that somebody holds, which lives as long as its model, and which
    `module.to()` may not swap (`torch.utils.swap_tensors`) while anybody holds a weak reference to
    it."""
    is_kept = held and isinstance(leaf, torch.nn.Parameter)
    return (lambda: leaf) if is_kept else weakref.ref(leaf)


def has_memory(tensor: Any) -> bool:
    """Whether it has numbers of its own to read: those inside of a `vmap` lie in another one."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or is_wrapped(tensor):
        return False
    return tensor.layout is torch.strided and not tensor.is_meta


def norms_of(grads: Sequence[Any]) -> list[float]:
    """L2 norms in one fused pass; again in float64 where the squares leave their dtype's range."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    found = [0.0] * len(grads)
    for position, grad in enumerate(grads):
        if type(grad) is torch.Tensor and has_memory(grad) and grad.is_floating_point():
            groups.setdefault((grad.device, grad.dtype), []).append(position)
        else:
            found[position] = norm_of(grad)
    for positions in groups.values():
        norms = torch._foreach_norm([grads[position] for position in positions], 2.0)
        for position, norm in zip(positions, torch.stack(list(norms)).tolist(), strict=True):
            plain_enough = 1e-15 < norm < 1e15 and grads[position].dtype is not torch.float16
            found[position] = norm if plain_enough else norm_of(grads[position])
    return found


def samples(tensors: Iterable[torch.Tensor]) -> list[list[Any]]:
    """A few elements of each, by which it is known again."""
    return [one.detach().flatten()[:_SAMPLED].tolist() for one in tensors if has_memory(one)]

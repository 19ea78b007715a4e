"""What the present graph shares with an earlier backward pass, which has freed it."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from inspect import CO_GENERATOR
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any

import torch

from gradscope.facts import Call, Location, refusals
from gradscope.ops.traits import Trait, has
from gradscope.record import graph
from gradscope.record.definitions import attribute_within, span, written_at
from gradscope.record.events.provenance import storage_key
from gradscope.record.graph import consumers, ends, is_older, leaf_ids, up
from gradscope.record.held import variables
from gradscope.record.journal import to_call
from gradscope.record.refusals.exceptions import Raised, held
from gradscope.record.refusals.notes import Noted, Pass, Updated, held_graphs
from gradscope.record.sites import Site, instructions, resolve

# Code of its own, until Python 3.12 but for the first.
_COMPREHENSIONS = frozenset(("<genexpr>", "<listcomp>", "<setcomp>", "<dictcomp>"))


def shared(raised: Raised, nodes: set[Any]) -> refusals.Shared | None:
    """The part through which an earlier pass has run, if it holds any of these nodes: where the
    present graph leads into it."""
    numbers = {node._sequence_nr() for node in nodes}
    passes = [one for one in raised.notes.passes[::-1] if not numbers.isdisjoint(one.above)]
    earlier = next((one for one in passes if one.frees), next(iter(passes), None))
    if earlier is None:
        return None
    old = {node for node in raised.nodes if is_older(node, earlier.until)}
    if old.issuperset(raised.nodes):  # nothing of this graph was made since
        old = {node for node in raised.nodes if node._sequence_nr() in earlier.above}
    below = {end: set(consumers([end])) for end in ends(old, raised.nodes)}
    found = [end for end in below if not nodes.isdisjoint(below[end])]
    found = [end for end in found if end._sequence_nr() in earlier.carried] or found
    if not found:
        return None
    end = max(found, key=lambda one: one._sequence_nr())
    seq = end._sequence_nr()
    made = raised.context.call(end)
    if made is None and (note := earlier.calls.get(seq)) is not None:
        made = to_call(note, seq, graph.node_name(end))
    after = [one for one in raised.notes.updates if one.seq >= earlier.until]
    leaves = leaf_ids({node: [] for node in below[end]})
    moved = any(leaves & set(map(id, one.parameters)) for one in after)
    written = _written(raised, below[end], earlier.until)
    beyond = leaf_ids(raised.nodes) - leaves
    carried = _carried(raised, end, earlier, made)
    once = _once(raised, seq, earlier.until)
    weighed, entwined = _weighed(raised, end, leaves, earlier) if not beyond else ((), False)
    using = next((one for one in raised.nodes[end] if one not in old), None)
    used = raised.context.call(using)
    name, known = _name_of(raised, end)
    function = (known.file, known.function) if known is not None else None
    lines = used.frames if used is not None else ()
    readers = (one for one in lines if (one.file, one.function) == function)
    first = (_call_of(raised, one) for one in earlier.above.get(seq, ()))
    return refusals.Shared(
        made=made,
        name=name or (carried[0].name if carried else ""),
        used=used,
        reader=next(readers, None),
        first_use=next(filter(None, first), None),
        backward=earlier.place,
        carried=carried,
        again=_has_run_again(raised, made, earlier.until)
        and (once is None or earlier.place != raised.place),
        once=once,
        calls=calls(raised, below[end]),
        above=calls(raised, up({end}, raised.nodes)),
        updates=(*map(as_update, after), *written),
        trained=moved or bool(written),
        apart=raised.notes.is_apart(after, beyond, leaves),
        anew=_is_anew(raised, below[end], earlier.until),
        constant=any(resolve(*site[0]) == earlier.place for site in _constants(raised)),
        weighed=weighed,
        entwined=entwined,
        dropped=next(_dropped(raised), None),
    )


def _dropped(raised: Raised) -> Iterator[Location]:
    """Where `detach` was called and its result kept by nobody: the tensor stays as it was."""
    for site in raised.flow.carried_cuts if raised.flow is not None else ():
        for code, instruction in site[:1]:
            source, call = written_at(code, instruction)
            if source is not None and isinstance(call, ast.Call):
                if isinstance(source.parents.get(call), ast.Expr):
                    yield span(code, call)


def _written(raised: Raised, part: set[Any], since: int) -> tuple[refusals.Write, ...]:
    """What was written into the leaves of a part of the graph since, as by a step that the
    program takes by hand."""
    keys = {storage_key(leaf) for leaf in graph.leaves({node: [] for node in part})}
    return tuple(
        as_write(one, lasts=True)
        for one in raised.notes.writes
        if one.seq >= since and one.storage.cdata in keys
    )


def _weighed(
    raised: Raised, end: Any, leaves: set[int], earlier: Pass
) -> tuple[tuple[Call, ...], bool]:
    """Where the earlier loss reads what a node has made, if all that it does is to multiply by
    it, or by what it computes of it, what depends on other leaves: as a policy does with an
    advantage. And whether that depends on some of these leaves too, as where both have one
    trunk: then a difference alone is sure to be no gate, which is trained by what it opens."""
    above = consumers(list(_held_of(raised, earlier)))
    if not above.get(end):
        return (), False
    own = {node for node in up({end}, above) if leaf_ids(consumers([node])) <= leaves}
    beyond = {reader for node in own for reader in above[node]} - own
    others = [_weighed_by(reader, leaves) for reader in beyond]
    entwined = any(not other.isdisjoint(leaves) for other in others)
    is_difference = any(has(graph.node_name(node), Trait.SUBTRACTS) for node in own)
    if any(other <= leaves for other in others) or (entwined and not is_difference):
        return (), False
    readers = (raised.context.call(one) for one in above[end] if beyond)
    return tuple(call for call in readers if call is not None), entwined


def _carried(
    raised: Raised, end: Any, earlier: Pass, made: Call | None
) -> tuple[refusals.Carried, ...]:
    """The ways to reach a value, those first that reach now what was computed from it."""
    seq, now = end._sequence_nr(), raised.frame
    graphs = held_graphs(now, earlier.place) if now is not None else {}
    after = {node._sequence_nr() for node in up({end}, raised.nodes)} | {seq}
    leading = [one for number in after for one in graphs.get(number, ())]
    found = sorted(earlier.carried.get(seq, ()), key=lambda one: one not in leading)
    frames = made.frames if made is not None else ()
    return tuple(
        replace(one, kept=one in graphs.get(seq, ()), set_at=_set_at(one.name, now, frames))
        for one in found
    )


def _is_anew(raised: Raised, part: set[Any], since: int) -> bool:
    """Whether what read each leaf of a part of the graph has read it outside of it since."""
    found: list[set[Any]] = []
    for leaf in (one for one in part if hasattr(one, "variable")):
        readers: tuple[set[Any], set[Any]] = set(), set()
        for node in raised.nodes[leaf]:
            if node not in part and is_older(node, since):
                continue
            if (call := raised.context.call(node)) is not None and call.location is not None:
                readers[node in part].add(call.location.module or call.location)
        found.append(readers[0] & readers[1])
    return bool(found) and all(found)


def _has_run_again(raised: Raised, made: Call | None, since: int) -> bool:
    """Whether the line of a call has made a node after the one with that number."""
    calls = raised.context.journal.generations[-1]
    return made is not None and any(
        seq >= since and note.user and resolve(*note.user[0]).line == made.location.line
        for seq, note in calls.items()
        if made.location is not None
    )


def _once(raised: Raised, seq: int, since: int) -> Location | None:
    """Of the lines on the way to a call, the outermost through which nothing has run since, and
    whose function has kept what was computed, or handed it out."""
    journal = raised.context.journal
    note, calls = journal.call_of(seq), journal.generations[-1].items()
    later = {frame for seq, one in calls if seq >= since for frame in one.user}
    # What a comprehension makes is made by the function that it stands in.
    made = note.user if note is not None else ()
    way = [one for one in reversed(made) if one[0].co_name not in _COMPREHENSIONS]
    found = [frame for frame in way if frame not in later]
    inner = {frame: below for frame, below in pairwise(way) if _gives_nothing(below[0])}
    frame = found[0] if found else None
    while frame in inner and inner[frame] in found:
        frame = inner[frame]
    return resolve(*frame) if frame is not None else None


def _call_of(raised: Raised, seq: int) -> Call | None:
    note = raised.context.journal.call_of(seq)
    return to_call(note, seq) if note is not None else None


def calls(raised: Raised, nodes: set[Any]) -> tuple[Call, ...]:
    """In the order in which they ran, each line once."""
    found = (raised.context.call(one) for one in sorted(nodes, key=lambda one: one._sequence_nr()))
    return tuple({one.frames: one for one in found if one is not None}.values())


def _set_at(name: str, frame: FrameType | None, calls: Sequence[Location]) -> Location | None:
    """Where the class of what holds a value gives it to the attribute that the name ends in, in one
    of the functions that have made it."""
    with suppress(SyntaxError):  # not all that is held has a name in Python
        match ast.parse(name, mode="eval").body:
            case ast.Attribute(value=holder, attr=kept):
                return attribute_within(type(held(holder, frame)), kept, calls)
    return None


def _gives_nothing(code: CodeType) -> bool:
    """Whether a function returns None alone, as a constructor does."""
    returned = (
        one if one.opname == "RETURN_CONST" else before
        for before, one in pairwise(instructions(code))
        if one.opname in ("RETURN_VALUE", "RETURN_CONST")
    )
    is_none = (one.argval is None and one.opname.endswith("_CONST") for one in returned)
    return not code.co_flags & CO_GENERATOR and all(is_none)


def _held_of(raised: Raised, earlier: Pass) -> Iterator[Any]:
    """The nodes of an earlier pass, its loss or what that was made of, that the program holds."""
    nodes = (one.grad_fn for one in raised.tensors_held())
    yield from (one for one in nodes if one is not None and one._sequence_nr() in earlier.above)


def _weighed_by(node: Any, leaves: set[int]) -> set[int]:
    """The leaves of the other factor, where it is a product, element by element, of which one
    depends on these leaves alone; else none."""
    factors = [leaf_ids(consumers([one])) for one, _ in node.next_functions if one is not None]
    if graph.node_name(node) != "MulBackward0" or len(factors) != 2:
        return set()
    own, other = sorted(factors, key=lambda factor: not factor <= leaves)
    return other if own <= leaves else set()


def as_update(one: Updated) -> refusals.Write:
    frames = tuple(resolve(*frame) for frame in one.site)
    place, optimizer = frames[0] if frames else None, one.optimizer()
    return refusals.Write("step", place, frames, optimizer=type(optimizer).__name__)


def as_write(one: Noted, *, lasts: bool) -> refusals.Write:
    frames = tuple(resolve(*frame) for frame in one.site)
    how = one.recorded, lasts, one.within
    return refusals.Write(one.op, frames[0], frames, "", one.module, *how)


def _name_of(raised: Raised, node: Any) -> tuple[str, Location | None]:
    """The variable that holds what a node gave, and where its function has come to."""
    for frame, place in zip(raised.frames, raised.places, strict=True):
        for name, value in variables(frame.f_locals):
            if isinstance(value, torch.Tensor) and value.requires_grad and value.grad_fn is node:
                return name, place
    return "", None


def _constants(raised: Raised) -> Iterator[Site]:
    """Where the gradients were handed out that are numbers in what was to be differentiated."""
    if (flow := raised.flow) is not None:
        for root in raised.roots:
            yield from (one.cut.note.user for one in flow.constants.found_in(flow.of(root)[1]))

"""The modules that the frames which make an optimizer could have given it."""

import weakref
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from types import CodeType, FrameType
from typing import NamedTuple

import torch

from gradscope.facts import Holder, Location, Scope
from gradscope.record.held import link_to, reached_from, scopes_in
from gradscope.record.names import path_of
from gradscope.record.sites import Site, place_of, user_frames
from gradscope.record.sizes.leaves import Leaves
from gradscope.record.written import doubled_at

_FRAMES = 3  # the one that makes it, and who calls that
_MOST = 64  # modules of a frame
_MOST_REACHED = 1024  # values of a frame among which parameters are looked for
_DEEPEST = 2  # modules inside of one that has a name


class Sight(NamedTuple):
    """Of one frame, at the instruction that it is at."""

    at: tuple[CodeType, int]
    modules: tuple[tuple[str, weakref.ref[torch.nn.Module]], ...]
    parameters: tuple[tuple[str, int], ...]  # by id: those in no module, and other leaves


def sights_from(frame: FrameType | None) -> tuple[Sight, ...]:
    """Of the innermost frames of the user's."""
    return tuple(
        Sight((one.f_code, one.f_lasti), tuple(modules_of(one)), tuple(_parameters_of(one)))
        for one in user_frames(frame)[:_FRAMES]
    )


def modules_of(frame: FrameType) -> Iterator[tuple[str, weakref.ref[torch.nn.Module]]]:
    """What the variables of a frame lead to, with the modules inside, by the expression."""
    seen: set[int] = set()
    for scope in scopes_in(frame):
        for name, value, _ in reached_from(scope):
            if not issubclass(type(value), torch.nn.Module):
                continue
            for text, module in _inside(name, value, _DEEPEST):
                if id(module) not in seen and len(seen) < _MOST:
                    seen.add(id(module))
                    yield text, weakref.ref(module)


def _parameters_of(frame: FrameType) -> Iterator[tuple[str, int]]:
    found = islice(reached_from(frame.f_locals), _MOST_REACHED)
    tensors = ((name, one) for name, one, _ in found if isinstance(one, torch.Tensor))
    return ((name, id(one)) for name, one in tensors if one.is_leaf and one.requires_grad)


def _inside(
    name: str, module: torch.nn.Module, depth: int
) -> Iterator[tuple[str, torch.nn.Module]]:
    yield name, module
    for key, child in module.named_children() if depth else ():
        if link := link_to(module, key):
            yield from _inside(name + link, child, depth - 1)


def spelled_inside(holder: torch.nn.Module, module: torch.nn.Module) -> str | None:
    """`.layers[0].norm`: what leads from a module to one that is somewhere in it."""
    prefix = next((key for key, one in holder.named_modules() if one is module), "")
    path = path_of(holder, "", prefix)
    links = [link_to(above, key) for (_, above), (key, _) in pairwise(path)]
    return "".join(links) if links and all(links) else None


def scopes_of(sights: Sequence[Sight], held: set[int], leaves: Leaves) -> Iterator[Scope]:
    """With what has become known of the leaves; `held` are the optimizer's, by id."""
    for sight in sights:
        site: Site = (sight.at,)
        if (place := place_of(site)) is not None:
            holders = (_holder(text, module(), held, leaves) for text, module in sight.modules)
            bare = (
                Holder(text, (leaves.names[one],), int(one in held), 1, bare=True)
                for text, one in sight.parameters
                if one in leaves.names
            )
            yield Scope(place, (*(one for one in holders if one is not None), *bare))


def _holder(
    text: str, module: torch.nn.Module | None, held: set[int], leaves: Leaves
) -> Holder | None:
    parameters = list(module.parameters()) if module is not None else []
    if not parameters:
        return None
    names = (leaves.names.get(id(one)) for one in parameters)
    known = tuple(one for one in names if one is not None and any(leaves.watched[one].norms))
    return Holder(text, known, sum(id(one) in held for one in parameters), len(parameters))


def given_twice(
    scopes: Sequence[Scope], held: Sequence[str], twice: Sequence[str]
) -> Location | None:
    """Where the text lists the parameters of a module a second time, of which an optimizer has all
    twice: none that two modules share. `held` has all that it was given."""
    whole = {
        one.text.rpartition(".")[2]
        for scope in scopes
        for one in scope.holders
        if one.leaves and not one.bare and {*one.leaves} <= {*twice}
    }
    once = {part for name in {*held} - {*twice} for part in name.split(".")}
    whole |= {part for name in twice for part in name.split(".")} - once if whole else set()
    places = (doubled_at(scope.place, whole) for scope in scopes)
    return next((one for one in places if one is not None), None)

"""What an optimizer refuses in a step of its own: its gradients, or the state that it was given."""

from typing import Any

import torch

from gradscope.facts import refusals
from gradscope.record.names import Names
from gradscope.record.optimizers import parameters_of


def layout(optimizer: Any, names: Names, fields: dict[str, Any]) -> refusals.LayoutRefused | None:
    """Gradients that are sparse; for the optimizer that takes such alone, those that are dense."""
    held = {one: one.grad for one in parameters_of(optimizer) if one.grad is not None}
    sparse = [one for one, grad in held.items() if grad.layout is not torch.strided]
    takes_sparse = isinstance(optimizer, torch.optim.SparseAdam)
    refused = [one for one in held if all(one is not of for of in sparse)]
    refused = refused if takes_sparse else sparse
    if not refused:
        return None
    owners = [names.owners.get(id(one)) for one in refused]
    paths = [one.path for one in owners if one is not None]
    choosing = [path for path in paths if hasattr(path[-1][1], "sparse")]
    places = [names.made(path)[0] for path in choosing]
    return refusals.LayoutRefused(
        **fields,
        optimizer=type(optimizer).__name__,
        sparse=not takes_sparse,
        names=tuple(one.name for one in owners if one is not None),
        held=len(held),
        layers=tuple(filter(None, places)) if len(choosing) == len(refused) else (),
    )


def state(optimizer: Any, names: Names, fields: dict[str, Any]) -> refusals.StateOfAnother | None:
    """The state that an optimizer was loaded with, where its shapes are not the parameters'."""
    parameters = list(parameters_of(optimizer))
    for key in dict.fromkeys(key for one in parameters for key in optimizer.state.get(one, ())):
        kept = {one: optimizer.state.get(one, {}).get(key) for one in parameters}
        both = [(one, of) for one, of in kept.items() if isinstance(of, torch.Tensor) and of.dim()]
        wrong = next(((one, of) for one, of in both if one.shape != of.shape), None)
        in_order = sorted(one.shape for one, _ in both) == sorted(of.shape for _, of in both)
        # What none of them has in its parameter's shape is of another kind: rows, all in one.
        if wrong is None or not (in_order or any(one.shape == of.shape for one, of in both)):
            continue
        owner = names.owners.get(id(wrong[0]))
        return refusals.StateOfAnother(
            **fields,
            optimizer=type(optimizer).__name__,
            name=owner.name if owner is not None else "",
            shape=tuple(wrong[0].shape),
            key=str(key),
            kept=tuple(wrong[1].shape),
            in_order=in_order,
        )
    return None

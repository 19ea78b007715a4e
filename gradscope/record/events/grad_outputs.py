"""The gradient that came into an autograd node, told from the tensors that its ops read."""

from __future__ import annotations

import torch

from gradscope.record.events.provenance import storage_key
from gradscope.record.finite import plain
from gradscope.record.oprun import NodeOps


def grad_output_of(ops: NodeOps) -> torch.Tensor | None:
    """What the ops of a node read, did not make, and the node had not saved; its first output's
    gradient where there are several. None where no op of the node read it (a view's backward)."""
    metadata = getattr(ops.node, "_input_metadata", ())
    wanted = {tuple(item.shape) for item in metadata if hasattr(item, "shape")}
    for info, args, kwargs in ops.ops:
        for _, tensor in info.tensors(args, kwargs):
            if tensor._cdata in ops.made or storage_key(tensor) in ops.saved_keys:
                continue
            values = plain(tensor)
            if (
                values is None
                or not values.numel()
                or (wanted and tuple(tensor.shape) not in wanted)
            ):
                continue
            return tensor
    return None


def gradient_in(ops: NodeOps, made: frozenset[int]) -> torch.Tensor | None:
    """The same, asked after the backward pass, when what a node had saved is gone: `made` are the
    identities of the tensors that the pass made; a gradient is one of those or a view of one."""
    metadata = getattr(ops.node, "_input_metadata", ())
    wanted = {tuple(item.shape) for item in metadata if hasattr(item, "shape")}
    for info, args, kwargs in ops.ops:
        for _, tensor in info.tensors(args, kwargs):
            if tensor._cdata not in ops.made and is_gradient(tensor, made):
                if not wanted or tuple(tensor.shape) in wanted:
                    return tensor
    return None


def is_gradient(tensor: object, made: frozenset[int]) -> bool:
    if not isinstance(tensor, torch.Tensor):
        return False
    base = tensor._base
    return tensor._cdata in made or (base is not None and base._cdata in made)

"""The gradient that came into an autograd node, told from the tensors that its ops read."""

from __future__ import annotations

import torch

from gradscope.record.events.provenance import storage_key
from gradscope.record.finite import plain
from gradscope.record.oprun import NodeOps


def gradient_in(ops: NodeOps, made: frozenset[int] | None = None) -> torch.Tensor | None:
    """What the ops of a node read, did not make, and the node had not saved; its first output's
    gradient where there are several. None where no op of the node read it (a view's backward).
    After the backward pass what a node had saved is gone: then `made` are the identities of the
    tensors that the pass made; a gradient is one of those or a view of one."""
    metadata = getattr(ops.node, "_input_metadata", ())
    wanted = {tuple(item.shape) for item in metadata if hasattr(item, "shape")}
    for info, args, kwargs in ops.ops:
        for _, tensor in info.tensors(args, kwargs):
            if tensor._cdata in ops.made or (wanted and tuple(tensor.shape) not in wanted):
                continue
            if made is not None:
                if is_gradient(tensor, made):
                    return tensor
            elif storage_key(tensor) not in ops.saved_keys:
                values = plain(tensor)
                if values is not None and values.numel():
                    return tensor
    return None


def is_gradient(tensor: object, made: frozenset[int]) -> bool:
    if not isinstance(tensor, torch.Tensor):
        return False
    base = tensor._base
    return tensor._cdata in made or (base is not None and base._cdata in made)

"""What users call an op and what it reads."""

import re

# Of aten's names what is no part of the function that users call: `linalg_inv_ex` is `inv`.
_INNER = re.compile(r"^_*(?:(?:linalg|special|native|fused)_)?|(?:_ex|_forward|_interface)$")
_SPELLED = {
    "_to_copy": "to",
    "linalg_vector_norm": "norm",
    "nll_loss2d_forward": "nll_loss",
    "log_sigmoid_forward": "logsigmoid",
    "_native_batch_norm_legit": "batch_norm",
    "_native_batch_norm_legit_no_training": "batch_norm",
    "max_pool2d_with_indices": "max_pool2d",
    "_euclidean_dist": "cdist",
    "lift_fresh": "tensor",
    "index": "indexing",
    "select": "indexing",
    "slice": "slicing",
    "copy": "a masked write",
    "rsub": "sub",
    "_unsafe_view": "view",
    "index_put": "index assignment",
}

_ROLES = {"self": "operand", "other": "second operand"}


# Torch numbers the nodes that it generates; these it wrote by hand.
_GENERATED = re.compile(r"(\w+)Backward\d+")
_BY_HAND = ("CopyBackwards", "CopySlices")


def node_stem(node: str) -> str:
    """`LogSoftmax` of `LogSoftmaxBackward0`; nothing of the node of a custom Function, since what
    the program calls its class (`ReluBackward` comes of a class `Relu`) says not what it does."""
    found = _GENERATED.fullmatch(node)
    return found[1] if found else node if node in _BY_HAND else ""


def role_name(argument: str) -> str:
    """The name of an argument in the aten schema, as a sentence has it."""
    return _ROLES.get(argument, argument)


def spelled(op: str) -> str:
    """An aten op as users know it: `_softmax` -> `softmax`."""
    if op.startswith("_scaled_dot_product_"):
        return "scaled_dot_product_attention"
    return _SPELLED.get(op) or _INNER.sub("", op)

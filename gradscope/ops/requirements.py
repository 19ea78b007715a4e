"""What ops raise for: numbers outside of a range, and indices of what is not there."""

import math
from collections.abc import Mapping

from gradscope.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Domain:
    """The range of an operand, ends included; `position` is its place among the arguments."""

    role: str
    low: float = 0.0
    high: float = math.inf
    position: int = 0


REFUSES: Mapping[str, tuple[Domain, ...]] = {
    "bernoulli": (Domain("self", high=1.0),),
    "binary_cross_entropy": (Domain("self", high=1.0), Domain("target", high=1.0, position=1)),
    "multinomial": (Domain("self"),),
    "normal": (Domain("std", position=1),),
    "poisson": (Domain("self"),),
}


# Which give one of the elements of an operand, or join tensors.
TAKES_SOME: Mapping[str, str] = {
    **dict.fromkeys(("amax", "amin", "aminmax", "argmax", "argmin", "max", "min", "mode"), "self"),
    **dict.fromkeys(("cat", "stack"), "tensors"),
}


@dataclass(frozen=True, slots=True)
class Indexing:
    """`index` holds positions along a dimension of `into`, by the names of the schema: `dim`, or
    the one that the argument "dim" names (None). `from_end`: negative ones count from its end.
    `classes`: the dimension of classes, which is the last of one or two and else the second."""

    index: str
    into: str = "self"
    dim: int | None = None
    from_end: bool = False
    classes: bool = False


INDEXING: Mapping[str, Indexing] = {
    "embedding": Indexing("indices", "weight", 0),
    "embedding_bag": Indexing("indices", "weight", 0),
    "_embedding_bag": Indexing("indices", "weight", 0),
    "index_select": Indexing("index"),
    "index_add": Indexing("index"),
    "index_copy": Indexing("index"),
    "index_fill": Indexing("index"),
    "gather": Indexing("index"),
    "scatter": Indexing("index"),
    "scatter_add": Indexing("index"),
    "scatter_reduce": Indexing("index"),
    "index": Indexing("indices", dim=0, from_end=True),
    "index_put": Indexing("indices", dim=0, from_end=True),
    "nll_loss_forward": Indexing("target", classes=True),
    "nll_loss2d_forward": Indexing("target", classes=True),
}

"""What `checkpoint` refuses in backward: a forward that computes other tensors the second time."""

import ast

from gradscope.facts import Location, refusals
from gradscope.record.definitions import span, written_at
from gradscope.record.refusals.exceptions import Raised
from gradscope.record.stand_ins import links

_CHECKPOINTS = frozenset(
    f"torch.utils.checkpoint.{name}" for name in ("checkpoint", "checkpoint_sequential")
)
_MOST_ASKED = 256  # nodes of the graph, the youngest first: backward meets these first


def computed_again(raised: Raised) -> refusals.ComputedAgain:
    differ: list[tuple[int, dict[str, object], dict[str, object]]] = []
    for one in links(raised.error.__traceback__):
        differ = one.tb_frame.f_locals.get("nb_meta_different") or differ
    shapes = [_shape(one) for one in differ[0][1:]] if differ else []
    before, after = shapes or (None, None)
    return refusals.ComputedAgain(
        **raised.at, location=_called_at(raised), before=before, after=after
    )


def _shape(metadata: dict[str, object]) -> tuple[int, ...]:
    shape = metadata.get("shape")
    return tuple(shape) if isinstance(shape, tuple) else ()


def _called_at(raised: Raised) -> Location | None:
    """The call of `checkpoint` through which the youngest nodes were made that have one."""
    nodes = sorted(raised.nodes, key=lambda one: one._sequence_nr(), reverse=True)
    for node in nodes[:_MOST_ASKED]:
        note = raised.context.call_of_node(node)
        for code, instruction in note.user if note is not None else ():
            source, call = written_at(code, instruction)
            if source is not None and isinstance(call, ast.Call):
                if source.names.dotted(call.func) in _CHECKPOINTS:
                    return span(code, call)
    return None

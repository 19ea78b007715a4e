"""Turns the tensors at an event into numbers, at once: no tensor is kept."""

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import torch

from gradscope.facts import Ancestor, Kind, LostBound, Normed, Operand, Phase
from gradscope.ops import lookup
from gradscope.ops.patterns import EPSILON
from gradscope.ops.reach import singularity
from gradscope.ops.traits import Trait, has
from gradscope.record.census import Places, census, not_finite, places, plainly, rows_of_neginf
from gradscope.record.context import RunContext
from gradscope.record.events.masks import gradient_in
from gradscope.record.events.provenance import storage_key
from gradscope.record.finite import batch_dims, is_zero, numbers, some_nan, unwrapped, value_at
from gradscope.record.graph import inputs, node_name, saved
from gradscope.record.journal import Raw
from gradscope.record.lost_bounds import fact
from gradscope.record.names import assigned_name
from gradscope.record.oprun import NodeOps, OpRun

_LEVELS = 5  # how far up the graph an ancestry goes
_FACTORS = 12  # nodes up the graph to a parameter: a density is a few factors
_BREADTH = 60  # nodes in one ancestry, over all levels
_OPERANDS = 12  # tensors described an event; `cat` of hundreds says nothing more with all of them

_Test = Callable[[torch.Tensor], bool | None]

_ARITHMETIC = frozenset(("self", "other", "exponent"))
_WEIGHT_NORM = "_weight_norm_interface"
_WHOLE = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))


def operand(
    role: str,
    tensor: torch.Tensor,
    context: RunContext,
    *,
    index: tuple[int, ...] = (),
    shape: tuple[int, ...] | None = None,
    values: torch.Tensor | None = None,
    frame: Any = None,
) -> Operand:
    """Describe one tensor. `index` into a result of `shape` gives the value in `at`; `values`
    stands in for the tensor's own where those were overwritten."""
    samples = batch_dims(tensor)
    tensor = unwrapped(tensor)
    seen = _numbers(role, tensor if values is None else values)
    counted = census(seen, role, tensor) if seen is not None else plainly(tensor, role)
    return replace(
        counted,
        name=context.names.name(tensor, frame),
        masked_rows=rows_of_neginf(seen) if seen is not None and counted.neginf else 0,
        at=_at(seen, index, shape, samples),
        held_as=context.names.held_as(tensor),
        requires_grad=tensor.requires_grad,
    )


def _numbers(role: str, tensor: torch.Tensor) -> torch.Tensor | None:
    """What to look at: floating numbers, and whole ones where they are operands of arithmetic."""
    if role in _ARITHMETIC and tensor.dtype in _WHOLE and type(tensor) is torch.Tensor:
        if tensor.is_meta or tensor.layout is not torch.strided:
            return None
        return tensor.to(torch.uint8) if tensor.dtype is torch.bool else tensor
    return numbers(tensor)


def _at(
    values: torch.Tensor | None, index: tuple[int, ...], shape: tuple[int, ...] | None, samples: int
) -> float | None:
    if values is None or shape is None or not values.numel():
        return None
    missing = len(shape) - values.dim()
    if samples and missing > 0:  # `vmap` puts its dimension first, before those that broadcast
        sizes = values.shape
        values = values.reshape(*sizes[:samples], *[1] * missing, *sizes[samples:])
    return value_at(values, index, shape)


def describe(
    raw: Raw, op: OpRun, old: dict[int, torch.Tensor], output: torch.Tensor, context: RunContext
) -> None:
    """Everything the report may want of an event, measured while its tensors are at hand.

    `old` maps the id of an overwritten input to its values before the op.
    """
    values = numbers(output)
    assert values is not None
    inputs = op.inputs()[:_OPERANDS]
    # A birth beside an inf that was meant (a softmax of masked rows) is the NaN, not the inf; so it
    # is in a formula that subtracts two infinities, and elsewhere hands one of them on.
    is_birth = bool(raw.fact.sources) and raw.fact.kind is Kind.BIRTH
    is_revival = raw.fact.kind is Kind.REVIVAL and has(op.info.name, Trait.ADDS)
    is_nan = is_birth or (is_revival and some_nan(values))
    locate(raw, places(values, torch.isnan if is_nan else not_finite))
    index, shape = raw.fact.index, tuple(values.shape)
    described = operand("output", output, context, index=index, shape=shape)
    above = [_grad_fn(tensor) for _, tensor in inputs]
    if raw.node is not None:
        above = [edge[0] for edge in raw.node.next_functions]
    given, budget = _given_by(raw, inputs, above, context), [_BREADTH]
    raw.fact = replace(
        raw.fact,
        output=named(described, raw),
        inputs=tuple(
            operand(
                name,
                tensor,
                context,
                index=index,
                shape=shape,
                values=old.get(id(tensor)),
                frame=sys._getframe(),
            )
            for name, tensor in inputs
            if id(tensor) in old or tensor is not output
        ),
        scalars=tuple(
            (name, value)
            for name, value in op.info.named_arguments(op.args, op.kwargs)
            if _is_scalar(value)
        ),
        ancestry=tuple(_ancestor(node, context, _LEVELS, budget) for node in above),
        given_by=operand(*given, context, frame=sys._getframe()) if given is not None else None,
        shifted=_shifted(raw, inputs, above, context),
        normed=_normed(raw, inputs, given, context),
        bound=_bound(raw, inputs, shape, context),
    )
    if raw.node is not None:
        _describe_saved(raw, shape, context, op.running)


def _given_by(
    raw: Raw, inputs: list[tuple[str, torch.Tensor]], above: list[Any], context: RunContext
) -> tuple[str, torch.Tensor] | None:
    """The parameter that makes the op's only operand negative or 0, or its divisor 0, with the name
    of that."""
    divides = has(raw.note.info.name, Trait.DIVIDES)
    if raw.node is not None or not inputs or (len(inputs) > 1 and not divides):
        return None
    role, value = inputs[-1]
    holds = next((one for one in (_is_negative, is_zero) if one(value)), None)
    found = _parameter_behind(above[-1], context, holds) if holds is not None else None
    if holds is is_zero and value.is_leaf and value.requires_grad:
        found = value
    return (role, found) if found is not None else None


def _shifted(
    raw: Raw, inputs: list[tuple[str, torch.Tensor]], above: list[Any], context: RunContext
) -> Ancestor | None:
    """The sum with a number by which alone the op's only operand is negative."""
    if raw.node is not None or len(inputs) != 1 or not _is_negative(inputs[0][1]):
        return None
    node = above[0]
    for _ in range(_FACTORS):
        call = context.call(node)
        if call is not None and abs(call.constant or 0.0) > EPSILON:
            return _ancestor(node, context, _LEVELS, [_BREADTH])
        node = _only_input(node, context, _is_negative) if node is not None else None
    return None


def _normed(
    raw: Raw,
    inputs: list[tuple[str, torch.Tensor]],
    given: tuple[str, torch.Tensor] | None,
    context: RunContext,
) -> Normed | None:
    """Of a weight of zeros that is divided by its norm: by one op, or along most dimensions by what
    that is made of."""
    if raw.note.info.name == _WEIGHT_NORM:
        given = next((one for one in inputs if one[0] == "v"), None)
    weight = given[1] if given is not None else None
    return context.built.normed(weight) if weight is not None and is_zero(weight) else None


def _bound(
    raw: Raw,
    inputs: list[tuple[str, torch.Tensor]],
    shape: tuple[int, ...],
    context: RunContext,
) -> LostBound | None:
    seq, given = (raw.seq, inputs) if raw.node is None else (raw.node_seq, [])
    read = context.bounds.read_by(seq, given)
    kept = {role: _at(one.values, raw.fact.index, shape, 0) for role, one in read.items()}
    return fact(read, {role: at for role, at in kept.items() if at is not None})


def _is_scalar(value: object) -> bool:
    is_sizes = isinstance(value, list | tuple) and all(isinstance(one, int) for one in value)
    return is_sizes or isinstance(value, int | float | bool | str)


def named(output: Operand, raw: Raw) -> Operand:
    """The result under the name that the program is about to give it, where it has none yet."""
    if output.name is not None or raw.fact.phase is not Phase.FORWARD:
        return output
    return replace(output, name=assigned_name(raw.note.user))


def _describe_saved(
    raw: Raw, shape: tuple[int, ...], context: RunContext, running: NodeOps
) -> None:
    """The operands of the forward call, as its node saved them, named as in its schema."""
    if raw.blame is None or raw.blame.custom is not None:
        return
    found: list[Operand] = []
    scalars: list[tuple[str, object]] = []
    early = running.saved
    for role, value in saved_by(raw.node, running) if early is None else early:
        if isinstance(value, torch.Tensor):
            running.saved_keys.add(storage_key(value))
            found.append(
                operand(
                    role, value, context, index=raw.fact.index, shape=shape, frame=sys._getframe()
                )
            )
        elif _is_scalar(value):
            scalars.append((role, tuple(value) if isinstance(value, list | tuple) else value))
    saved = (*found, *_operand_from_result(raw.blame.info.name, found))
    saved = saved or tuple(_operand_from_formula(raw))
    raw.fact = replace(raw.fact, saved=saved, scalars=tuple(scalars))


def saved_by(node: Any, running: NodeOps) -> Iterator[tuple[str, Any]]:
    """What a running node has saved, with its names.

    Tensors under saved-tensor hooks were seen when the node unpacked them, in the order in which
    the node's type declares them.
    """
    tensors = [name for name in vars(type(node)) if name.startswith("_raw_saved_")]
    hooked = dict(zip(tensors, running.unpacked, strict=False)) if running.unpacked else {}
    for name in dir(node):
        if not name.startswith("_saved_"):
            continue
        role = name.removeprefix("_saved_")
        raw_name = f"_raw_saved_{role}"
        if hooked and raw_name in tensors:
            if raw_name in hooked:
                yield role, hooked[raw_name]
            continue
        try:
            yield role, getattr(node, name)
        except RuntimeError:  # freed already
            continue


def _operand_from_result(op: str, saved: list[Operand]) -> tuple[Operand, ...]:
    known, by_role = lookup(op), {item.role: item for item in saved}
    inverse, result = known.inverse if known is not None else None, by_role.get("result")
    if inverse is None or result is None or result.at is None or "self" in by_role:
        return ()
    kept = {name: getattr(result, name) for name in ("shape", "dtype", "device", "numel")}
    return (Operand("self", **kept, at=inverse(result.at)),)


def _operand_from_formula(raw: Raw) -> Iterator[Operand]:
    """A write into a view hides its node, and what that saved, inside of CopySlices: an operand
    of 0 shows in the division that its formula makes."""
    divisor = next((one for one in raw.fact.inputs if one.role == "other" and one.at == 0), None)
    op = raw.blame.info.name.removesuffix("_") if raw.blame is not None else ""
    point = singularity(op)
    at_zero = point is not None and (point.argument, point.points) == ("self", (0.0,))
    if divisor is not None and raw.note.info.name == "div" and at_zero:
        yield replace(divisor, role="self", name=None, min=None, max=None)


def describe_grad_output(raw: Raw, ops: NodeOps) -> None:
    """What came into the node, at the event's element."""
    tensor = gradient_in(ops)
    values = numbers(tensor) if tensor is not None else None
    if values is None:
        return
    shape = raw.fact.output.shape if raw.fact.output is not None else ()
    found = value_at(values, raw.fact.index, shape)
    if found is None and not values.any():
        found = 0.0  # zero everywhere, so also where the shapes do not tell
    raw.fact = replace(raw.fact, grad_output=found)


def locate(raw: Raw, bad: Places) -> None:
    """Which elements of the event's tensor are bad."""
    raw.fact = replace(raw.fact, **asdict(bad))


def describe_briefly(raw: Raw, output: torch.Tensor, values: torch.Tensor) -> None:
    """The least that a report needs of an event that is hardly ever to blame."""
    locate(raw, places(values))
    raw.fact = replace(raw.fact, output=named(census(values, "output", output), raw))


def describe_source(raw: Raw, role: str, tensor: torch.Tensor, context: RunContext) -> None:
    """Bad values that were there before any observed op: what holds them."""
    values = numbers(tensor)
    assert values is not None
    locate(raw, places(values))
    shape = tuple(values.shape)
    described = operand(
        role, tensor, context, index=raw.fact.index, shape=shape, frame=sys._getframe()
    )
    raw.fact = replace(raw.fact, inputs=(described,), output=described)


def _grad_fn(tensor: torch.Tensor) -> Any:
    """None also for a view made under no_grad whose base was written since: torch will not say."""
    try:
        return tensor.grad_fn
    except RuntimeError:
        return None


def _ancestor(node: Any, context: RunContext, levels: int, budget: list[int]) -> Ancestor | None:
    if node is None or levels == 0 or budget[0] <= 0:
        return None
    budget[0] -= 1
    return Ancestor(
        node=node_name(node),
        call=context.call(node),
        inputs=tuple(
            _ancestor(edge[0], context, levels - 1, budget) for edge in node.next_functions
        ),
    )


def _parameter_behind(node: Any, context: RunContext, holds: _Test) -> torch.Tensor | None:
    """The parameter by which alone `holds`, _is_negative or is_zero, is true of what the node gave:
    up through products, quotients and sums, as long as nothing else that they take is so. None
    where there may be others, or where autograd has not saved the factors."""
    for _ in range(_FACTORS):
        variable = getattr(node, "variable", None)
        if isinstance(variable, torch.Tensor):
            return variable if holds(variable) else None
        if node is None:
            return None
        node = _only_input(node, context, holds)
    return None


def _only_input(node: Any, context: RunContext, holds: _Test) -> Any:
    """The node by which alone it can be true of the result of this one."""
    above = inputs(node)
    name = node_name(node)
    if has(name, Trait.MULTIPLIES | Trait.DIVIDES) and hasattr(type(node), "_saved_other"):
        factors = zip((saved(node, "self"), saved(node, "other")), node.next_functions, strict=True)
        may_be = [
            one
            for value, (one, _) in factors
            if (one is not None if value is None else holds(value))
        ]
        return _only(may_be)
    if has(name, Trait.SUMS | Trait.ADDS) and not has(name, Trait.SUBTRACTS):
        return _only([one for one in above if not has(node_name(one), Trait.POSITIVE)])
    call = context.call(node)
    moves = call is not None and (call.view or has(call.op, Trait.COPIES | Trait.CHOOSES))
    return _only(above) if moves or holds is is_zero else None


def _is_negative(value: torch.Tensor) -> bool:
    """Whether an element is; of complex numbers none is."""
    seen = numbers(value)
    return seen is not None and bool((seen < 0).any())


def _only(nodes: list[Any]) -> Any:
    return nodes[0] if len(nodes) == 1 else None

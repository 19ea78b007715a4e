"""What an op's schema says: which arguments are tensors, which are written, what is returned.

Read once an `OpOverload` and kept: the recorder asks at every op.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import torch

from gradscope.dataclass import dataclass
from gradscope.ops.requirements import INDEXING, REFUSES
from gradscope.ops.table import breaks_at_operands, lookup
from gradscope.ops.traits import Trait, has

# Memory that nothing has written yet; reading it is a cause of its own, making it is not.
_ALLOCATIONS = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided"}
_BLENDS = {"add", "sub", "mul", "lerp"}
_ATEN = "aten"  # whose names the op tables go by
# Torch's own namespaces of collectives. Those that return no result fill their first argument, and
# end in an underscore: `c10d::send` and `c10d::barrier` fill nothing.
_COLLECTIVES = "c10d"
_SHARDING = "fsdp"
_STATISTICS = ("running_mean", "running_var")
_FUNCTIONAL_COLLECTIVES = ("_c10d_functional", "_c10d_functional_autograd")


@dataclass(frozen=True, slots=True)
class OpInfo:
    """What the recorder needs to know of one `OpOverload`.

    `skip`: the outputs are views of the inputs, or nothing that can be non-finite.
    `shape_only`: of its tensors it takes shape, dtype and device, and no values (zeros_like).
    `finite`: the result is finite whatever the operands. `hands_on`: it is where the operand is.
    `view`: the outputs share the operand's memory. `keeps_operand`: its operand is what a report
    tells of it, so that it is kept where the op overwrites it.
    `shifts`: add or sub, whose number may be an epsilon that came too late.
    `blends`: it scales or adds, and writes into nothing.
    `sends`: a collective, or the sending of one tensor. `receives`: one that fills memory with what
    other ranks send, later than it returns: with `fills_first` that of its first argument, else
    that of its result. `fills_part`: it copies into memory that a collective fills then, and the
    rest of it is whatever was there.
    `written`: positions (int) and keyword names (str) of the arguments that the op writes.
    `running`: it has statistics that it only updates in training, whatever its schema says.
    `draws`: it draws from a generator.
    `native`: it is one of torch's own; the kernel of another one may be Python.
    """

    name: str
    overload: str = ""
    argument_names: tuple[str, ...] = ()
    skip: bool = False
    draws: bool = False
    allocates: bool = False
    fills: bool = False
    written: tuple[int | str, ...] = ()
    shifts: bool = False
    blends: bool = False
    finite: bool = False
    hands_on: bool = False
    sends: bool = False
    receives: bool = False
    fills_first: bool = False
    fills_part: bool = False
    shape_only: bool = False
    view: bool = False
    keeps_operand: bool = False
    hangs_on_modes: bool = False
    fill_hangs_on_modes: bool = False
    matrix: str = ""  # the argument that is decomposed
    regular: bool = False  # it may not be singular
    definite: bool = False  # nor an indefinite one
    refuses: bool = False  # numbers outside of a range, or indices of what is not there
    running: bool = False
    native: bool = False

    def named_arguments(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[str, Any]]:
        """Each argument with its name in the schema, in the order of the schema."""
        yield from zip(self.argument_names, args, strict=False)
        yield from kwargs.items()

    def tensors(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Each tensor whose values it reads, with its name; one of a list gets `tensors[2]`."""
        if self.shape_only:
            return
        updated = self.running and self._trains(args, kwargs)
        for name, value in self.named_arguments(args, kwargs):
            if updated and name in _STATISTICS:
                continue
            if isinstance(value, torch.Tensor):
                yield name, value
            elif isinstance(value, list | tuple):
                for position, item in enumerate(value):
                    if isinstance(item, torch.Tensor):
                        yield f"{name}[{position}]", item

    def _trains(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return bool(dict(self.named_arguments(args, kwargs)).get("training"))

    def updated_tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The running statistics that the op has moved towards those of its operand."""
        if not self.running or not self._trains(args, kwargs):
            return []
        arguments = dict(self.named_arguments(args, kwargs))
        return [one for key in _STATISTICS if (one := arguments.get(key)) is not None]

    def written_tensors(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        """The tensors that the op wrote in place, foreach lists flattened."""
        found: list[torch.Tensor] = []
        for key in self.written:
            value = (
                kwargs.get(key) if isinstance(key, str) else args[key] if key < len(args) else None
            )
            if isinstance(value, torch.Tensor):
                found.append(value)
            elif isinstance(value, list | tuple):
                found.extend(item for item in value if isinstance(item, torch.Tensor))
        return found


def plain_name(op: str) -> str:
    """`_foreach_addcdiv_` and `addcdiv_` are `addcdiv` to a user; `_softmax` keeps its name."""
    op = op.removeprefix("_foreach_")
    if op.endswith("_") and not op.endswith("__"):
        op = op[:-1]
    return op


@cache
def read_schema(func: Any) -> OpInfo:
    """The facts of an `OpOverload` (or of a higher-order op, which has no schema to read)."""
    schema = getattr(func, "_schema", None)
    if schema is None:
        return OpInfo(getattr(func, "__name__", str(func)))
    namespace, _, raw_name = schema.name.rpartition("::")
    is_aten, name = namespace == _ATEN, plain_name(raw_name)
    if not is_aten and hasattr(torch.ops.aten, name):
        name = f"{namespace}.{name}"  # what is known of aten's op says nothing of this one
    fills_first = namespace == _COLLECTIVES and raw_name.endswith("_")
    written = tuple(
        argument.name if argument.kwarg_only else position
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    views = _only_views(schema)
    no_tensor = not any("Tensor" in str(result.type) for result in schema.returns)
    fact = lookup(name)
    matrix = fact.matrix if fact is not None else None
    return OpInfo(
        name=name,
        overload=schema.overload_name,
        argument_names=tuple(argument.name for argument in schema.arguments),
        skip=not written and (views or no_tensor),
        draws=torch.Tag.nondeterministic_seeded in func.tags,
        allocates=name in _ALLOCATIONS,
        fills=has(name, Trait.FILLS),
        written=written,
        shifts=has(name, Trait.SHIFTS),
        blends=not written and name in _BLENDS,
        finite=has(name, Trait.FINITE),
        hands_on=has(name, Trait.FINITE_AS_OPERAND),
        view=views,
        keeps_operand=torch.Tag.pointwise in func.tags and breaks_at_operands(name),
        hangs_on_modes=has(name, Trait.HANGS_ON_MODES)
        or (not schema.overload_name and has(name, Trait.SIGN_HANGS_ON_MODES)),
        fill_hangs_on_modes=bool(schema.overload_name == "Tensor")
        and has(name, Trait.FILL_HANGS_ON_MODES),
        matrix=matrix.argument if matrix is not None else "",
        regular=matrix is not None and matrix.values is None,
        running=any(argument.name in _STATISTICS for argument in schema.arguments),
        definite=matrix is not None and matrix.definite,
        refuses=name in REFUSES or name in INDEXING,
        native=is_aten,
        sends=namespace in (_COLLECTIVES, *_FUNCTIONAL_COLLECTIVES),
        receives=fills_first or namespace in _FUNCTIONAL_COLLECTIVES,
        fills_first=fills_first,
        fills_part=namespace == _SHARDING,
        # Aten's naming rule for its factories; no schema tells that values are not read.
        shape_only=is_aten and (name.endswith("_like") or name.startswith("new_")),
    )


def _only_views(schema: Any) -> bool:
    return (
        bool(schema.returns)
        and all(
            result.alias_info is not None and not result.alias_info.is_write
            for result in schema.returns
        )
        and schema.name != "aten::lift_fresh"
    )

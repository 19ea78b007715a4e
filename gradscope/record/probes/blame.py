"""Which op, on which line of a backward, made a gradient that it returned, and how that line is
corrected where the relation to the right gradient allows it; or which tensor forward has saved in
the place of another."""

import inspect
import math
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from gradscope.dataclass import dataclass
from gradscope.facts import FunctionCheck, Relation, SavedInstead, TensorFactor
from gradscope.ops.traits import Trait, has
from gradscope.record.definitions import is_in_loop, returned, widened
from gradscope.record.dispatch import Unseen
from gradscope.record.probes.calls import Copied
from gradscope.record.probes.derivative import OUTPUT, Sample, Truth
from gradscope.record.probes.relations import FORMS, wrong_at
from gradscope.record.schema import read_schema
from gradscope.record.sites import resolve


@dataclass(frozen=True, slots=True)
class _Op:
    name: str
    output: Any
    first: Any  # the tensor that it reads its numbers from
    passes_on: bool  # it computes none: what computed them is to blame
    code: CodeType
    lasti: int


class Watcher(Unseen):
    """Notes the ops that one call of a backward makes, and where its own code asked for them;
    `tensors`, `sizes` and `numbers` are what its frame held last, by name."""

    def __init__(self, formula: Any) -> None:
        super().__init__()
        self.tensors: Mapping[str, Tensor] = {}
        self.sizes: Mapping[str, tuple[int, ...]] = {}
        self.numbers: Mapping[str, float] = {}
        self._code: CodeType | None = getattr(inspect.unwrap(formula), "__code__", None)
        self._ops: list[_Op] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        frame: Any = sys._getframe(1)
        # Backward's own code, also for an op inside of a helper.
        while self._code is not None and frame is not None and frame.f_code is not self._code:
            frame = frame.f_back
        if self._code is not None and frame is not None:
            held = frame.f_locals
            self.tensors = {k: v for k, v in held.items() if isinstance(v, Tensor)}
            self.sizes = {k: tuple(v) for k, v in _attributes(held) if isinstance(v, torch.Size)}
            self.numbers = {k: v for k, v in _attributes(held) if type(v) in (int, float)}
            self._ops.append(_op(func, args, out, self._code, frame.f_lasti))
        return out

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {name: tuple(one.shape) for name, one in self.tensors.items()}

    @property
    def names(self) -> Mapping[str, bool]:
        """What a formula may use, and whether it is a number."""
        return dict.fromkeys(self.tensors, False) | dict.fromkeys(self.numbers, True)

    def shape_of(self, value: Tensor) -> str:
        """As code, the shape of an input of that value: "" where backward does not hold it."""
        if (name := named(self.tensors, value)) is not None:
            return f"{name}.shape"
        found = [name for name, size in self.sizes.items() if size == value.shape]
        return found[0] if len(found) == 1 else ""

    def blamed(self, check: FunctionCheck, cls: Any, gradient: Any) -> FunctionCheck:
        """The check with the returned expression, or the assignment, that computed its gradient;
        its op is empty where no op of backward made it."""
        maker = self._maker(gradient) if isinstance(gradient, Tensor) else None
        calls = [op for op in self._ops if maker and op.code is maker.code]
        # In a loop it has made a part, or a sum of which it is a term.
        is_whole = maker is not None and (
            [op.lasti for op in calls].count(maker.lasti) == 1
            or not is_in_loop(maker.code, maker.lasti)
        )
        place = widened(maker.code, maker.lasti, check.position) if maker and is_whole else None
        place = place or returned(cls.backward, check.position)
        if place is None and maker:
            place = resolve(maker.code, maker.lasti)
        op = maker.name.removesuffix("_") if maker else ""
        return replace(check, op=op, location=place, forward=returned(cls.forward, 0))

    def _maker(self, gradient: Tensor) -> _Op | None:
        """The last op that computed a returned gradient's numbers; None where backward returned
        what it was given."""
        found = None
        for op in reversed(self._ops):
            if op.output is gradient or _writes_into(op, gradient):
                found = op
                if not op.passes_on:
                    break
                gradient = op.first
        return found

    # The corrected expression

    def corrected(self, relation: Relation, shape: tuple[int, ...]) -> str | None:
        """A template, where the relation that was found allows one: `{returned}` is what backward
        returns now, of `shape`, `{elementwise}` that without its mean, `{grad_output}` its
        argument."""
        text = "{returned}"
        for kind in reversed(relation.kinds):
            match kind:
                case "factor" if relation.factor is not None:
                    written = self.spelled(relation.factor, shape)
                    if written is None:
                        return None
                    text = f"{text} {' '.join(written)}"
                case "sign":
                    text = f"-{text}"
                case "ignored":
                    sign = "-" if text.startswith("-") else ""
                    came = self._came(shape)
                    if came is None:
                        return None
                    text = f"{sign}{came} * {text.removeprefix('-')}"
                case "mean" | "number" if relation.detail != "unrelated":
                    text = text.replace("{returned}", "{elementwise}")
                case "transposed" if len(shape) == 2:
                    text = text.replace("{returned}", "{returned}.mT")
                case "unsummed":
                    text = f"{{returned}}.sum({relation.detail})"
                case "extra" | "missing" if isinstance(relation.detail, TensorFactor):
                    form, name = relation.detail.form, relation.detail.name
                    if name not in self.shapes:
                        return None
                    code = FORMS[form].replace("{}", name)
                    text = f"{text} {'/' if kind == 'extra' else '*'} {code}"
                case _:
                    return None
        return text

    def _came(self, shape: tuple[int, ...]) -> str | None:
        """As code, the gradient that came in, of several outputs that of the same shape, spread
        over what was reduced; None where it does not go with what is returned."""
        count = self._code.co_argcount if self._code is not None else 0
        names = self._code.co_varnames[1:count] if self._code is not None else ()
        alike = [name for name in names if self.shapes.get(name, shape) == shape]
        name = next(iter((*alike, *names)), "")
        came = self.shapes.get(name, shape)
        text = "{grad_output}" if name in ("", *names[:1]) else name
        if math.prod(came) == 1:
            return text
        is_part = came == shape[: len(came)]
        return text + ".unsqueeze(-1)" * (len(shape) - len(came)) if is_part else None

    def spelled(self, factor: float, shape: tuple[int, ...]) -> tuple[str, str] | None:
        """`/` and `n` for a gradient that is too large by a factor, `*` and `n` for one that is
        too small."""
        for number, sign in ((factor, "/"), (1 / factor, "*")):
            written = self._whole(number, shape) or self._fraction(number)
            if written is not None:
                return sign, written
        return None

    def _fraction(self, number: float) -> str | None:
        """As code, where backward holds it or its complement: `ctx.p`, `(1 - ctx.p)`."""
        for name, value in self.numbers.items():
            forms = {name: value, f"(1 - {name})": 1 - value, f"(1 + {name})": 1 + value}
            for text, form in forms.items():
                if value not in (0, 1) and math.isclose(form, number, rel_tol=1e-6):
                    return text
        return None

    def _whole(self, number: float, shape: tuple[int, ...]) -> str | None:
        """As code: a name that holds it, a size of a tensor, or the number itself."""
        whole = round(number)
        if whole < 1 or abs(number - whole) > 1e-3 * number:
            return None
        names = [name for name, value in self.numbers.items() if value == whole > 1]
        if whole > 4:  # small numbers are constants of the formula, not sizes
            names += [name for name, size in self._sizes(shape) if size == whole]
        return next(iter(names), str(whole) if whole <= 16 else None)

    def _sizes(self, shape: tuple[int, ...]) -> Iterator[tuple[str, int]]:
        """Sizes of backward's tensors as code, the likeliest to be divided by first."""
        tensors = [(name, found) for name, found in self.shapes.items() if found]
        counts = [(f"{name}.numel()", math.prod(found)) for name, found in tensors]
        yield from (
            count for count, (_, found) in zip(counts, tensors, strict=True) if found == shape
        )
        yield from ((f"{name}.shape[0]", found[0]) for name, found in tensors)
        for name, found in tensors:
            yield from ((f"{name}.shape[{dim}]", size) for dim, size in enumerate(found))
        yield from counts


def _op(func: Any, args: tuple[Any, ...], out: Any, code: CodeType, lasti: int) -> _Op:
    name = func._schema.name.partition("::")[2]
    tensors = [arg for arg in args if isinstance(arg, Tensor)]
    source = tensors[1:2] if name == "copy_" else tensors[:1]
    info = read_schema(func)
    passes_on = info.view or has(info.name, Trait.COPIES) or name == "copy_"
    return _Op(name, out, source[0] if source else None, passes_on, code, lasti)


def _attributes(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A frame's values, and what forward left on the ctx: `ctx.scale`, `ctx.shape[1]`."""
    yield from names.items()
    for name, held in names.items():
        if isinstance(held, FunctionCtx):
            for key, value in vars(held).items():
                yield f"{name}.{key}", value
                if isinstance(value, tuple | list):
                    yield from ((f"{name}.{key}[{i}]", one) for i, one in enumerate(value))


def _writes_into(op: _Op, gradient: Any) -> bool:
    """Whether an in-place op changed part of a gradient through a view of it."""
    if not (op.name.endswith("_") and isinstance(op.output, Tensor)):
        return False
    if not isinstance(gradient, Tensor):
        return False
    return op.output.untyped_storage().data_ptr() == gradient.untyped_storage().data_ptr()


def saved_wrongly(sample: Sample, place: int, truth: Truth) -> Relation | None:
    """Backward with another tensor in the place of one that it had saved: if that gives the
    right gradient, the wrong one was saved."""
    if truth.whole:
        return None
    known, right = sample.tensors(), truth.right[place][0]
    for index, saved in enumerate(sample.base.node.saved_tensors):
        if not isinstance(saved, Tensor) or not saved.is_floating_point():
            continue
        for name, tensor in _substitutes(saved, known):
            if not sample.calls.left:
                return None
            ctx = Copied(sample.base.node, {index: tensor.to(saved.dtype)})
            try:
                raw = sample.calls.backward(sample.base, sample.cotangents[0], ctx)[place]
            except Exception:
                continue
            if raw is not None and sample.fits(place, raw):
                found = sample.adapted(place, raw)
                if not bool(wrong_at(found, right, truth.tolerance, truth.noise).any()):
                    was = named(known, saved) or f"saved_tensors[{index}]"
                    return Relation(("saved",), None, SavedInstead(was, name, name == OUTPUT))
    return None


def _substitutes(saved: Tensor, known: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    for name, one in sorted(known.items(), key=lambda pair: pair[0] != OUTPUT):
        if one.shape == saved.shape and not torch.equal(one, saved.to(one.dtype)):
            yield name, one
    if saved.ndim == 2 and saved.shape[0] == saved.shape[1] > 1:
        yield "its transpose", saved.mT


def named(tensors: Mapping[str, Tensor], tensor: Tensor) -> str | None:
    """The name under which a tensor's values are known."""
    for name, known in tensors.items():
        if known.shape == tensor.shape and torch.equal(known.to(tensor.dtype), tensor):
            return name
    return None

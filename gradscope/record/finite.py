"""Is a tensor finite, and if not, where and how much of it.

The quick question costs one reduction: a sum is finite unless an element is not, or unless it
overflows, so only a non-finite sum is looked at again, exactly. Large tensors are looked at a piece
at a time, so that no question needs memory of their size.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import cycle
from typing import Any

import torch

HALF = (torch.float16, torch.bfloat16)
_SMALL = 2**14  # elements: copying them costs less than an op for each of them
_SLOTS = 64  # numbers of a GPU that nobody has read yet: each step asks for two
_COMPRESSED = (torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
# Of a tensor with one element, as `Tensor.item` does it, and as it did before anything was put
# around that.
item: Callable[[torch.Tensor], Any] = torch._C.TensorBase.item
is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
_inside = torch._C._functorch.get_unwrapped
_is_batched = torch._C._functorch.is_batchedtensor
_is_legacy_batched = torch._C._functorch.is_legacy_batchedtensor


def plain(tensor: torch.Tensor) -> torch.Tensor | None:
    """The dense local values to look at; None where there are none (meta, fake, quantised)."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        held = _held_by(tensor)
        if held is None:
            return None
        tensor = held
    tensor = unwrapped(tensor)
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested or tensor._is_zerotensor():
        return None
    if is_indirect(tensor):
        return None
    if tensor.layout is not torch.strided:
        if tensor.layout is torch.sparse_coo:
            return plain(tensor._values())
        return plain(tensor.values()) if tensor.layout in _COMPRESSED else None
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return None
    if tensor.numel() and not tensor.data_ptr():
        # Freed under the tensor, as sharded training does between uses; or never there, as of what
        # a node has saved of a subclass that only wraps its values.
        return None
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if tensor.element_size() == 1:  # float8 has no arithmetic of its own
        return tensor.to(torch.float32)
    return tensor


def dtype_of(tensor: torch.Tensor) -> str:
    """As facts call it: "float32"."""
    return str(tensor.dtype).removeprefix("torch.")


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The program's own tensor inside of what torch.func makes of it."""
    while is_wrapped(tensor):
        tensor = _inside(tensor)
    return tensor


def batch_dims(tensor: torch.Tensor) -> int:
    """How many dimensions `vmap` has put before those that the program sees."""
    found = 0
    while is_wrapped(tensor):
        found += _is_batched(tensor)
        tensor = _inside(tensor)
    return found


def is_indirect(tensor: torch.Tensor) -> bool:
    """Whether its values lie in another tensor, which only its own dispatch reaches: what
    functionalization and the older `vmap` (of batched gradients) compute with."""
    return torch._is_functional_tensor(tensor) or _is_legacy_batched(tensor)


def _held_by(tensor: torch.Tensor) -> torch.Tensor | None:
    """The values of a tensor of a subclass, without asking its own code for any arithmetic: a
    DTensor would start a collective, others count what they are asked for."""
    cls = type(tensor)
    if cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
        with torch._C.DisableTorchFunctionSubclass():
            return tensor.as_subclass(torch.Tensor)
    if hasattr(cls, "fake_device"):
        return None
    flatten = getattr(tensor, "__tensor_flatten__", None)
    names = flatten()[0] if flatten is not None else vars(tensor)
    held = (getattr(tensor, name) for name in names)
    tensors = (one for one in held if isinstance(one, torch.Tensor))
    return next((one for one in tensors if one.is_floating_point() or one.is_complex()), None)


def elements(tensor: torch.Tensor) -> int:
    """How many a tensor has; 0 of one that is sharded over ranks and has none on this one."""
    held = None if type(tensor) in (torch.Tensor, torch.nn.Parameter) else _held_by(tensor)
    return tensor.numel() if held is None or held.numel() else 0


def quick_sum(tensor: torch.Tensor) -> torch.Tensor:
    """A 0-d tensor that is non-finite if an element is. Half types add up in float32, since
    their own range is left by healthy sums."""
    if tensor.dtype in HALF:
        return torch.sum(tensor, dtype=torch.float32)
    return tensor.sum()


def quick_total(tensor: torch.Tensor) -> float | complex:
    """The same as a number. The CPU copies a half type to float32 before it adds it up."""
    if tensor.dtype in HALF and tensor.is_cpu:
        return sum_as(tensor, torch.float32)
    total: float | complex = item(quick_sum(tensor))
    return total


def looks_finite(tensor: torch.Tensor) -> bool:
    """False when `tensor` (as given by `plain`) holds NaN or inf; exact."""
    for piece in pieces(tensor):
        total = quick_total(piece)
        if total - total != 0.0 and not all(map(math.isfinite, ends_of(piece))):
            return False
    return True


def ends_of(tensor: torch.Tensor) -> tuple[float, float]:
    """The least and the greatest element, NaN where one is; of nothing, infinities. One pass, many
    times as fast as `torch.isfinite`."""
    if not tensor.numel():
        return math.inf, -math.inf
    least, greatest = torch.aminmax(tensor)
    return float(item(least)), float(item(greatest))


def holds_bad(tensor: torch.Tensor) -> bool:
    """Whether any tensor, of whatever kind, holds NaN or inf that can be looked at."""
    values = plain(tensor)
    return values is not None and values.numel() > 0 and not looks_finite(values)


def has_nan(tensor: torch.Tensor) -> bool:
    values = plain(tensor)
    return values is not None and some_nan(values)


def some_nan(values: torch.Tensor) -> bool:
    """Of a tensor as given by `plain`, in one pass where all is finite."""
    return any(
        not looks_finite(piece) and math.isnan(ends_of(piece)[0]) for piece in pieces(values)
    )


def is_zero(tensor: torch.Tensor) -> bool | None:
    """Whether every element is 0; None for what cannot be looked at."""
    values = plain(tensor)
    return None if values is None else not bool(values.any())


def numbers(tensor: torch.Tensor) -> torch.Tensor | None:
    """`plain` with one number an element, for counts and places: the magnitude of a complex one."""
    values = plain(tensor)
    is_pairs = values is not None and tensor.is_complex()
    return torch.view_as_complex(values).abs() if values is not None and is_pairs else values


def value_at(tensor: torch.Tensor, index: tuple[int, ...], shape: tuple[int, ...]) -> float | None:
    """The element that broadcasting puts at `index` of a result of `shape`; None where the
    tensor does not broadcast to it."""
    if tensor.numel() == 1:
        return float(tensor.reshape(()).item())
    part = part_at(tensor, index, shape)
    return float(part.item()) if part is not None and part.numel() == 1 else None


def part_at(
    values: torch.Tensor, index: tuple[int, ...], shape: tuple[int, ...]
) -> torch.Tensor | None:
    """The elements that meet the one at `index` of what has that `shape`, by broadcasting either
    way; None where the shapes do not tell."""
    ahead = values.dim() - len(shape)
    # Nothing is known, or complex numbers are looked at as pairs.
    if len(index) != len(shape) or (not shape and values.numel() > 1):
        return None
    place: list[int | slice] = [slice(None)] * max(ahead, 0)
    for size, wanted, position in zip(
        values.shape[max(ahead, 0) :], shape[max(-ahead, 0) :], index[max(-ahead, 0) :], strict=True
    ):
        if size not in (1, wanted) and wanted != 1:
            return None
        place.append(position if size == wanted else slice(None))
    return values[tuple(place)]


def runs_later(value: object) -> bool:
    """Whether an op on it is only asked for, and runs when a device comes to it."""
    return isinstance(value, torch.Tensor) and value.is_cuda


class _Slots:
    """Memory that a GPU writes numbers into when it comes to it, in slots that take turns. Neither
    `pin_memory` nor new events: to give those back ends the process once a kernel has failed."""

    def __init__(self, device: torch.device) -> None:
        self.numbers = torch.empty(_SLOTS, dtype=torch.float64)
        size = self.numbers.numel() * self.numbers.element_size()
        torch.cuda.check_error(
            torch.cuda.cudart().cudaHostRegister(self.numbers.data_ptr(), size, 0)
        )
        self.turns = cycle([(one, torch.cuda.Event()) for one in self.numbers])
        self.device = device

    def ask(self, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.cuda.Event]:
        there, done = next(self.turns)
        with torch.no_grad():
            there.copy_(tensor.reshape(()), non_blocking=True)
        done.record(torch.cuda.current_stream(self.device))
        return there, done


@cache  # as long as the process lives
def _slots(device: torch.device) -> _Slots | None:
    """None where no memory may be locked for it."""
    try:
        return _Slots(device)
    except RuntimeError:
        return None


class Number:
    """That of a tensor with one element. A GPU is asked at once, and hands it over when it has come
    so far: whoever reads it soon after hardly waits. Elsewhere it `is_known` from the start."""

    __slots__ = ("_done", "_there", "is_known")

    def __init__(self, tensor: torch.Tensor) -> None:
        slots = _slots(tensor.device) if runs_later(tensor) else None
        self.is_known = slots is None
        self._there = tensor
        if slots is not None:
            self._there, self._done = slots.ask(tensor)

    def read(self) -> float:
        if not self.is_known:
            self._done.synchronize()
        number: float = item(self._there)
        return number


def is_number(tensor: torch.Tensor) -> bool:
    """One plain floating number, as losses are, which can be read as it is."""
    if type(tensor) is not torch.Tensor or tensor.dim() or not (tensor.is_cpu or tensor.is_cuda):
        return False
    return tensor.is_floating_point() and not (is_wrapped(tensor) or is_indirect(tensor))


def sum_of(tensors: Iterable[torch.Tensor]) -> float | None:
    """The sum of all elements, of roots what backward differentiates; None where one cannot be
    read. In float64 where the device has it for nothing."""
    total = 0.0
    for tensor in tensors:
        if is_number(tensor):
            total += item(tensor)
            continue
        values = plain(tensor)
        if values is None:
            return None
        total += sum_as(values, torch.float64) if values.is_cpu else float(item(values.sum()))
    return total


def local(tensor: torch.Tensor) -> torch.Tensor:
    """The values that are here: of a DTensor its own part, of another subclass what it holds, which
    is all that can be computed with where no mode and no subclass sees it."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return tensor
    held = _held_by(tensor)
    return held if held is not None else torch.empty(0)


def shard_of(tensor: torch.Tensor) -> tuple[int, ...] | None:
    """Which part that is: its place along each dimension of the mesh over which it is divided. Two
    ranks that hold the same part have the same; None of what is whole on each."""
    if not is_distributed(tensor):
        return None
    one: Any = tensor
    places = one.device_mesh.get_coordinate() or ()
    divided = zip(places, one.placements, strict=False)
    return tuple(place for place, how in divided if how.is_shard()) or None


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether it is a DTensor."""
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return False
    module = sys.modules.get("torch.distributed.tensor")  # whoever has one has imported it
    return module is not None and isinstance(tensor, module.DTensor)


_ELEMENTS = 2**22  # in a piece


def pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """All elements in row-major order, as views: whole rows along dimension 0, or parts of one.
    Tensors of one shape come in pieces of the same shapes."""
    if tensor.numel() <= _ELEMENTS:
        yield tensor
        return
    row = tensor.numel() // tensor.shape[0]
    if row <= _ELEMENTS:
        yield from tensor.split(_ELEMENTS // row)
        return
    for part in tensor.unbind():
        yield from pieces(part)


def sum_as(tensor: torch.Tensor, dtype: torch.dtype) -> float:
    """The sum of all elements, added up in `dtype`: torch would copy all of them to it first. No
    tensor is held from one piece to the next, which would keep the memory between them."""
    return sum(float(item(piece.sum(dtype=dtype))) for piece in pieces(tensor))


def norm_of(values: torch.Tensor) -> float:
    """The L2 norm in float64: squares neither overflow nor vanish. NaN and inf stay."""
    norms = (_norm_of(piece) for piece in pieces(values))
    return math.hypot(*norms) if values.numel() > _ELEMENTS else next(norms)


def rms_of(tensor: torch.Tensor) -> float:
    """The root mean square of what can be looked at; 0 of nothing."""
    values = plain(tensor)
    if values is None or not values.numel():
        return 0.0
    return norm_of(values) / math.sqrt(values.numel())


def _norm_of(values: torch.Tensor) -> float:
    fast = torch.float32 if values.dtype in HALF else values.dtype
    norm = float(item(torch.linalg.vector_norm(values, dtype=fast)))
    if 1e-15 < norm < 1e15 or norm != norm:
        return norm
    return float(item(torch.linalg.vector_norm(values, dtype=torch.float64)))


def all_finite(tensors: Iterable[Any]) -> bool:
    """Whether none of them holds NaN or inf: by one fused pass over all, and exactly where that
    says no, since sums may leave the range of the dtype. What is no tensor is passed over."""
    small: list[torch.Tensor] = []
    large: list[torch.Tensor] = []
    others: list[torch.Tensor] = []
    for one in tensors:
        if type(one) is torch.nn.Parameter or type(one) is torch.Tensor:
            (small if one.numel() <= _SMALL else large).append(one)
        elif isinstance(one, torch.Tensor):
            others.append(one)
    try:
        total = _total(small, large)
        is_finite = total - total == 0.0
    except (RuntimeError, NotImplementedError, TypeError):
        is_finite = False  # sparse, integers, float8, several devices
    return (is_finite or not any(map(holds_bad, (*small, *large)))) and not any(
        map(holds_bad, others)
    )


def _total(small: list[torch.Tensor], large: list[torch.Tensor]) -> float:
    """A number that is finite only where all are. Small ones are added up as one."""
    sums = [norm.sum() for norm in torch._foreach_norm(large, 2.0)] if large else []
    if small:
        flat = torch._C._nn.flatten_dense_tensors(small) if len(small) > 1 else small[0]
        sums.append(quick_sum(flat))
    if len(sums) > 1 and not sums[0].is_cpu:  # one question in place of many
        return float(item(torch.stack([one.float() for one in sums]).sum()))
    return float(sum(map(item, sums)))

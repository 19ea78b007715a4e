"""Arguments of calls as JSON has them, and back. What is none of these is no argument of a kept
call: tensors by number, plain numbers and texts, and torch's names of dtypes, devices, layouts."""

import math
from collections.abc import Callable
from enum import Enum
from typing import Any

import torch

Json = Any
_NAMED = (torch.dtype, torch.layout, torch.memory_format)


class Unkept(Exception):
    """Something that a kept step cannot hold: what it is, and why, as in `NotChecked`."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what, self.why = what, why


class Unfit(Exception):
    """The JSON is not a value of a saved step."""


def written(
    value: Any, tensor: Callable[[torch.Tensor], int], store: Callable[[torch.Tensor], str]
) -> Json:
    """As JSON; a tensor is what `tensor` makes of it, and the elements of arrays what `store`
    does. Raises Unkept."""

    def parts(values: Any) -> list[Json]:
        return [written(one, tensor, store) for one in values]

    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, torch.Tensor):
        return {"t": tensor(value)}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, complex):
        return {"complex": [written(value.real, tensor, store), written(value.imag, tensor, store)]}
    if isinstance(value, int) and not isinstance(value, Enum):
        return int(value)
    if isinstance(value, torch.Size):
        return {"size": list(value)}
    if isinstance(value, list):
        return parts(value)
    if isinstance(value, tuple | range):
        return {"tuple": parts(value)}
    if type(value) is dict:
        return {
            "dict": [[written(key, tensor, store), *parts([one])] for key, one in value.items()]
        }
    if isinstance(value, slice):
        return {"slice": parts((value.start, value.stop, value.step))}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, _NAMED):
        return {"torch": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.Generator):
        return {"generator": [str(value.device), store(value.get_state())]}
    return _of_numpy(value, tensor, store)


def _of_numpy(value: Any, tensor: Any, store: Callable[[torch.Tensor], str]) -> Json:
    if type(value).__module__ == "numpy":
        if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
            return written(value.item(), tensor, store)
        try:
            return {"array": store(torch.tensor(value))}
        except (TypeError, RuntimeError, ValueError):
            pass
    raise Unkept("a call", f"it is given a {type(value).__name__}")


def read(value: Json, values: Callable[[int], Any], tensors: Callable[[str], torch.Tensor]) -> Any:
    """The value that `written` wrote. Raises Unfit."""

    def again(one: Json) -> Any:
        return read(one, values, tensors)

    if isinstance(value, list):
        return [again(one) for one in value]
    if not isinstance(value, dict):
        return value
    if len(value) != 1:
        raise Unfit("it holds a value of no kind")
    ((kind, held),) = value.items()
    match kind:
        case "t":
            return values(held)
        case "float" if held in ("inf", "-inf", "nan"):
            return float(held)
        case "complex":
            return complex(*map(again, held))
        case "size":
            return torch.Size(held)
        case "tuple":
            return tuple(map(again, held))
        case "dict":
            return {again(key): again(one) for key, one in held}
        case "slice":
            return slice(*map(again, held))
        case "ellipsis":
            return Ellipsis
        case "torch" if isinstance(found := getattr(torch, str(held), None), _NAMED):
            return found
        case "device":
            return device(held)
        case "generator":
            made = torch.Generator(device(held[0]))
            made.set_state(tensors(held[1]))
            return made
        case "array":
            return tensors(held).numpy()
    raise Unfit(f"it holds {str(kind)[:40]!r} where a value should be")


def device(name: str) -> torch.device:
    """The device of that name; the CPU where this machine has none such."""
    wanted = torch.device(name)
    there = wanted.type == "cpu" or (wanted.type == "cuda" and torch.cuda.is_available())
    return wanted if there or wanted.type == "meta" else torch.device("cpu")

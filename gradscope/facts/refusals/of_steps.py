"""What an optimizer, a GradScaler or DistributedDataParallel refused of a step."""

from gradscope.dataclass import dataclass
from gradscope.facts.places import Location
from gradscope.facts.refusals.of_graphs import Refusal, Write


@dataclass(frozen=True, slots=True, kw_only=True)
class PastScaler(Refusal):
    """A GradScaler was to adapt its `scale` to steps that went past it: `update` is the last one,
    along gradients that it had not divided by the scale."""

    update: Write
    scale: float


@dataclass(frozen=True, slots=True, kw_only=True)
class UnscaledTwice(Refusal):
    """A GradScaler was to divide the gradients by its scale again, before the step that lets it
    forget that it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreduced(Refusal):
    """DistributedDataParallel waits for the gradients of `parameters`, which the last backward did
    not give. `location` is where the first one's layer is defined."""

    parameters: tuple[str, ...]
    location: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StateOfAnother(Refusal):
    """An optimizer was to step with what it keeps of `name` under `key`, which is of the shape
    `kept` and not of the parameter's, `shape`: it was saved for another. `in_order`: the shapes
    that it keeps are those of its parameters, in another order. `location` is where it was made,
    `loaded` where its state was loaded."""

    optimizer: str
    name: str
    shape: tuple[int, ...]
    key: str
    kept: tuple[int, ...]
    in_order: bool
    location: Location | None
    loaded: Location | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutRefused(Refusal):
    """An optimizer of the class `optimizer` was to step along gradients that are `sparse`, where it
    takes dense ones alone, or along dense ones, where it takes sparse ones alone: those of the
    parameters `names`, out of all `held` that have a gradient. `layers` are the places where the
    modules are made that choose the layout of their gradients themselves, one for each of the
    parameters, or none. `location` is where the optimizer was made."""

    optimizer: str
    sparse: bool
    names: tuple[str, ...]
    held: int
    layers: tuple[Location, ...]
    location: Location | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComplexSetting(Refusal):
    """An optimizer of the class `optimizer` was to step with the setting `name`, which is a complex
    number, `real` + `imaginary` i. `location` is the power that gave it, where only one could."""

    optimizer: str
    name: str
    real: float
    imaginary: float
    location: Location | None


OfStep = PastScaler | UnscaledTwice | Unreduced | StateOfAnother | LayoutRefused | ComplexSetting

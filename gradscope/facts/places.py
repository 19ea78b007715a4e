"""Where in the user's source, and which call there."""

from __future__ import annotations

from gradscope.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Location:
    """A span of source. Lines are 1-based, columns 0-based in characters, as in Python's ast.

    `file` is relative to the current folder where it lies below it. `module` is the fqn of the
    `nn.Module` whose forward was running (`encoder.layers.3.attn`), None outside of modules.
    `installed`: the file is an installed package's or Python's own, and none that was asked to run.
    `cell`: it is no file but a cell of a notebook, `In [4]`.
    """

    file: str
    line: int
    col: int
    end_line: int
    end_col: int
    function: str
    module: str | None = None
    installed: bool = False
    cell: bool = False

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an op in the program.

    `op` is the aten name without namespace, overload, `_foreach_` and in-place underscore, or the
    class name of a custom `autograd.Function`. `location` is the innermost frame of the user's
    code; `inner` is the innermost Python frame when that lies in an installed package (the line
    of torch/nn/functional.py). `frames` are all user frames, innermost first. `node` is the
    autograd node that the call made, `seq` its sequence number (None where none was made).
    `value` is the result where it is a single number. `constant` is the Python number that add or
    sub took as its second operand (an epsilon, often), where the recorder noted it. `formula_of` is
    the call in whose backward the op ran, where that backward is differentiated too. `view`: the
    result shares the operand's memory.
    """

    op: str
    overload: str = ""
    location: Location | None = None
    inner: Location | None = None
    frames: tuple[Location, ...] = ()
    node: str | None = None
    seq: int | None = None
    value: float | None = None
    constant: float | None = None
    formula_of: Call | None = None
    view: bool = False


@dataclass(frozen=True, slots=True)
class LostBound:
    """A call that keeps values off points, which a half dtype rounds its numbers to: (point, number
    that it rounds). `instead` are the operands of an op that reads what it gives, as they would be
    at the event's index with those numbers."""

    call: Call
    dtype: str
    rounded: tuple[tuple[float, float], ...]
    instead: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Zeroed:
    """Where a parameter was made of zeros, or (`later`) filled with them, as the `number`th of all:
    the user's frames, innermost first. `drawn`: its layer had given it numbers before.

    `path` are the links that lead to its layer, from the variable that holds the model on: `net`
    (empty of the only one), `.branch`, `[-1]`. Of these, as many as `own` lead to the module of the
    method that fills it (0: there is none, or it is the whole model), as many as `given` to what
    each of the calls behind the innermost frame was given, up to the first that was given none, the
    whole model, or a weight that is not 0."""

    frames: tuple[Location, ...]
    number: int
    drawn: bool
    later: bool
    path: tuple[str, ...] = ()
    own: int = 0
    given: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Normed:
    """Where a layer whose weight is 0 was given to `weight_norm`: `inner` is the call of that, and
    `location` the one in the function that has made the weight 0, as far as one hands it on to the
    other, `beside` what in that function has led to `zeroed`, where it is in that. `own`: the
    weight was set to 0 by the name that it has since, as the direction alone."""

    location: Location
    inner: Location
    zeroed: Location
    beside: Location
    own: bool

"""Runs a kept step again: the same calls of torch's, in frames that lie where the program's lay."""

import ast
import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any

import torch

from gradscope.errors import GradscopeError
from gradscope.programs.step.allowed import function_of
from gradscope.programs.step.store import Stored, read
from gradscope.programs.step.surroundings import CODE
from gradscope.programs.step.tape import STEP
from gradscope.programs.step.values import Unfit
from gradscope.programs.step.values import read as value_of

Json = Any


def prepare(folder: Path) -> Callable[[], None]:
    """A function that runs the step of a folder. Raises GradscopeError where there is none."""
    player = _Player(read(folder))

    def run() -> None:
        try:
            player.run()
        except _Diverged:
            pass  # what cannot be kept was needed: it ends there
        except (Unfit, LookupError, TypeError) as error:
            if player.calling:
                raise  # as the program's own call did, or one that is not kept whole
            raise GradscopeError(f"{folder} does not hold together: {error}") from None

    return run


class _Diverged(Exception):
    """A call gives something else than it did: a gradient does not come through what was not
    kept."""


class _Player:
    def __init__(self, stored: Stored) -> None:
        self._stored, self._tables = stored, stored.tables
        self._values: dict[int, Any] = {}
        self._codes: dict[int, CodeType] = {}
        self._modules: dict[int, torch.nn.Module] = {}
        self._globals: dict[int, dict[str, Any]] = {}
        self._locals: dict[int, dict[str, Any]] = {}
        self._optimizers: dict[int, Any] = {}
        self._awaited: dict[int, list[tuple[dict[str, Any], str]]] = {}
        self._state: Json = None
        self.calling = False

    def run(self) -> None:
        torch.set_num_threads(max(1, min(int(self._stored.head["threads"]), 64)))
        self._make_leaves()
        for number in range(len(self._tables["modules"])):
            self._module(number)
        self._name_modules()
        for number in range(len(self._tables["optimizers"])):
            with suppress(KeyError):  # its parameters are yet to be made
                self._optimizer(number)
        for call in self._tables["calls"]:
            self._take_names(call)  # by now what the last one gave has its name
            self._within(self._tables["chains"][call["n"]], partial(self._call, call))

    # Frames

    def _within(self, chain: Json, do: Callable[[], Any]) -> Any:
        """Do something in the frames and modules of a chain, and give what that gives."""
        if not chain:
            return do()
        (kind, ref, place), *inner = chain
        deeper = partial(self._within, inner, do)
        return self._in_code(ref, place, deeper) if kind == CODE else self._in_module(ref, deeper)

    def _in_module(self, ref: int, do: Callable[[], Any]) -> Any:
        held = vars(self._module(ref))
        had = held.get("forward")
        held["forward"] = do
        try:
            return self._module(ref)()
        finally:
            del held["forward"]
            if had is not None:
                held["forward"] = had

    def _in_code(self, ref: int, place: int, do: Callable[[], Any]) -> Any:
        data = self._tables["codes"][ref]
        names = self._names(data)
        scope = names if data["name"] == "<module>" else self._locals.setdefault(ref, {})
        result = None

        def call() -> Any:
            nonlocal result
            result = do()
            return result

        # In a copy: an inner call gives its name nothing, and code may run within itself.
        scope = {**scope, "__place__": place, "__do__": call}
        exec(self._code(ref), names, scope)
        return result

    def _names(self, code: Json) -> dict[str, Any]:
        """Of the module that the code is of; one of nobody else where that is not known."""
        return self._globals.setdefault(code.get("globals", -1), {})

    def _code(self, ref: int) -> CodeType:
        if ref not in self._codes:
            data = self._tables["codes"][ref]
            self._codes[ref] = code_of(data, self._stored.files[data["file"]])
        return self._codes[ref]

    # Calls

    def _call(self, call: Json) -> Any:
        self._enter(self._tables["states"][call["s"]])
        if "r" in call:
            torch.set_rng_state(self._stored.tensors[call["r"]].cpu())
        arguments = [self._read(one) for one in call["a"]]
        keywords: dict[str, Any] = {}
        if call["f"] == STEP:
            optimizer = self._optimizer(arguments.pop())
            for group, settings in zip(optimizer.param_groups, call["k"]["groups"], strict=True):
                group.update({key: self._read(one) for key, one in settings.items()})
            function, keywords = optimizer.step, {}
        else:
            function = function_of(call["f"])
            keywords = {key: self._read(one) for key, one in call["k"].items()}
        self.calling = True  # also after what it raises
        result = function(*arguments, **keywords)
        self.calling = False
        self._keep(call.get("o"), result)
        return result

    def _enter(self, state: Json) -> None:
        """Set the modes that calls depend on: gradients, default dtype, autocast."""
        if state == self._state:
            return
        self._state = state
        torch.set_grad_enabled(bool(state["grad"]))
        torch.set_default_dtype(_named(state["dtype"]))
        for kind in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            dtype = state["autocast"].get(kind)
            torch.set_autocast_enabled(kind, dtype is not None)
            if dtype is not None:
                torch.set_autocast_dtype(kind, _named(dtype))
        if not state["autocast"]:
            torch.clear_autocast_cache()

    def _keep(self, numbers: Json, result: Any) -> None:
        if type(numbers) is int:
            if not isinstance(result, torch.Tensor):
                raise _Diverged
            self._values[numbers] = result
            for held, name in self._awaited.pop(numbers, ()):
                held[name] = result
        elif isinstance(numbers, list) and isinstance(result, list | tuple):
            for one, part in zip(numbers, result, strict=False):
                self._keep(one, part)

    def _read(self, value: Json) -> Any:
        return value_of(value, self._values.__getitem__, self._stored.tensors.__getitem__)

    # What was there before

    def _make_leaves(self) -> None:
        for leaf in self._tables["leaves"]:
            held = self._stored.tensors[leaf["data"]]
            if leaf["parameter"]:
                held = torch.nn.Parameter(held, requires_grad=bool(leaf["grad"]))
            elif leaf["grad"]:
                held = held.requires_grad_()
            self._values[leaf["t"]] = held
        for leaf in self._tables["leaves"]:
            if "had" in leaf:
                self._values[leaf["t"]].grad = self._values[leaf["had"]]

    def _module(self, number: int) -> torch.nn.Module:
        if number not in self._modules:
            data = self._tables["modules"][number]
            module = self._modules[number] = _bare(data, self._made_by)
            module.__dict__.update({name: self._read(one) for name, one in data["plain"].items()})
            for kind, held in (("parameters", module._parameters), ("buffers", module._buffers)):
                for name, one in data[kind].items():
                    self._fill(held, name, one)
            for name, one in data["modules"].items():
                module._modules[name] = None if one is None else self._module(one)
            for name, one in data["rest"].items():
                module.__dict__.setdefault(name, self._holding(one))
            module.training = bool(data["training"])
        return self._modules[number]

    def _fill(self, held: dict[str, Any], name: str, number: int | None) -> None:
        """With a value, once it is there: a call may be yet to make it."""
        held[name] = None if number is None else self._values.get(number)
        if number is not None and number not in self._values:
            self._awaited.setdefault(number, []).append((held, name))

    def _made_by(self, ref: int | None) -> Any:
        """A function that stands for one of the program's: it shows its file and line."""
        return FunctionType(self._code(ref), {}) if ref is not None else None

    def _optimizer(self, number: int) -> Any:
        """Made where the program made it."""
        if number not in self._optimizers:
            self._optimizers[number] = self._made(self._tables["optimizers"][number])
        return self._optimizers[number]

    def _made(self, data: Json) -> Any:
        kind = getattr(torch.optim, str(data["class"]), None)
        if not (isinstance(kind, type) and issubclass(kind, torch.optim.Optimizer)):
            raise Unfit(f"torch has no optimizer {str(data['class'])[:40]!r}")
        groups = [{key: self._read(one) for key, one in group.items()} for group in data["groups"]]
        known = set(inspect.signature(kind).parameters) - {"params"}
        first = {key: one for key, one in groups[0].items() if key in known and one is not None}
        result: list[Any] = []

        def make() -> None:
            result.append(kind([{"params": group["params"]} for group in groups], **first))

        self._within(data["made"], make)
        optimizer = result[0]
        for group, kept in zip(optimizer.param_groups, groups, strict=True):
            group.update(kept)
        for held, state in data["state"]:
            optimizer.state[self._values[held]] = {
                key: self._read(one) for key, one in state.items()
            }
        return optimizer

    # Variables

    def _name_modules(self) -> None:
        """By the variables that come to hold them: what is made first is named by those."""
        for call in self._tables["calls"]:
            for scope, names in call.get("v", {}).items():
                for name, one in names.items():
                    if one is not None and "m" in one:
                        self._scope(scope).setdefault(name, self._holding(one))

    def _scope(self, scope: str) -> dict[str, Any]:
        held = self._locals if scope[0] == "n" else self._globals
        return held.setdefault(int(scope[1:]), {})

    def _take_names(self, call: Json) -> None:
        for scope, names in call.pop("v", {}).items():
            held = self._scope(scope)
            for name, one in names.items():
                if name.startswith("__"):
                    continue
                if one is None:
                    held.pop(name, None)
                else:
                    held[name] = self._holding(one)

    def _holding(self, data: Json) -> Any:
        if data is None:
            return None
        ((kind, held),) = data.items()
        match kind:
            case "t":
                return self._values.get(held)
            case "m":
                return self._module(held)
            case "list":
                return [self._holding(one) for one in held]
            case "dict":
                return {key: self._holding(one) for key, one in held}
            case "object":
                return SimpleNamespace(**{key: self._holding(one) for key, one in held.items()})
        raise Unfit("a variable holds nothing that is known")


def _named(name: str) -> torch.dtype:
    found = getattr(torch, str(name), None)
    if not isinstance(found, torch.dtype):
        raise Unfit(f"torch has no dtype {str(name)[:40]!r}")
    return found


def _bare(data: Json, made_by: Callable[[int | None], Any]) -> torch.nn.Module:
    """A module of the class that torch has under that name, else of one that looks as the program's
    does. Nothing of it is run but what makes it empty."""
    kind: Any = getattr(torch.nn, str(data["class"]), None) if data["torch"] else None
    if not (isinstance(kind, type) and issubclass(kind, torch.nn.Module)):
        content = {"forward": made_by(data["forward"]), "__init__": made_by(data["init"])}
        content = {name: one for name, one in content.items() if one is not None}
        content |= {"__module__": "__main__", "__qualname__": str(data["qualname"])}
        kind = type(str(data["class"]), (torch.nn.Module,), content)
    module: torch.nn.Module = kind.__new__(kind)
    torch.nn.Module.__init__(module)
    return module


def code_of(data: Json, file: str) -> CodeType:
    """`if __place__ == 0: __do__()` ..., each `__do__()` with the position of one of the program's
    calls, under the name of its function and in its file."""
    line = max(1, int(data["line"]))
    line = min([line, *(place[0] for place in data["places"] if place[0])])
    body: list[ast.stmt] = []
    for number, (first, last, *rest) in enumerate(data["places"]):
        # A code object counts its lines from its first one on.
        own = (one - line + 1 if one else None for one in (first, last))
        body.append(_at(number, *own, *rest))
    module = ast.fix_missing_locations(ast.Module(body, []))
    code: CodeType = compile(module, file, "exec")
    return code.replace(co_name=data["name"], co_qualname=data["qualname"], co_firstlineno=line)


def _at(number: int, line: Any, end: Any, col: Any, end_col: Any, name: str | None) -> ast.If:
    """`if __place__ == number: name = __do__()`, the call at the position that is given."""
    call = ast.Call(ast.Name("__do__", ast.Load()), [], [])
    done = ast.Expr(call) if name is None else ast.Assign([ast.Name(name, ast.Store())], call)
    data = {"lineno": line, "end_lineno": end, "col_offset": col, "end_col_offset": end_col}
    spot = {attribute: value for attribute, value in data.items() if value is not None}
    for node in ast.walk(done):
        vars(node).update(spot)
    asked = ast.Compare(ast.Name("__place__", ast.Load()), [ast.Eq()], [ast.Constant(number)])
    return ast.If(asked, [done], [])

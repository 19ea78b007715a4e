"""Where a value goes in its file: through names, what moves its elements, returns and arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from gradscope.repair.write.culprit import MOVES
from gradscope.source import Source, binding, definition, holds
from gradscope.source.arguments import arguments_of, called, parameter_of, spelled
from gradscope.source.meaning import reads_of
from gradscope.source.spans import ancestors, targets_of
from gradscope.source.tree import parts


class Lost(Exception):
    """The text does not tell where the value goes."""


@dataclass
class Uses:
    """All that reads one value, of one expression or several. `readers` are the places at which it
    is used and no longer handed on; `functions` those that return it, alone (None) or at a place in
    a tuple."""

    source: Source
    readers: list[ast.expr] = field(default_factory=list)
    functions: dict[ast.FunctionDef, int | None] = field(default_factory=dict)
    _given_to: list[tuple[ast.FunctionDef, str]] = field(default_factory=list)
    _seen: set[ast.AST] = field(default_factory=set)

    @classmethod
    def of(cls, source: Source, *values: ast.expr) -> Uses | None:
        """None where the text does not tell."""
        uses = cls(source)
        try:
            for value in values:
                uses._follow(value)
            uses._check()
        except Lost:
            return None
        return uses

    def _follow(self, node: ast.expr) -> None:
        if node in self._seen:
            return
        self._seen.add(node)
        above = self.source.parents[node]
        if isinstance(above, ast.keyword | ast.Attribute):
            above = self.source.parents[above]
        if isinstance(above, ast.Assign) and above.value is node:
            for read in self._named(above):
                self._follow(read)
        elif isinstance(above, ast.Return):
            self._returned(self._function(node), None)
        elif isinstance(above, ast.Tuple) and isinstance(self.source.parents[above], ast.Return):
            self._returned(self._function(node), above.elts.index(node))
        elif isinstance(above, ast.Subscript) and above.value is node:
            self._follow(above)
        elif isinstance(above, ast.Call) and above.func is not node:
            self._given(above, node)
        elif not isinstance(above, ast.Expr):
            self.readers.append(node)

    def _named(self, made: ast.Assign, position: int | None = None) -> Iterator[ast.Name]:
        """The reads of the name that an assignment gives a value to, or that of its tuple."""
        target = made.targets[0]
        if position is not None and isinstance(target, ast.Tuple):
            target = target.elts[position]
        if len(made.targets) != 1 or not isinstance(target, ast.Name):
            raise Lost
        found = reads_of(self.source, target, made)
        if found is None:
            raise Lost
        yield from found

    def _given(self, call: ast.Call, node: ast.expr) -> None:
        """To a function of the file, or to one that only reads it."""
        found = spelled(self.source, call)
        if found.name in MOVES and node in found.positional[:1]:
            self._follow(call)
            return
        given = self.parameter(call, node)
        if given is None:
            self.readers.append(node)
        elif given not in self._given_to:
            self._given_to.append(given)
            function, parameter = given
            for read in self._reads(function.body[0], parameter):
                if self.source.nodes.scope(read).before(parameter, (read.lineno, 0)) > 1:
                    raise Lost  # it has been given something else
                self._follow(read)

    def _returned(self, function: ast.FunctionDef, position: int | None) -> None:
        if self.functions.setdefault(function, position) != position:
            raise Lost
        for call in self.calls(function):
            self._follow(call) if position is None else self._unpacked(call, position)

    def _unpacked(self, node: ast.expr, position: int) -> None:
        """The value at a place of a tuple: `p, mu = net(x)`, or `out = net(x)` and `out[0]`."""
        above = self.source.parents[node]
        if isinstance(above, ast.Subscript) and isinstance(above.slice, ast.Constant):
            if above.slice.value == position:
                self._follow(above)
        elif isinstance(above, ast.Assign) and isinstance(above.targets[0], ast.Tuple):
            for read in self._named(above, position):
                self._follow(read)
        elif isinstance(above, ast.Assign):
            for read in self._named(above):
                self._unpacked(read, position)
        elif not isinstance(above, ast.Expr):
            raise Lost

    def _check(self) -> None:
        """No function may return another value as well, or be given one."""
        for function, position in self.functions.items():
            for value in (node.value for node in parts(function, ast.Return)):
                if position is not None and isinstance(value, ast.Tuple):
                    value = value.elts[position]
                if value not in self._seen:
                    raise Lost
        for function, parameter in self._given_to:
            for call in self.calls(function):
                if arguments_of(function, call).get(parameter) not in self._seen:
                    raise Lost

    def _function(self, node: ast.AST) -> ast.FunctionDef:
        found = self.source.nodes.function(node)
        if not isinstance(found, ast.FunctionDef):
            raise Lost
        return found

    def _reads(self, place: ast.AST, name: str) -> list[ast.Name]:
        return self.source.nodes.scope(place).owner(name).reads.get(name, [])

    def calls(self, function: ast.FunctionDef) -> Iterator[ast.Call]:
        """All calls of a function, or Lost where it may be called elsewhere."""
        around = self.source.parents[function]
        if not isinstance(around, ast.ClassDef):
            yield from map(self._call_of, self._reads(function, function.name))
        elif function.name == "__init__":
            yield from self._made(around)
        elif function.name in ("forward", "__call__"):
            for made in self._made(around):
                yield from self._instance(made)
        else:
            yield from self._calls_of_attribute(function.name)

    def _made(self, kind: ast.ClassDef) -> Iterator[ast.Call]:
        """Where a class is instantiated; not where it is only asked about, as in `super(Net, self)`
        and as an annotation."""
        for read in self._reads(kind, kind.name):
            above = self.source.parents[read]
            asks = isinstance(above, ast.Call) and called(above) in ("super", "isinstance")
            notes = isinstance(above, ast.arg | ast.FunctionDef)
            notes |= isinstance(above, ast.AnnAssign) and above.annotation is read
            if not (asks or notes):
                yield self._call_of(read)

    def _call_of(self, name: ast.expr) -> ast.Call:
        call = self.source.parents[name]
        if not isinstance(call, ast.Call) or call.func is not name:
            raise Lost
        return call

    def _instance(self, made: ast.Call) -> Iterator[ast.Call]:
        """The calls of a module, by the name that it was given: `net = Net().to(device)`."""
        node: ast.AST = made
        while isinstance(above := self.source.parents[node], ast.Attribute | ast.Call):
            if isinstance(above, ast.Call) and above.func is not node:
                raise Lost
            node = above
        targets = targets_of(self.source, node)
        if len(targets) != 1:
            raise Lost
        yield from self.calls_of(targets[0])

    def calls_of(self, target: ast.expr) -> Iterator[ast.Call]:
        """The calls of what is assigned there, also in a function that gets it."""
        if isinstance(target, ast.Attribute):
            yield from self._calls_of_attribute(target.attr, class_of(self.source, target))
        elif isinstance(target, ast.Name):
            yield from self._calls_by(target, target.id)
        else:
            raise Lost

    def _calls_by(self, place: ast.AST, name: str) -> Iterator[ast.Call]:
        for read in self._reads(place, name):
            above = self.source.parents[read]
            if isinstance(above, ast.Subscript):  # `net[0].weight`
                above = self.source.parents[above]
            if isinstance(above, ast.Attribute) or read in self._seen:  # `net.parameters()`
                continue
            self._seen.add(read)
            given = None
            if isinstance(above, ast.Call) and read in above.args:
                given = self.parameter(above, read)
            if given is None:
                yield self._call_of(read)
            else:
                yield from self._calls_by(given[0].body[0], given[1])

    def _calls_of_attribute(
        self, name: str, owner: ast.ClassDef | None = None
    ) -> Iterator[ast.Call]:
        """Of an attribute of that class, which others may have too."""
        defined = [n for n in self.source.nodes.every(ast.FunctionDef) if n.name == name]
        if len(defined) > 1:
            raise Lost
        givers = {class_of(self.source, made) for made in _makers(self.source, name)}
        for node in self.source.nodes.every(ast.Attribute):
            is_read = node.attr == name and isinstance(node.ctx, ast.Load)
            if not is_read or isinstance(self.source.parents[node], ast.Attribute):
                continue
            reader = class_of(self.source, node)
            if owner is not None and len(givers) > 1 and reader is not owner:
                if reader is None or reader not in givers:
                    raise Lost  # of any of them
                continue
            yield self._call_of(node)

    def callee(self, call: ast.Call) -> ast.FunctionDef | None:
        """The function of this file that a call runs: by its name, or as a module's forward."""
        if isinstance(call.func, ast.Attribute):
            named = [n for n in self.source.nodes.every(ast.FunctionDef) if n.name == called(call)]
            is_own = isinstance(call.func.value, ast.Name) and call.func.value.id == "self"
            if named or not is_own:
                return named[0] if is_own and len(named) == 1 else None
            made = given_to(self.source, call.func)
        elif isinstance(call.func, ast.Name):
            found = self._defined(call.func)
            if isinstance(found, ast.FunctionDef):
                return found
            made = definition(self.source, call.func)
        else:
            return None
        if not isinstance(made, ast.Call) or not isinstance(made.func, ast.Name):
            return None
        return method_of(self._defined(made.func), "forward", "__call__")

    def parameter(self, call: ast.Call, node: ast.expr) -> tuple[ast.FunctionDef, str] | None:
        """The function of this file that a call gives an argument, and its parameter for that."""
        function = self.callee(call)
        name = parameter_of(function, call, node) if function is not None else None
        return (function, name) if function is not None and name is not None else None

    def calls_of_given(self, module: ast.expr) -> Iterator[ast.Call] | None:
        """The calls of a module that a function or class of this file is given where it is built;
        None where it is given to none."""
        node: ast.AST = module
        while isinstance(call := self.source.parents[node], ast.Call):
            found = self._defined(call.func) if isinstance(call.func, ast.Name) else None
            is_class = isinstance(found, ast.ClassDef)
            function = method_of(found, "__init__") if is_class else found
            if isinstance(function, ast.FunctionDef) and isinstance(node, ast.expr):
                parameter = parameter_of(function, call, node) or ""
                return self._calls_of_parameter(function, parameter)
            node = call
        return None

    def _calls_of_parameter(self, function: ast.FunctionDef, name: str) -> Iterator[ast.Call]:
        for read in self._reads(function.body[0], name):
            made = self.source.parents[read]
            if isinstance(made, ast.Assign) and made.value is read and len(made.targets) == 1:
                self._seen.add(read)
                yield from self.calls_of(made.targets[0])
        yield from self._calls_by(function.body[0], name)

    def _defined(self, name: ast.Name) -> ast.stmt | None:
        """The one statement that a name is ever bound by."""
        bindings = self.source.nodes.owner(name).bindings.get(name.id, [])
        return bindings[0].statement if len(bindings) == 1 else None


def method_of(kind: ast.stmt | None, *names: str) -> ast.FunctionDef | None:
    """The first method of a class that has one of these names."""
    body = kind.body if isinstance(kind, ast.ClassDef) else []
    methods = (one for one in body if isinstance(one, ast.FunctionDef))
    return next((one for one in methods if one.name in names), None)


def given_to(source: Source, name: ast.expr) -> ast.expr | None:
    """What a name, or an attribute of this name, is given; None where that is not one thing. A call
    is what it is."""
    if isinstance(name, ast.Call):
        return name
    if isinstance(name, ast.Name):
        if (value := definition(source, name)) is not None:
            return value
        value = argument_of(source, name)
        return given_to(source, value) if isinstance(value, ast.Name) and value != name else value
    if not isinstance(name, ast.Attribute):
        return None
    made = _makers(source, name.attr)
    owner = class_of(source, name)
    own = [target for target in made if owner is not None and class_of(source, target) is owner]
    values = [made[target] for target in own or made]
    if len(values) != 1:
        return None
    return given_to(source, values[0]) if isinstance(values[0], ast.Name) else values[0]


def _makers(source: Source, name: str) -> dict[ast.Attribute, ast.expr]:
    """The attributes of this name that are given a value, with it."""
    return {
        target: value
        for target, value in source.nodes.given()
        if isinstance(target, ast.Attribute) and target.attr == name
    }


def class_of(source: Source, node: ast.Attribute) -> ast.ClassDef | None:
    """The class whose own attribute a node is: `self.net` in one of its methods."""
    if not isinstance(node.value, ast.Name) or node.value.id != "self":
        return None
    around = ancestors(source, node)
    return next((one for one in around if isinstance(one, ast.ClassDef)), None)


def argument_of(source: Source, name: ast.Name) -> ast.expr | None:
    """What a parameter that nothing has rebound is given by the one call of its function."""
    function, given = source.nodes.function(name), binding(source, name)
    is_own = given is not None and given.statement is function
    if not is_own or not isinstance(function, ast.FunctionDef):
        return None
    call = only_call(source, name)
    return arguments_of(function, call).get(name.id) if call is not None else None


def handed_over(source: Source, node: ast.AST) -> ast.expr | None:
    """What the one call of its function gives a parameter by a name, as the caller computes it."""
    return definition(source, argument_of(source, node) if isinstance(node, ast.Name) else None)


def is_handed_along(source: Source, node: ast.expr, place: ast.expr) -> bool:
    """Whether an expression of the caller means the same in the function of a place: all names in
    it that are the caller's own are given to the function under the same names."""
    function, call = source.nodes.function(place), only_call(source, place)
    if not isinstance(function, ast.FunctionDef) or call is None:
        return False
    given = arguments_of(function, call)
    own = source.nodes.scope(function.body[0]).bindings
    return holds(source, node, call) and all(
        isinstance(one := given.get(name.id), ast.Name)
        and one.id == name.id
        and len(own[name.id]) == 1
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and source.nodes.owner(name) is source.nodes.scope(call)
    )


def calls_of(source: Source, module: ast.expr) -> tuple[ast.Call, ...]:
    """The calls of the module whose construction `module` is a part of; none where the text does
    not tell them all."""
    made, uses = source.nodes.statement(module), Uses(source)
    try:
        if isinstance(made, ast.Return):  # of a function that builds it
            built = calls_around(source, module)
            return tuple(call for one in built for call in uses._instance(one))
        if (given := uses.calls_of_given(module)) is not None:
            return tuple(given)
        if not isinstance(made, ast.Assign) or len(made.targets) != 1:
            return ()
        return tuple(uses.calls_of(made.targets[0]))
    except Lost:
        return ()


def returned(source: Source, call: ast.Call) -> ast.expr | None:
    """What the function of this file that is called returns, where that is one expression."""
    function = Uses(source).callee(call)
    returns = [*parts(function, ast.Return)]
    return returns[0].value if len(returns) == 1 else None


def reads_of_argument(source: Source, call: ast.Call, value: ast.expr) -> list[ast.Name]:
    """Where the function of this file that a call gives a value reads it."""
    if (given := Uses(source).parameter(call, value)) is None:
        return []
    function, name = given
    reads = source.nodes.scope(function.body[0]).owner(name).reads.get(name, ())
    return [one for one in reads if argument_of(source, one) is value]


def only_call(source: Source, value: ast.AST) -> ast.Call | None:
    """The one call of the function that a value stands in; None where there are others."""
    calls = calls_around(source, value)
    return calls[0] if len(calls) == 1 else None


def calls_around(source: Source, value: ast.AST) -> list[ast.Call]:
    """The calls of the function that a value stands in; none where the text does not tell them."""
    function = source.nodes.function(value)
    try:
        return list(Uses(source).calls(function)) if isinstance(function, ast.FunctionDef) else []
    except Lost:
        return []

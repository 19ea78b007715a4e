"""What a statement writes into, and the variable behind that."""

import ast

from gradscope.source.arguments import called
from gradscope.source.text import Source

Holder = ast.Name | ast.Attribute


def written(source: Source, node: ast.AST | None) -> ast.expr | None:
    """What a statement, a call or a target writes into."""
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Assign):
        return node.targets[0]
    if isinstance(node, ast.Expr):
        return written(source, node.value)
    if isinstance(node, ast.Call):
        is_function = (source.names.dotted(node.func) or "").startswith("torch.")
        if is_function or not isinstance(node.func, ast.Attribute):
            return node.args[0] if node.args else None
        return node.func.value
    return node if isinstance(node, ast.expr) else None


def holder_of(target: ast.expr | None) -> Holder | None:
    """The variable behind `x[:, 0]`, `x[0].view(-1)`, `x.data`."""
    while True:
        if isinstance(target, ast.Subscript):
            target = target.value
        elif isinstance(target, ast.Call) and isinstance(target.func, ast.Attribute):
            target = target.func.value
        else:
            return target if isinstance(target, Holder) else None


def is_write(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement writes into a tensor, by how it is spelled: `x += y`, `x[0] = y`,
    `x.fill_(y)`."""
    if isinstance(statement, ast.AugAssign):
        return True
    if isinstance(statement, ast.Assign):
        return isinstance(statement.targets[0], ast.Subscript)
    call = statement.value if isinstance(statement, ast.Expr) else None
    name = called(call) if isinstance(call, ast.Call) else ""
    return name.endswith("_") and not name.endswith("__")

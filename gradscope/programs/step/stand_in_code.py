"""Code that does what it is told at the places of a program's own, and nothing else."""

import ast
from types import CodeType
from typing import Any

Json = Any


def code_of(told: Json, file: str) -> CodeType:
    """`if __place__ == 0: __do__()` ..., each `__do__()` with the position of one of the program's
    calls, under the name of its function and in its file."""
    line = max(1, int(told["line"]))
    line = min([line, *(place[0] for place in told["places"] if place[0])])
    body: list[ast.stmt] = [_at(number, *place) for number, place in enumerate(told["places"])]
    module = ast.Module(body, [])
    for node in ast.walk(module):
        if isinstance(node, ast.expr | ast.stmt):
            # A code object counts its lines from its first one on.
            node.lineno = max(1, getattr(node, "lineno", line) - line + 1)
            node.end_lineno = max(1, (getattr(node, "end_lineno", 0) or line) - line + 1)
            node.col_offset = getattr(node, "col_offset", 0)
            node.end_col_offset = getattr(node, "end_col_offset", 0) or 0
    code: CodeType = compile(module, file, "exec")
    return code.replace(co_name=told["name"], co_qualname=told["qualname"], co_firstlineno=line)


def _at(
    number: int,
    line: int | None,
    end: int | None,
    col: int | None,
    end_col: int | None,
    name: str | None,
) -> ast.If:
    """`if __place__ == number: name = __do__()`, the call at the position that is given."""
    call = ast.Call(ast.Name("__do__", ast.Load()), [], [])
    told = {"lineno": line, "end_lineno": end, "col_offset": col, "end_col_offset": end_col}
    spot = {attribute: value for attribute, value in told.items() if value is not None}
    done: ast.stmt = ast.Expr(call)
    if name is not None:
        done = ast.Assign([ast.Name(name, ast.Store())], call)
    for node in (call, call.func, done, *getattr(done, "targets", ())):
        for attribute, value in spot.items():
            setattr(node, attribute, value)
    asked = ast.Compare(ast.Name("__place__", ast.Load()), [ast.Eq()], [ast.Constant(number)])
    return ast.If(asked, [done], [])

"""Code of the program's own that stands between an op and the line that asked for it."""

import ast
import linecache
from types import CodeType

_HOOKS = ("__torch_function__", "__torch_dispatch__")  # the protocols of torch's modes and tensors
_TYPED = "<string>"  # what `exec` and `eval` are given: no text is left of it


def may_stand_between(code: CodeType) -> bool:
    return code.co_filename == _TYPED or (code.co_name in _HOOKS and code.co_argcount > 1)


def stands_between(
    code: CodeType, line: int | None, end_line: int | None, col: int | None, end_col: int | None
) -> bool:
    """Whether it does at this span: no one can look it up, or it is a hook, and hands on the
    function that it is told of. What a hook computes by itself is its own doing."""
    if code.co_filename == _TYPED:
        return True
    if line is None or end_line is None or col is None or end_col is None:
        return False
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : end_line]]
    if not lines:
        return False
    lines[-1] = lines[-1][:end_col]
    lines[0] = lines[0][col:]
    try:
        call = ast.parse(b"(" + b"".join(lines) + b")", mode="eval").body
    except (SyntaxError, ValueError):
        return False
    given = code.co_varnames[1]
    handed = (call.func, *call.args) if isinstance(call, ast.Call) else ()
    return any(isinstance(one, ast.Name) and one.id == given for one in handed)

"""`%%gradscope`: a cell of a notebook that is watched.

%load_ext gradscope

%%gradscope --stop
train(model, loader)
"""

import ast
import linecache
import sys
from functools import partial
from importlib import import_module
from traceback import walk_stack
from typing import Any

from gradscope.integrations.watch import watch
from gradscope.record.sites import calls_program
from gradscope.source.text import name_cells, number_of


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext gradscope`."""
    magics = import_module("IPython.core.magic_arguments")
    option = magics.argument

    def gradscope(line: str, cell: str) -> None:
        """Watch this cell, and show the report below it."""
        asked = magics.parse_argstring(magic, line)
        number = _running() or shell.execution_count
        name = _kept(shell, number, line, cell)
        seen = watch(
            stop=asked.stop,
            every_step=asked.every_step,
            select=asked.select,
            ignore=asked.ignore,
            name=f"In [{number}]",
        )
        if asked.name:
            shell.user_ns[asked.name] = seen
        again = seen.repeat_by(partial(_run, shell, name), name)
        name_cells(name)
        again.fall_asleep()
        try:
            with seen:
                _run(shell, name)
        finally:
            import_module("IPython.display").display(seen)
            again.end()

    magic = gradscope
    for decorate in (
        option("name", nargs="?", help="the variable that takes what was seen"),
        option("--stop", action="store_true", help="leave the cell at its first error"),
        option("--every-step", action="store_true", help="look at every op of every step"),
        option("--select", help="codes, names or families of rules"),
        option("--ignore", help="codes, names or families of rules"),
        magics.magic_arguments(),
    ):
        magic = decorate(magic)
    shell.register_magic_function(magic, "cell", "gradscope")


def _running() -> int | None:
    """The number of the cell that runs: that of the shell may be the next one's already."""
    numbers = (number_of(one.f_code.co_filename) for one, _ in walk_stack(sys._getframe()))
    return next((number for number in numbers if number is not None), None)


def _kept(shell: Any, number: int, line: str, cell: str) -> str:
    """The name under which the text of a cell is kept. Its lines count from that of the magic, as
    people see them."""
    name: str = shell.compile.cache(f"# %%gradscope {line}\n{shell.transform_cell(cell)}", number)
    return name


def _run(shell: Any, name: str) -> None:
    """What stands below the magic, as if it stood alone: the value of its last line is shown."""
    text = "".join(linecache.getlines(name))
    tree = shell.compile.ast_parse(text, filename=name)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, name, "exec"), shell.user_ns)
    if last is not None:
        sys.displayhook(eval(compile(ast.Expression(last.value), name, "eval"), shell.user_ns))


# What calls the cell is not the user's.
calls_program(_run.__code__)

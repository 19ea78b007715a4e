"""The options that several commands have, each with its one text, and what was said with them.

A value of None means that the option was not given. An option named like a field of `Config` sets
that field: commands do not list them again, but ask for `settings`, `configured` or `chosen`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gradscope.config import Config, Input, keys, scalars
from gradscope.config.keys import KEYS
from gradscope.config.scalars import Reader, WrongValue
from gradscope.errors import ExitCode, GradscopeError
from gradscope.facts import Severity

if TYPE_CHECKING:
    from gradscope.programs.choose import Choice

ARGUMENTS_FOLLOW = "The program's own arguments follow after --, as in: train.py -- --lr 1"

Target = Annotated[
    str | None, typer.Argument(metavar="TARGET", help="As for trace.", show_default=False)
]

# Options that are not called as the field of a Config that they set; a "no_" negates it.
_FIELDS = {"dtype": "dtypes", "no_verify": "verify", "no_custom_backward": "custom_backward"}
# Type and metavar of an option, by what reads the key of the configuration that it sets.
_KINDS: dict[Reader, tuple[Any, str | None]] = {
    scalars.count: (int, "N"),
    scalars.flag: (bool, None),
    scalars.text: (str, "TEXT"),
    scalars.texts: (list[str], "RULE"),
    keys.precisions: (list[str], "DTYPE"),
    keys.seconds: (float, "SECONDS"),
    keys.severity: (Severity, None),
    keys.size: (str, "SIZE"),
}
# Those that set none, or the opposite of one: type, metavar, help.
_OTHERS: dict[str, tuple[Any, str | None, str]] = {
    "quiet": (bool, None, "Only the verdict, and nothing where all is healthy."),
    "format": (str, "FORMAT", "terminal, json, sarif, junit, github, markdown or html [terminal]."),
    "output": (Path, "FILE", "Write the report to a file."),
    "input": (list[str], "NAME=EXPR", "An input of a function; torch is in scope."),
    "exit_zero": (bool, None, "Exit with 0 also where there are findings."),
    "config": (Path, "FILE", "A configuration other than the nearest gradscope.yaml."),
    "no_verify": (bool, None, "Do not try the fixes."),
    "no_custom_backward": (bool, None, "Do not check custom autograd.Functions."),
}
OF_PROGRAM = ("steps", "input", "model", "loss", "batch", "config", "time_limit")
OF_REPORT = ("quiet", "format", "output")
OF_RULES = ("select", "ignore")
OF_VERDICT = ("fail_on", "exit_zero")
OF_TRIALS = ("verify_time", "verify_runs", "rerun")
_LEAST = {int: 1, float: 0.001}
_SHORT = {"jobs": ("-j",), "quiet": ("-q",), "output": ("-o",)}


def sharing(*names: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """For a command that has these options too, after its own: of the configuration's keys, and
    `_OTHERS`. Their values are in the context's `params`."""
    further = []
    for name in names:
        kind, metavar, help = _OTHERS[name] if name in _OTHERS else _of_key(name)
        words = (f"--{name.replace('_', '-')}", *_SHORT.get(name, ()))
        option = typer.Option(None, *words, metavar=metavar, help=help, min=_LEAST.get(kind))
        further.append(
            Parameter(name, Parameter.KEYWORD_ONLY, default=option, annotation=kind | None)
        )

    def shared(command: Callable[..., int]) -> Callable[..., int]:
        own = signature(command, eval_str=True).parameters

        @wraps(command)
        def call(**given: Any) -> int:
            # Typer before 0.27 makes paths of what it hands over, and not of what the context has.
            params = given["context"].params
            params |= {name: given[name] for name in params.keys() & given}
            return command(**{name: given[name] for name in own})

        shown: Any = call
        shown.__signature__ = Signature([*own.values(), *further])
        return call

    return shared


def _of_key(name: str) -> tuple[Any, str | None, str]:
    """As the configuration's key has it, with its default where that is a number or a word."""
    field = _FIELDS.get(name, name)
    (read, words), default = KEYS[field.replace("_", "-")], getattr(Config(), field)
    if isinstance(default, int | float | str) and not isinstance(default, bool):
        shown = default if isinstance(default, str) else f"{default:g}"
        words = f"{words.removesuffix('.')} [{shown}]."
    return *_KINDS[read], words


def settings(context: typer.Context) -> dict[str, Any]:
    """The fields of a Config that the command line sets, read as the configuration's keys are.

    Raises GradscopeError with the option where a value is wrong.
    """
    from gradscope.programs.choose import PARTS

    found = {}
    for name, value in context.params.items():
        value = list(value) if isinstance(value, tuple) else value
        field = _FIELDS.get(name, name)
        key = KEYS.get(field.replace("_", "-"))
        if key is None or field in PARTS or value in (None, []):
            continue
        try:
            found[field] = key.read(not value if name.startswith("no_") else value)
        except WrongValue as error:
            words, _, help = f"--{name.replace('_', '-')} {error}".partition("\n")
            raise GradscopeError(words, help=help) from None
    return found


def inputs(context: typer.Context) -> tuple[Input, ...]:
    """The inputs that --input gives. Raises GradscopeError for a text that is not NAME=EXPR."""
    found = []
    for text in context.params["input"] or ():
        name, equals, expression = text.partition("=")
        if not (equals and name.strip().isidentifier() and expression.strip()):
            raise GradscopeError(
                f"--input {text} is not NAME=EXPR", help="for example --input 'x=torch.zeros(3)'"
            )
        found.append(Input(name.strip(), expression.strip()))
    return tuple(found)


def configured(context: typer.Context) -> Config:
    """The configuration, with what the command line says on top. Raises GradscopeError."""
    from gradscope.config import load_config

    return load_config(context.params["config"]).overridden(**settings(context))


def chosen(context: typer.Context, **more: str) -> Choice:
    """The target that is meant; `more` goes to `choose`. Raises GradscopeError."""
    from gradscope.programs.choose import choose

    given = context.params
    return choose(
        configured(context),
        given["target"],
        context.obj.arguments,
        inputs=inputs(context),
        parts=(given["model"], given["loss"], given["batch"]),
        **more,
    )


def report_place(context: typer.Context) -> tuple[str, Path | None]:
    """The format of the report, and the file for it; None: stdout."""
    return context.params["format"] or "terminal", context.params["output"]


def code_or_zero(context: typer.Context, code: ExitCode) -> ExitCode:
    """With --exit-zero findings are no failure: somebody only wants to read of them."""
    is_read = context.params["exit_zero"] and code is ExitCode.FINDINGS
    return ExitCode.OK if is_read else code

"""`gradscope trace` for a program that asks: the same run, the same report, as facts. It runs in an
interpreter of its own, as the command would have: the caller keeps its signals, threads and random
streams, and what it did to torch does not reach the program."""

import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from gradscope.config import Input, load_config
from gradscope.config.scalars import words
from gradscope.errors import GradscopeError
from gradscope.facts import Report
from gradscope.programs.choose import choose
from gradscope.report import FORMATS as FORMATS  # with which a report shows itself

# -P leaves the current folder out of the path, as for an installed command; where this package lies
# is there for its own import alone.
_PROGRAM = """\
import sys
place, folder = sys.argv.pop(1), sys.argv.pop(1)
sys.path.insert(0, place)
from gradscope.integrations.apart import serve
sys.path.remove(place)
serve(folder)
"""
_ORDER, _ANSWER = "order", "answer"


def carried_out(**order: object) -> Report:
    """`order` are the arguments of `pipeline.trace`. Raises GradscopeError as that does. The first
    Ctrl-C is passed on, and the report holds what was known by then; the second ends everything."""
    place = Path(__file__).resolve().parent.parent.parent
    with tempfile.TemporaryDirectory(prefix="gradscope-") as name:
        folder = Path(name)
        (folder / _ORDER).write_bytes(pickle.dumps(order))
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(place), name],
            # A group of its own hears Ctrl-C from us alone, and cannot read from the terminal.
            process_group=0,
            stdin=subprocess.DEVNULL,
        )
        try:
            code = _waited(process)
        finally:
            process.kill()
            process.wait()
        try:
            answer = pickle.loads((folder / _ANSWER).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            raise GradscopeError(f"the tracing process ended without a report ({code})") from None
    if isinstance(answer, GradscopeError):
        raise answer
    assert isinstance(answer, Report)
    return answer


def _waited(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        return process.wait()


def serve(folder: str) -> None:
    """The interpreter's own part: the order in, a report or a GradscopeError out."""
    from gradscope import pipeline

    order = pickle.loads((Path(folder) / _ORDER).read_bytes())
    try:
        answer: object = pipeline.trace(**order)
    except GradscopeError as error:
        answer = error
    (Path(folder) / _ANSWER).write_bytes(pickle.dumps(answer))


def trace(
    target: str | Path | None = None,
    *,
    arguments: Iterable[str] = (),
    inputs: Mapping[str, str] | None = None,
    model: str | None = None,
    loss: str | None = None,
    batch: str | None = None,
    steps: int | None = None,
    every_step: bool | None = None,
    keep_going: bool | None = None,
    time_limit: float | None = None,
    select: str | Iterable[str] | None = None,
    ignore: str | Iterable[str] | None = None,
    verify: bool | None = None,
    verify_time: float | None = None,
    verify_runs: int | None = None,
    rerun: bool | None = None,
    custom_backward: bool | None = None,
    config: str | Path | None = None,
    save: str | Path | None = None,
    silent: bool = False,
) -> Report:
    """Run a target as the command `gradscope trace` does, and return what was wrong with its
    gradients and which fixes hold. It runs in a fresh interpreter: nothing of this process reaches
    it (imported modules, seeds, torch's default dtype), and nothing of it comes back.

    `target`, `model`, `loss` and `batch` are written as for the command; `arguments` are those of
    the program, `inputs` the Python expressions for a function's parameters, by name. `steps` are
    updates (without an optimizer, backward passes). Ops are looked at in a few steps and in the one
    that fails, with `every_step` in all. `time_limit` of the program and `verify_time`
    of all tries of fixes are in seconds. What is None is as in the nearest gradscope.yaml or
    [tool.gradscope], or in the file `config`. `save` is a file that `gradscope
    report` reads. With `silent` nothing shows what the program prints.

    The report holds plain numbers and no tensors: shapes are tuples of ints, dtypes and devices
    their names ("torch.float32", "cuda:0"), losses and norms floats (NaN and inf included), columns
    characters from 0, lines from 1. After Ctrl-C it holds what was known by then.

    Raises GradscopeError for a target that cannot be run, a program without a backward pass, a
    configuration that cannot be read, or an unknown rule. What the program itself raises is no
    error here: it is in `report.trace.ending`.
    """
    configured = load_config(Path(config) if config is not None else None).overridden(
        steps=steps,
        every_step=every_step,
        keep_going=keep_going,
        time_limit=time_limit,
        select=words(select),
        ignore=words(ignore),
        verify=verify,
        verify_time=verify_time,
        verify_runs=verify_runs,
        rerun=rerun,
        custom_backward=custom_backward,
    )
    choice = choose(
        configured,
        None if target is None else str(target),
        tuple(arguments),
        inputs=tuple(Input(name, text) for name, text in (inputs or {}).items()),
        parts=(model, loss, batch),
    )
    keep = None if save is None else Path(save)
    return carried_out(
        target=choice.target, config=choice.config, remarks=choice.remarks, silent=silent, keep=keep
    )

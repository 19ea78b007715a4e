"""`--save-step`: the program runs once more up to its failing step, which is written down."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from gradscope.dataclass import dataclass
from gradscope.errors import GradscopeError
from gradscope.facts import Finding, NotChecked, Severity, Trace
from gradscope.programs.run_options import Keeping
from gradscope.programs.step import CALLS, TRACE
from gradscope.programs.targets import KeptStep
from gradscope.repair.again import FAILURES, Again, failure_text
from gradscope.report.status import Doing
from gradscope.saved import load, save
from gradscope.writing import umask

LARGEST = 2 * 2**30  # bytes of its tensors
_OF_SIZES = "GS4"  # the family of rules about how gradients and losses grow or fade
_IN_THE_MAKING = 16  # steps that those compare, at most
_HELP = "name a new folder, or one that --save-step has written"


def check_folder(folder: Path, *, is_alone: bool) -> None:
    """Asked before the program runs, of one that is no rank among others where it `is_alone`.
    Raises GradscopeError where a step cannot go there."""
    if not is_alone:
        raise GradscopeError(
            "--save-step saves a step of one process, and this is one of several ranks",
            help="run the program in one process, without torchrun",
        )
    parent = folder.absolute().parent
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        reason = "is no folder"
    elif folder.is_dir() and any(folder.iterdir()) and not (folder / CALLS).is_file():
        reason = "holds other things than a step"
    elif not parent.is_dir():
        reason = "lies in a folder that does not exist"
    elif not os.access(parent, os.W_OK):
        reason = "lies in a folder that is read-only"
    else:
        return
    raise GradscopeError(f"--save-step {folder} {reason}", help=_HELP)


def keep_step(
    seen: Trace, findings: tuple[Finding, ...], again: Again, folder: Path
) -> tuple[str, tuple[NotChecked, ...]]:
    """Write the step that failed, which `findings` are about, to a folder; what came of it in a
    line, and what of the step could not be kept."""
    from gradscope.programs.step import store

    errors = [one for one in findings if one.severity is Severity.ERROR]
    if not errors:
        return "no step was saved: none has failed", ()
    last = max(len(seen.steps) - 1, 0)
    since = min(last, *(max(0, one.step - _before(one)) for one in errors))
    steps = f"step {since}" if since == last else f"steps {since} to {last}"
    again.stages.begin(Doing.SAVING)
    try:
        with _beside(folder) as made:
            options = replace(
                again.options,
                full_from=since,
                passes=last + 1,
                custom_backward=False,
                keeping=Keeping(str(made), since, LARGEST, seen.target),
            )
            again.looked_at(options, range(since, last + 1))
            if not (made / CALLS).is_file():
                return f"{steps} not saved: the program, run again, did not come there", ()
            head = store.head_of(made)
            if head["refused"]:
                return f"{steps} not saved: {head['refused']}", ()
            store.complete(made, head)
            save(seen, made / TRACE)
            size = store.size_of(made)
            _put(made, folder)
    except FAILURES as failure:
        return f"{steps} not saved: {failure_text(failure)}", ()
    except KeyboardInterrupt:
        again.budget.interrupt()
        return f"{steps} not saved: interrupted", ()
    return f"{steps} saved in {folder} ({size}): gradscope replay {folder}", store.unkept_of(head)


def _before(error: Finding) -> int:
    """How many steps before it an error was in the making."""
    return _IN_THE_MAKING if error.rule.startswith(_OF_SIZES) else 0


@dataclass(frozen=True, slots=True)
class Kept:
    """A step in a folder, with what is to be said of it."""

    target: KeptStep
    unkept: tuple[NotChecked, ...]
    remarks: tuple[str, ...]
    seen: Trace  # what the program showed, with places in the copies of its files


def step_in(folder: Path) -> Kept:
    """Raises GradscopeError where there is none."""
    import torch

    from gradscope.programs.step import store

    stored = store.read(folder, tensors=False)
    head = stored.head
    remarks = [f"step {head['step']} of {head['target']}, saved with torch {head['torch']}"]
    if head["torch"] != torch.__version__:
        remarks.append(f"this is torch {torch.__version__}: values may come out otherwise")
    target = KeptStep(folder, tuple(store.files_in(folder)))
    seen = load(folder / TRACE, store.moved(stored)).trace
    return Kept(target, store.unkept_of(head), tuple(remarks), seen)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=folder.absolute().parent, prefix=".gradscope-step-"))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _put(made: Path, folder: Path) -> None:
    """In the place of a step that was kept before, which comes back where that fails."""
    os.chmod(made, 0o777 & ~umask())
    if not folder.exists():
        os.rename(made, folder)
        return
    with _beside(folder) as beside:
        os.rename(folder, beside / "old")
        try:
            os.rename(made, folder)
        except OSError:
            with suppress(OSError):
                os.rename(beside / "old", folder)
            raise

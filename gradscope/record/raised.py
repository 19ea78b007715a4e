"""Which op ended the program, and what of its operands it refused."""

import traceback
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any

import torch

from gradscope.facts import (
    Ending,
    Nothing,
    Objected,
    Operand,
    OutOfDomain,
    OutOfRange,
    Raised,
    Spectrum,
    Unfit,
)
from gradscope.ops.display import node_stem
from gradscope.ops.dtypes import finfo
from gradscope.ops.requirements import INDEXING, REFUSES, TAKES_SOME
from gradscope.ops.traits import Trait, has
from gradscope.record.checked_arguments import maker, mixed_dtypes, outside, refused_by_check
from gradscope.record.context import RunContext
from gradscope.record.events.measure import operand
from gradscope.record.finite import dtype_of, holds_bad, plain
from gradscope.record.graph import consumers, node_name
from gradscope.record.journal import Note, to_call
from gradscope.record.schema import OpInfo
from gradscope.record.sites import note_site, resolve, user_frame
from gradscope.record.tracing import unobserved

# Products that the eigenvalues of a batch may take, computed beside the program's: 64 matrices of
# order 256; and those of what an op has refused, which is looked at once.
_BESIDE, _ONCE = 64 * 256**3, 2048**3
_SMALL = 32  # the order below which a matrix takes as long as one of that order
_MOST_KEPT = 16  # spectra of one call
Named = Mapping[str, Any]


class RaisedOps:
    """Told of ops that raise, outside of backward, and of those that take definite matrices. Most
    programs catch nothing, and one that does tries again: only the last one counts, and only if its
    exception is what the program ended with."""

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._last: tuple[str, Raised] | None = None  # with the exception's own line
        self._doubted: Raised | None = None  # the last matrix, if it was not definite
        self._spectra: dict[object, list[Spectrum]] = {}  # by call
        # What an op that takes a matrix has left for a check of its own, which raises.
        self._matrix: tuple[Note, str, weakref.ref[torch.Tensor]] | None = None
        self._refused: Raised | None = None  # by a device, which raises later and elsewhere
        # The operands of the op that raised last that are inf or NaN, with the exception's line.
        self._bad: tuple[str, list[tuple[str, weakref.ref[torch.Tensor]]]] = "", []

    def fact(self, ending: Ending) -> Raised | None:
        if ending.kind != "raised":
            return None
        if self._last is not None and self._last[0] == ending.detail:
            return self._last[1]
        if ending.device_assert:
            return self._refused
        # What asks of a matrix whether it is definite, as distributions do, raises by itself.
        doubted, place = self._doubted, ending.location
        at = doubted.call.location if doubted is not None else None
        same = at is not None and str(at) == str(place)
        return doubted if same else None

    def note_ending(self, error: BaseException) -> None:
        """Code that checks its arguments itself may have raised, and no op."""
        is_known = self._last is not None and self._last[0] == _line_of(error)
        with unobserved():
            refused = None if is_known else refused_by_check(error, self._context)
        if refused is not None:
            self._last = _line_of(error), refused

    def bad_operands(self, error: BaseException) -> Iterator[tuple[str, torch.Tensor]]:
        """Those of the op over which the program ends, that are inf or NaN, by their roles."""
        line, operands = self._bad
        for role, held in operands if line == _line_of(error) else ():
            if (value := held()) is not None:
                yield role, value

    def note_matrix(self, info: OpInfo, args: Any, kwargs: Any, frame: FrameType) -> None:
        """An op has taken a matrix to decompose, or that may not be singular."""
        given = dict(info.named_arguments(args, kwargs))
        matrix = given.get(info.matrix)
        if not isinstance(matrix, torch.Tensor):
            return
        with suppress(Exception), unobserved():  # a fault of ours must not become the program's
            note = Note(info, *note_site(frame), self._context.module)
            self._matrix = note, info.matrix, weakref.ref(matrix)
            self._doubted = None
            if not info.definite or not note.user:  # what is definite is regular
                return
            spectrum = _spectrum(matrix, self._context.step, _BESIDE, definite=True)
            if spectrum is not None:
                known = self._spectra.setdefault(note.user[:1], [])
                if spectrum.smallest <= 0:
                    self._doubted = self._raised(note, given, spectrum, frame)
                if len(known) < _MOST_KEPT:
                    known.append(spectrum)

    def note_before(self, info: OpInfo, args: Any, kwargs: Any, frame: FrameType) -> None:
        """An op is about to run on a device. If that refuses its operands, the exception comes
        later and at another line, and nothing can be read any more."""
        if self._refused is not None:
            return
        given = dict(info.named_arguments(args, kwargs))
        with unobserved():
            note = Note(info, *note_site(frame), self._context.module)
            why = _out_of_range(info.name, given) or _out_of_domain(note, given)
            if why is not None and note.user:
                self._refused = self._raised(note, given, why, frame)

    def note(
        self, info: OpInfo, args: Any, kwargs: Any, frame: FrameType, error: BaseException
    ) -> None:
        try:
            with unobserved():
                note = Note(info, *note_site(frame), self._context.module)
                given = dict(info.named_arguments(args, kwargs))
                matrix = None
                if self._matrix is not None and self._matrix[0].user == note.user:
                    matrix = self._matrix[2]()
                    note, given = self._matrix[0], {self._matrix[1]: matrix}
                tensors = _tensors_in(given).items()
                bad = [(role, weakref.ref(one)) for role, one in tensors if holds_bad(one)]
                self._bad = _line_of(error), bad
                self._last = None
                why = _refused(note, given, self._context.step, frame)
                if why is None and note.user and not info.regular:
                    why = mixed_dtypes(info, args, kwargs, given)
                if why is not None and note.user:
                    self._last = _line_of(error), self._raised(note, given, why, frame)
        except Exception:  # what cannot be measured is not told
            self._last = None

    def _raised(self, note: Note, given: Named, why: Objected, frame: FrameType) -> Raised:
        spectra = self._spectra.get(note.user[:1], []) if isinstance(why, Spectrum) else []
        call = to_call(note)
        if isinstance(why, OutOfDomain):
            call = maker(given[why.role], why.index, self._context) or call
        return Raised(
            step=self._context.step,
            call=call,
            operands=tuple(self._operands(given, why, frame)),
            why=why,
            earlier=tuple(one for one in spectra if one.step < self._context.step),
            negative=tuple(self._negative(given, frame)) if isinstance(why, Spectrum) else (),
        )

    def _negative(self, given: Named, frame: FrameType) -> Iterator[Operand]:
        tensors = _tensors_in(given).values()
        above = consumers([one.grad_fn for one in tensors if one.grad_fn is not None])
        for node, makers in above.items():
            is_diagonal = any(node_stem(node_name(one)) == "DiagEmbed" for one in makers)
            leaf = getattr(node, "variable", None)
            if leaf is None or _is_made_positive(node, above):
                continue
            if (leaf.numel() == 1 or is_diagonal) and bool((leaf < 0).any()):
                yield operand("parameter", leaf, self._context, frame=frame)

    def _operands(self, given: Named, why: Objected, frame: FrameType) -> Iterator[Operand]:
        found = {why.role: why.index} if isinstance(why, OutOfRange | OutOfDomain) else {}
        for role, value in _tensors_in(given).items():
            index = found.get(role, ())
            shape = tuple(value.shape) if index else None
            yield operand(role, value, self._context, index=index, shape=shape, frame=frame)


def _is_made_positive(node: Any, above: Mapping[Any, Sequence[Any]], deepest: int = 4) -> bool:
    """Whether a number only comes through what gives one above 0, as `exp` does of the logarithm of
    a scale, or of twice that: within so many ops."""
    if not (above[node] and deepest):
        return False
    return all(
        has(node_stem(node_name(one)).lower(), Trait.POSITIVE)
        or _is_made_positive(one, above, deepest - 1)
        for one in above[node]
    )


def _line_of(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip().splitlines()[0]


def _tensors_in(given: Named) -> dict[str, torch.Tensor]:
    return {role: one for role, one in given.items() if isinstance(one, torch.Tensor)}


def _refused(note: Note, given: Named, step: int, frame: FrameType) -> Objected | None:
    info = note.info
    if info.regular:
        matrix = given.get(info.matrix)
        if not isinstance(matrix, torch.Tensor):
            return None
        return _spectrum(matrix, step, _ONCE, definite=info.definite)
    why = _out_of_range(info.name, given) or _out_of_domain(note, given) or _unfit(given)
    return why or _nothing(info.name, given, frame)


def _out_of_domain(note: Note, given: Named) -> OutOfDomain | None:
    for domain in REFUSES.get(note.info.name, ()) if note.user else ():
        value = given.get(domain.role)
        values = plain(value) if isinstance(value, torch.Tensor) else None
        if values is None or not bool(values.isfinite().all()):
            continue  # NaN has a birth of its own
        bad = (values < domain.low) | (values > domain.high)
        if bool(bad.any()):
            place, ends = resolve(*note.user[0]), (domain.low, domain.high)
            found = outside(bad, values)
            return OutOfDomain(domain.role, note.info.name, place, domain.position, *found, *ends)
    return None


def _spectrum(matrix: torch.Tensor, step: int, most: int, *, definite: bool) -> Spectrum | None:
    """None where it takes more than `most` products, or is not finite."""
    values = plain(matrix)
    if values is None or matrix.is_complex() or values.dim() < 2 or not values.numel():
        return None
    order, matrices = values.shape[-1], values.shape[:-2].numel()
    if matrices * max(order, _SMALL) ** 3 > most or not bool(values.isfinite().all()):
        return None
    wide = values.double()
    # Of the lower half, as Cholesky reads it.
    found = torch.linalg.eigvalsh(wide) if definite else torch.linalg.svdvals(wide).flip(-1)
    found = found.reshape(-1, order)
    worst = int(found[:, 0].argmin())
    ends = found[worst, 0].item(), found[worst, -1].item()
    asymmetry = float((wide - wide.mT).abs().max())
    return Spectrum(step, *ends, order=order, asymmetry=asymmetry, definite=definite)


def _out_of_range(op: str, given: Named) -> OutOfRange | None:
    known = INDEXING.get(op)
    into = given.get(known.into) if known is not None else None
    indices = given.get(known.index) if known is not None else None
    if known is None or not isinstance(into, torch.Tensor):
        return None
    listed = indices if isinstance(indices, list | tuple) else [indices]
    ignored = given.get("ignore_index") if known.classes else None
    for position, index in enumerate(listed):
        if not isinstance(index, torch.Tensor) or index.dtype not in (torch.int64, torch.int32):
            continue
        dim = known.dim if known.dim is not None else given.get("dim", 0)
        if known.classes:
            dim = 1 if into.dim() > 1 else 0
        dim = dim + position if known.from_end else dim % max(into.dim(), 1)
        size = into.shape[dim] if into.dim() else 1
        bad = (index < (-size if known.from_end else 0)) | (index >= size)
        if isinstance(ignored, int):
            bad &= index != ignored
        if bool(bad.any()):
            value, at, count, numel = outside(bad, index)
            only = int((index == value).sum()) == count
            into = known.into
            return OutOfRange(known.index, int(value), at, count, numel, size, into, dim, only)
    return None


def _nothing(op: str, given: Named, frame: FrameType) -> Nothing | None:
    role = TAKES_SOME.get(op, "")
    value = given.get(role)
    if not isinstance(value, torch.Tensor | list | tuple):
        return None
    if value.numel() if isinstance(value, torch.Tensor) else value:
        return None
    user = user_frame(frame)
    held = user.f_locals.items() if user is not None else ()
    names = (name for name, one in held if isinstance(one, torch.Tensor) and one.grad_fn)
    return Nothing(role, next(names, ""))


def _unfit(given: Named) -> Unfit | None:
    """A number beyond the dtype of the tensor that it is to be written into."""
    floating = [one for one in _tensors_in(given).values() if one.is_floating_point()]
    for role, value in given.items():
        if floating and isinstance(value, int | float) and not isinstance(value, bool):
            dtype = dtype_of(floating[0])
            if finfo(dtype).max < abs(value) < float("inf"):
                return Unfit(role, float(value), dtype, finfo(dtype).max)
    return None

"""A file with a repair in it: as text, as a patch, and as the fix that a finding shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from difflib import SequenceMatcher
from os.path import realpath
from symtable import symtable

from gradscope.dataclass import dataclass
from gradscope.facts import Edit, Fix, Location, Verdict, Verified
from gradscope.repair.write.culprit import Candidate, Culprit
from gradscope.repair.write.propose import candidates
from gradscope.repair.write.splice import edits_between, spliced, unified, without_first
from gradscope.source import Source, read
from gradscope.source import at as text_at
from gradscope.source.text import compiled_as

TOKEN = re.compile(r"\d+\.?\d*(?:[eE][-+]?\d+)?|\w+|\s+|.")
LARGEST_EPS = 0.5
LEAST_AGAIN = 4  # characters that do not stand twice beside each other by chance
LEAST_LARGE = 1e3  # of the numbers that a fix writes for inf, and of the bounds it keeps a value in


@dataclass(frozen=True, slots=True)
class Patched:
    """Repairs as text: the file's new content, and the patch that makes it. `made` are the
    candidates that it writes, in the order in which they came; `others` are further files with
    theirs."""

    made: tuple[Candidate, ...]
    source: Source
    text: str
    others: tuple[tuple[Source, str], ...] = ()

    @property
    def kind(self) -> str:
        return self.made[0].kind

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(one.kind for one in self.made)

    @property
    def same(self) -> bool:
        """What the values may do is what the loosest of the repairs claims."""
        return all(one.same for one in self.made)

    @property
    def begins_alike(self) -> bool:
        return any(one.begins_alike for one in self.made)

    @property
    def files(self) -> tuple[tuple[Source, str], ...]:
        return ((self.source, self.text), *self.others)

    @property
    def texts(self) -> dict[str, str]:
        return {compiled_as(source.file): text for source, text in self.files}

    @property
    def varied(self) -> str:
        """The text with another epsilon, operand than 1.0, or large number, where the candidate
        wrote one."""
        edits = edits_between(self.source, self.text)
        return spliced(self.source, (replace(one, text=self._varied(one)) for one in edits))

    def _varied(self, edit: Edit) -> str:
        start = self.source.offset(edit.line, edit.col)
        end = self.source.offset(edit.end_line, edit.end_col)
        old, new = (TOKEN.findall(text) for text in (self.source.text[start:end], edit.text))
        for tag, _, _, first, last in SequenceMatcher(None, old, new, False).get_opcodes():
            if tag != "equal":
                new[first:last] = map(_other, new[first:last])
        return "".join(new)

    def joined(self, more: Patched) -> Patched:
        """With a further repair, whose sources are the texts of this one."""
        files = {source.file: (source, text) for source, text in self.files}
        for source, text in more.files:
            first, _ = files.get(source.file, (source, ""))
            files[source.file] = (first, text)
        (source, text), *others = files.values()
        return Patched((*self.made, *more.made), source, text, tuple(others))

    def without(self, first: Patched) -> Patched | None:
        """With what was repaired after `first` alone; None where that shares lines with it, or
        has more than one file."""
        if len(self.files) > 1:
            return None
        text = without_first(self.source.text, first.text, self.text)
        return replace(self, made=self.made[len(first.made) :], text=text) if text else None

    def writes(self, at: Location | None) -> bool:
        """Whether what is at a place in the patched files is the patch's own."""
        for source, text in self.files:
            if at is not None and realpath(source.file) == realpath(at.file):
                return text_at(replace(source, text=text), at) not in source.text
        return False

    @property
    def patch(self) -> str:
        return "".join(unified(source, text) for source, text in self.files)

    def as_fix(self, verdict: Verdict) -> Fix:
        patch = self.patch
        added = (line for line in patch.splitlines() if line.startswith("+"))
        return Fix(
            kind=self.kind,
            title=", and ".join(dict.fromkeys(one.title for one in self.made)),
            safety="safe" if self.same or self._computes_the_same(verdict) else "unsafe",
            code="\n".join(line[1:].strip() for line in added if not line.startswith("+++")),
            edits=tuple(edit for one in self.files for edit in edits_between(*one)),
            patch=patch,
            verdict=verdict,
        )

    @property
    def does_again(self) -> bool:
        """Whether it puts beside something the same once more, as for a culprit that remained."""
        edits = (edit for one in self.files for edit in edits_between(*one))
        new = [one.text for one in edits if (one.line, one.col) == (one.end_line, one.end_col)]
        new = [text for text in new if len(text.strip()) >= LEAST_AGAIN]
        return any(2 * text in whole for text in new for _, whole in self.files)

    @property
    def is_form(self) -> bool:
        """Whether it claims no more than to write the same formula in another form."""
        return all(one.same or one.kind == "stable-op" for one in self.made)

    def _computes_the_same(self, verdict: Verdict) -> bool:
        """Whether it is another form of the same formula, as what was measured agrees."""
        if not self.is_form or not isinstance(verdict, Verified):
            return False
        effects = verdict.effects
        moves = [one for one in effects.moves if not one.is_rounding]
        return not moves or (effects.truth is not None and effects.truth.is_met)


def patched(culprit: Culprit, candidate: Candidate) -> Patched | None:
    """The candidate applied; None where its edits overlap, the result is no Python, or nothing
    changed."""
    files = dict.fromkeys((culprit.source.file, *(edit.file for edit in candidate.edits)))
    written = []
    for file in files:
        is_own = file == culprit.source.file
        source = culprit.source if is_own else read(file, culprit.texts)
        try:
            text = spliced(source, (edit for edit in candidate.edits if edit.file == file))
            symtable(text, file, "exec")  # as the compiler reads it, and half as long as a tree
        except (SyntaxError, ValueError, RecursionError):
            return None
        if text != source.text:
            written.append((source, text))
    if not written:
        return None
    (source, text), *others = written
    return Patched((candidate,), source, text, tuple(others))


def ways(culprit: Culprit, fix: Fix) -> Iterator[Patched]:
    """The ways to write a fix, as texts, as far as the time for the search allows."""
    written = (patched(culprit, candidate) for candidate in candidates(culprit, fix))
    return culprit.search.found(one for one in written if one is not None)


def _other(token: str) -> str:
    """Another epsilon, operand than 1.0, or large number; any other token as it is."""
    if token == "1.0":
        return "0.001"
    value = float(token) if token[0].isdigit() else 0.0
    if value >= LEAST_LARGE:
        return f"{value / 10:g}"
    return f"{10 * value:g}" if 0 < value < LARGEST_EPS else token

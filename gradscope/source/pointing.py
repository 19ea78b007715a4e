"""Where findings point: of a chain `a.b().sqrt()` to the last link, which is what ran there."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from gradscope.facts import Call, Event, Finding, Location, Related
from gradscope.source.spans import shown
from gradscope.source.text import NO_TEXTS, Source, Texts, parsed


def pointed(findings: Iterable[Finding], texts: Texts = NO_TEXTS) -> tuple[Finding, ...]:
    """The findings with every place in them narrowed to what a reader looks for. `texts` stand in
    for files, by their real path."""
    narrow = _Narrow(texts)
    return tuple(map(narrow.finding, findings))


@dataclass(slots=True)
class _Narrow:
    """Reads each file once, and looks at each place once: many findings share a chain."""

    _texts: Texts
    _sources: dict[str, Source | None] = field(default_factory=dict)
    _places: dict[Location, Location] = field(default_factory=dict)

    def finding(self, one: Finding) -> Finding:
        return replace(
            one,
            location=self._place(one.location),
            related=tuple(map(self._related, one.related)),
            chain=tuple(map(self._event, one.chain)),
        )

    def _related(self, one: Related) -> Related:
        return replace(one, location=self._place(one.location) or one.location)

    def _event(self, one: Event) -> Event:
        path = tuple(map(self._call, one.path))
        return replace(one, call=self._call(one.call), blame=self._call(one.blame), path=path)

    def _call(self, one: Call) -> Call:
        return replace(one, location=self._place(one.location))

    def _place(self, location: Location | None) -> Location | None:
        if location is None:
            return None
        if location not in self._places:
            self._places[location] = self._narrowed(location)
        return self._places[location]

    def _narrowed(self, location: Location) -> Location:
        if location.file not in self._sources:
            self._sources[location.file] = parsed(location.file, self._texts)
        source = self._sources[location.file]
        return location if source is None else shown(source, location)

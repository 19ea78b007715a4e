"""Gradients that are cleared between backward and the update that was to use them."""

from __future__ import annotations

from collections.abc import Iterator

from gradscope.facts import (
    Location,
    Magnitudes,
    Update,
)

FEWEST = 3  # updates in a row; a single one may skip its step in this way


def cleared(magnitudes: Magnitudes) -> Iterator[list[Update]]:
    """The updates in one place of the source that never got a gradient, though backward had made
    them, for each such place."""
    places: dict[Location | None, list[Update]] = {}
    for update in magnitudes.updates:
        if update.cleared is not None:
            places.setdefault(update.location, []).append(update)
    for updates in places.values():
        if len(updates) >= FEWEST and all(update.cleared for update in updates):
            yield updates

"""The words about the ranks of a program: which of them a report is about, and what became of the
others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradscope.facts import Fate, Ranked, Share

_ABOUT = {
    Fate.BORN: "where it went wrong first",
    Fate.BAD: "whose values are bad",
    Fate.RECEIVED: "to which bad values came",
    Fate.RAISED: "which ended first",
    Fate.EXITED: "which ended first",
    Fate.DIED: "which died",
    Fate.HUNG: "which did not come where the others waited for it",
}
_BECAME = {
    Fate.BORN: "found {rule} too",
    Fate.BAD: "had bad values after that",
    Fate.RECEIVED: "got bad values by a collective",
    Fate.RAISED: "raised {detail}",
    Fate.EXITED: "exited: {detail}",
    Fate.DIED: "died: {detail}",
    Fate.HUNG: "did not come either",
    Fate.CALLED_OFF: "waited for it in vain",
    Fate.CUT_SHORT: "ended with {detail}",
    Fate.HEALTHY: "came to its end, after {step} backward passes",
    Fate.GONE: "gave no answer any more",
}


def remarks(ranks: Ranked) -> tuple[str, ...]:
    """A line about the rank, and one for each thing that became of others."""
    own, count = ranks.own, ranks.count
    if own.fate not in _ABOUT:
        if all(one.fate is own.fate for one in ranks.others):
            return (f"{count} ranks, all alike: this is rank {ranks.rank}",)
        about = f"this is rank {ranks.rank} of {count}"
    else:
        where = "" if own.fate is Fate.DIED else f", at step {own.step}"
        about = f"this is rank {ranks.rank} of {count}, {_ABOUT[own.fate]}{where}"
    return (about, *_rest(ranks.others))


def _rest(others: Iterable[Share]) -> Iterator[str]:
    """ "ranks 0, 2 and 3 got bad values by a collective, at train.py:24"."""
    told: dict[str, list[int]] = {}
    for one in others:
        told.setdefault(_fate(one), []).append(one.rank)
    for words, ranks in told.items():
        yield f"{_listed(ranks)} {words}"


def _fate(share: Share) -> str:
    words = _BECAME[share.fate].format(
        rule=share.rule or "an error", detail=share.detail, step=share.step
    )
    at = share.location
    return f"{words}, at {at.file}:{at.line}" if at is not None else words


def _listed(ranks: list[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"ranks {ranks[0]} to {ranks[-1]}"
    *first, last = map(str, ranks)
    return f"ranks {', '.join(first)} and {last}"

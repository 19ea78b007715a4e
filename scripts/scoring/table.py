"""The score as people read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scoring.judge import OURS, THEIRS, Marks, Row
from scoring.patches import TOLERANCE, Compared

WORDS = {True: "yes", False: "NO", None: "-"}


def show(rows: Sequence[Row], console: Console) -> None:
    """One line a case, the totals, and then what was wrong, in words."""
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("case", no_wrap=True)
    for column in (*OURS, "alarms", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in (*THEIRS, "alarms"):
        table.add_column(f"anomaly\n{column}", justify="right", no_wrap=True, style="dim")
    for row in rows:
        table.add_row(
            row.name,
            *_words(row.ours, OURS),
            str(len(row.alarms) or "-"),
            f"{row.seconds:.1f}" if row.seconds else "-",
            *_words(row.theirs, THEIRS),
            str(len(row.their_alarms) or "-"),
        )
    table.add_section()
    table.add_row(
        f"{len(rows)} cases",
        *(_total(rows, column, lambda row: row.ours) for column in OURS),
        str(sum(len(row.alarms) for row in rows)),
        f"{sum(row.seconds for row in rows):.0f}",
        *(_total(rows, column, lambda row: row.theirs) for column in THEIRS),
        str(sum(len(row.their_alarms) for row in rows)),
        style="bold",
    )
    console.print(table)
    for row in rows:
        for text in (*row.misses, *(f"false alarm: {alarm}" for alarm in row.alarms)):
            console.print(escape(f"{row.name}: {text}"), soft_wrap=True, highlight=False)


def show_patches(rows: Sequence[Compared], console: Console) -> None:
    """One line a case, how many of each outcome there are, and what each patch says of itself."""
    table = Table(box=box.SIMPLE_HEAD)
    for column in ("case", "outcome"):
        table.add_column(column, no_wrap=True)
    for column in ("step", "loss", "the twin's"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("differs most", no_wrap=True, max_width=40)
    table.add_column("leading fix", no_wrap=True, max_width=50)
    for row in rows:
        losses = ("-" if loss is None else f"{loss:.6g}" for loss in (row.ours, row.twins))
        parts = (row.name, row.outcome, str(row.step), *losses, row.differs, row.title)
        table.add_row(*map(escape, parts))
    console.print(table)
    for row in rows:
        if row.differs:
            console.print(escape(f"{row.name}: {row.verdict}"), soft_wrap=True, highlight=False)
    counts = Counter(row.outcome for row in rows)
    told = ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common())
    console.print(f"{len(rows)} leading fixes beside the twins (within {TOLERANCE}): {told}")


def _words(marks: Marks, columns: Iterable[str]) -> list[str]:
    return [WORDS[marks[column]] for column in columns]


def _total(rows: Sequence[Row], column: str, side: Callable[[Row], Marks]) -> str:
    marks = [side(row)[column] for row in rows]
    counted = [mark for mark in marks if mark is not None]
    return f"{sum(counted)}/{len(counted)}"

"""`scripts/transparency`: for each dtype, how many samples of torch's own test databases come out
the same under the recorder: values, gradients, random numbers, warnings; and no error is found.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from transparent.compare import Outcome

DTYPES = ("float32", "float64", "bfloat16", "float16", "complex64")
COLUMNS = (
    "identical", "torch", "random", "different", "alone", "raised", "warned", "noted", "accused"
)  # fmt: skip
LEGEND = (
    "identical: every bit of values, gradients and random state. torch: differs in the same bits\n"
    "under a dispatch mode that does nothing, since torch takes another formula under any mode.\n"
    "random: two bare runs differ. alone: the sizes alone change it. accused: an error was found\n"
    "though every value is finite."
)


def main() -> int:
    given = _arguments()
    try:
        from transparent.compare import REFUSED, WRONG, compare
        from transparent.samples import DATABASES
    except ModuleNotFoundError as missing:
        print(
            f"transparency: torch's databases need it: pip install {missing.name}", file=sys.stderr
        )
        return 2
    torch.set_num_threads(1)
    rows: list[tuple[str, str, list[Outcome]]] = []
    for database in given.database:
        for dtype in given.dtype:
            outcomes = []
            for sample in DATABASES[database](getattr(torch, dtype), given.samples):
                if fnmatch(sample.name, given.only):
                    print(f"{database} {dtype} {sample.name}", file=sys.stderr)
                    outcomes.append(compare(sample))
            rows.append((database, dtype, [one for one in outcomes if one.what != REFUSED]))
    _print_table(rows)
    return int(any(one.what in WRONG for _, _, outcomes in rows for one in outcomes))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/transparency", description=__doc__)
    parser.add_argument("--dtype", nargs="+", default=DTYPES, choices=DTYPES)
    parser.add_argument(
        "--database", nargs="+", default=("operators", "modules", "optimizers"), metavar="NAME"
    )
    parser.add_argument("--samples", type=int, default=3, help="of each entry, at most")
    parser.add_argument("--only", default="*", help="a wildcard for names: 'linalg.*'")
    return parser.parse_args()


def _print_table(rows: Sequence[tuple[str, str, Sequence[Outcome]]]) -> None:
    print(f"{'':24}{'names':>7}{'samples':>9}" + "".join(f"{name:>11}" for name in COLUMNS))
    for database, dtype, outcomes in rows:
        counts = Counter(one.what for one in outcomes)
        names = len({one.name for one in outcomes})
        line = f"{database + ' ' + dtype:24}{names:7}{len(outcomes):9}"
        print(line + "".join(f"{counts[name]:11}" for name in COLUMNS))
    print(f"\n{LEGEND}")
    for database, dtype, outcomes in rows:
        for one in dict.fromkeys(one for one in outcomes if one.what != "identical"):
            print(f"{one.what:10} {database} {dtype} {one.name}  {one.detail[:160]!r}")


sys.exit(main())

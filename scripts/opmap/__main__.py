"""`scripts/op-map MAP.json`: one table of how much of the map is covered, and what is not and why.

The map lists ops whose value or gradient is not finite at an edge input. Each row becomes a
program that is traced; it is covered when the op table explains the op that broke, and the
diagnosis gives a cause that fits.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from opmap.coverage import Verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("map", type=Path, help="the map: JSON with `backward` and `forward` rows")
    parser.add_argument("--only", default="", help="only rows whose op contains this")
    parser.add_argument("--verbose", action="store_true", help="one line for every row")
    arguments = parser.parse_args()
    try:
        rows = json.loads(arguments.map.read_text())
    except (OSError, ValueError) as fault:
        print(f"op-map: cannot read {arguments.map}: {fault}", file=sys.stderr)
        return 2
    try:
        from opmap.coverage import judge_apart
    except ModuleNotFoundError as missing:
        print(
            f"op-map: torch's test databases need it: pip install {missing.name}", file=sys.stderr
        )
        return 2
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    verdicts = []
    for part in ("backward", "forward"):
        for row in rows[part]:
            if arguments.only not in row["op"]:
                continue
            verdicts.append(one := judge_apart(row, part == "forward"))
            if arguments.verbose:
                said = one.edge or one.why_not
                print(
                    f"{one.group:25} {one.op:42} {one.culprit:26} {said:36} {one.cause}", flush=True
                )
    _print_table(verdicts)
    return 0


def _print_table(verdicts: list[Verdict]) -> None:
    rows = Counter(one.group for one in verdicts)
    reproduced = Counter(one.group for one in verdicts if one.reproduced)
    covered = Counter(one.group for one in verdicts if not one.why_not)
    print(f"{'class':28}{'rows':>6}{'reproduced':>12}{'covered':>9}{'not':>5}")
    for group in sorted(rows):
        left = rows[group] - covered[group]
        print(f"{group:28}{rows[group]:6}{reproduced[group]:12}{covered[group]:9}{left:5}")
    total = (rows.total(), reproduced.total(), covered.total(), rows.total() - covered.total())
    print(f"{'total':28}{total[0]:6}{total[1]:12}{total[2]:9}{total[3]:5}")
    for group in sorted(rows):
        missing = [one for one in verdicts if one.group == group and one.why_not]
        if missing:
            print(f"\n{group}: not covered")
        for one in missing:
            print(f"  {one.op:44} {one.why_not}")


sys.exit(main())

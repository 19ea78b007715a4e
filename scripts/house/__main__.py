"""Prints one row a layer: its files, their lines, the longest one, and the layers it imports."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from house.layers import BESIDE, LAYERS, between, layer_of, upward

PACKAGE = Path(__file__).resolve().parents[2] / "gradscope"


def main() -> None:
    lines: dict[str, dict[Path, int]] = {}
    for file in sorted(PACKAGE.rglob("*.py")):
        count = file.read_text(encoding="utf-8").count("\n")
        lines.setdefault(layer_of(file, PACKAGE), {})[file] = count
    below: dict[str, set[str]] = {}
    for _, layer, rest in between(PACKAGE):
        below.setdefault(layer, set()).add(rest[0])

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("layer", "files", "lines", "longest file", ""):
        table.add_column(heading, justify="right" if heading in ("files", "lines") else "left")
    table.add_column("imports", overflow="fold")
    for layer in (name for name in [*LAYERS, *sorted(BESIDE)] if name in lines):
        files = lines[layer]
        longest = max(files, key=lambda file: files[file])
        table.add_row(
            layer,
            str(len(files)),
            str(sum(files.values())),
            str(longest.relative_to(PACKAGE)),
            str(files[longest]),
            " ".join(sorted(below.get(layer, ()), key=LAYERS.index)),
        )
    total = {file: count for files in lines.values() for file, count in files.items()}
    table.add_row("all", str(len(total)), str(sum(total.values())))

    console = Console()
    console.print(table)
    console.print(f"imports that point up: {len(upward(PACKAGE))}")


if __name__ == "__main__":
    main()

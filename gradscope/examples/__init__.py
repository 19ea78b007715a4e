"""The built-in programs: the reference failures, their repairs, and a few more that teach.

Each is a plain script, as a user would write it. Adding one is adding one file: its name is the
file's, its title the first line of its docstring, and a line `# expects: NAME` gives the rule that
must come out of it, or `healthy`. The files are read, never imported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Example:
    """One program. `expects` names the rule that must come out, None where it is healthy."""

    name: str
    title: str
    path: Path
    expects: str | None


def _read(path: Path) -> Example:
    source = path.read_text(encoding="utf-8")
    title = re.match(r'"""(.+?)\.?(?:"""|\n)', source)
    expects = re.search(r"^# expects: (\S+)$", source, re.MULTILINE)
    if title is None or expects is None:
        raise ValueError(f"{path.name}: needs a docstring and a line `# expects: NAME`")
    rule = expects[1]
    return Example(path.stem, title[1], path, None if rule == "healthy" else rule)


FOLDER = Path(__file__).parent
EXAMPLES: dict[str, Example] = {
    path.stem: _read(path) for path in sorted(FOLDER.glob("*.py")) if path.name != "__init__.py"
}

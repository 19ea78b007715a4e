"""`# gradscope: ignore[GS102, masked-branch]` comments in a user's source."""

import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_REMARK = re.compile(r"#\s*gradscope:\s*ignore\b\s*(?:\[(?P<rules>[^\]]*)\])?")


@dataclass(frozen=True, slots=True)
class Ignore:
    """One comment: findings of `rules` (all, where empty) at its line are accepted.

    `line` is 1-based, `col` and `end_col` 0-based. A comment that stands alone on its line is
    about the next line of code.
    """

    file: str
    line: int
    col: int
    end_col: int
    rules: tuple[str, ...]
    about: int


def ignores(file: str, lines: Sequence[str]) -> Iterator[Ignore]:
    """The comments of a file, nothing where it is no Python."""
    if not any("gradscope" in line for line in lines):
        return
    text = "\n".join(lines) + "\n"
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and (found := _REMARK.search(token.string)):
                line, col = token.start
                alone = not lines[line - 1][:col].strip()
                words = [word.strip() for word in (found["rules"] or "").split(",")]
                yield Ignore(
                    file,
                    line,
                    col,
                    token.end[1],
                    tuple(filter(None, words)),
                    _next_code(lines, line) if alone else line,
                )
    except (tokenize.TokenError, SyntaxError):
        return


def _next_code(lines: Sequence[str], line: int) -> int:
    for number, text in enumerate(lines[line:], line + 1):
        if text.strip() and not text.strip().startswith("#"):
            return number
    return line

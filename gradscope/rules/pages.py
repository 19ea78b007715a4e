"""The pages of the rules, read from their docstrings: what `gradscope explain` prints."""

import inspect
import re
import textwrap
from functools import partial

from gradscope.rules.rule import Rule

SECTIONS = ("What it does", "Why is this bad?", "Example", "Use instead", "Fix safety")


def sections(rule: Rule) -> dict[str, str]:
    """The headed parts of the rule's page, in order: heading -> Markdown.

    In a docstring the example and its repair are one program: lines that begin with "- " are in
    the example alone, those with "+ " in what to use instead.
    """
    page = inspect.cleandoc(type(rule).__doc__ or "")
    heads = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    found: dict[str, str] = {}
    for heading, body in zip(heads[1::2], heads[2::2], strict=True):
        found[heading] = _without("+ ", body.strip())
        if heading == "Example":
            found["Use instead"] = _without("- ", body.strip())
    return found


def _without(mark: str, body: str) -> str:
    """The lines that do not begin with one of the two marks, and without the other."""
    kept = (line for line in body.splitlines() if not line.startswith(mark))
    return "\n".join(line[2:] if line.startswith(("- ", "+ ")) else line for line in kept)


def markdown(rule: Rule) -> str:
    """The whole page."""
    parts = (f"## {heading}\n\n{body}" for heading, body in sections(rule).items())
    return "\n\n".join((f"# {rule.code} {rule.name}", *parts))


def folded(body: str, width: int) -> str:
    """Markdown with its prose folded to so many columns, and its code as it stands."""
    if body.startswith("```"):
        return body
    paragraphs = (" ".join(paragraph.split()) for paragraph in body.split("\n\n"))
    fold = partial(textwrap.fill, width=width, break_long_words=False, break_on_hyphens=False)
    return "\n\n".join(map(fold, paragraphs))


def summary(rule: Rule) -> str:
    """The first sentence of "What it does", on one line, without its verb."""
    text = " ".join(sections(rule)["What it does"].split())
    return re.split(r"(?<=[.:]) ", text, maxsplit=1)[0].rstrip(".:").removeprefix("Finds ")

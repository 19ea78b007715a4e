"""Pages of HTML: self-contained, no script, nothing fetched, light and dark, printable.

Not called html.py, which would hide the standard library's.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from gradscope.facts import Report, Summary
from gradscope.report import outline
from gradscope.report.diffs import numbered
from gradscope.report.outline import Cell, Code, Heading, Listed, Part, Prose, Section, Table
from gradscope.report.printable import Line, clean, expanded, sentence
from gradscope.report.rendering import Options
from gradscope.version import __version__

NAME = "html"

STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")

# Of a part of a page: what holds for the whole page holds for the part's outermost element.
SCOPED = f"@scope (.gradscope) {{\n{STYLE.replace(':root', ':scope').replace('body', ':scope')}}}\n"

HEAD = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="referrer" content="no-referrer">
"""


CODE = ("source", "added", "removed")  # the roles of what is Python
SIGNS = ("+ ", "- ", "  ")
_LONG = 40  # characters of a cell that is broken where it must be
_TAGS = ("good", "warning", "error")


def render(report: Report, options: Options) -> str:
    return page(f"gradscope: {report.target}", _report(report, options))


def fragment(report: Report, options: Options) -> str:
    """The report as a part of somebody else's page, whose looks stay as they are."""
    inside = "\n".join(_report(report, options))
    return f'<div class="gradscope">\n<style>\n{SCOPED}</style>\n{inside}\n</div>\n'


def render_all(summary: Summary, options: Options) -> str:
    parts = outline.of_check(summary, options.for_page())
    return page("gradscope check", (*written(parts), _footer()))


def page(title: str, body: Iterable[str], style: str = "") -> str:
    """A whole page. `style` comes on top of that of every page."""
    head = f"{HEAD}<title>{escape(sentence(title))}</title>\n<style>\n{STYLE}{style}</style>"
    return "\n".join((head, "</head>\n<body>", *body, "</body>\n</html>")) + "\n"


def _report(report: Report, options: Options) -> Iterator[str]:
    yield from written(outline.of_report(report, options.for_page()))
    env = report.trace.environment
    known = [("torch", env.torch), ("Python", env.python), ("device", env.device)]
    yield _footer(", ".join(f"{name} {sentence(value)}" for name, value in known if value))


def _footer(known: str = "") -> str:
    return f"<footer>gradscope {__version__}{'; ' if known else ''}{escape(known)}</footer>"


def written(parts: Iterable[Part]) -> Iterator[str]:
    """The elements of a page."""
    for part in parts:
        match part:
            case Heading(level, words, role, anchor):
                named = f' id="{anchor}"' if anchor else ""
                yield f"<h{level}{_marked(role)}{named}>{prose(words)}</h{level}>"
            case Prose(words, role, lead):
                role = f"tag {role}" if role in _TAGS else role
                yield f"<p{_marked(role)}>{_lead(lead, words)}{prose(words)}</p>"
            case Code(str(text), "diff", file):
                yield _pre(numbered(text, 4, Options().for_page(), file=file))
            case Code(str(text)):
                yield f"<pre>{_verbatim(text.rstrip())}</pre>"
            case Code(tuple(lines)):
                yield _pre(lines)
            case Listed(name, (item,)):
                yield f"<p>{_lead(name, item)}{_item(item)}</p>"
            case Listed(name, items, chain):
                tag = "ol" if chain else "ul"
                yield f"<p><b>{name}:</b></p>\n<{tag}{_marked('chain' if chain else '')}>"
                yield from (f"<li>{_item(item)}</li>" for item in items)
                yield f"</{tag}>"
            case Table(headings, rows):
                yield from _table(headings, rows)
            case Section(severity, anchor, inside):
                yield f'<section class="{severity}" id="{anchor}">'
                yield from written(inside)
                yield "</section>"


def _marked(role: str) -> str:
    return f' class="{role}"' if role else ""


def _lead(name: str, words: str) -> str:
    return f"<b>{name}:</b> " if name and words else f"<b>{name}</b>" if name else ""


def _item(phrase: str) -> str:
    title, _, block = phrase.partition("\n")  # a small table of a rule's own, a test
    return f"{prose(title)}<pre>{_verbatim(block.rstrip())}</pre>" if block else prose(title)


def _table(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    yield '<div class="scroll"><table>'
    yield f"<tr>{''.join(f'<th>{prose(heading)}</th>' for heading in headings)}</tr>"
    for row in rows:
        yield f"<tr>{''.join(map(_cell, row))}</tr>"
    yield "</table></div>"


def _cell(cell: Cell) -> str:
    words = f"<code>{escape(clean(cell.words))}</code>" if cell.code else prose(cell.words)
    if cell.anchor:
        words = f'<a href="#{cell.anchor}">{words}</a>'
    if cell.role:
        words = f'<span class="tag {cell.role}">{words}</span>'
    if cell.share:
        percent = max(100 * cell.share, 2)
        words = f'<span class="bar" style="background-size: {percent:.0f}% 100%"></span>{words}'
    return f"<td{_marked('long' if len(cell.words) > _LONG else '')}>{words}</td>"


def _pre(lines: Iterable[Line]) -> str:
    return f"<pre>{chr(10).join(_line(line) for line in lines)}</pre>"


def _line(line: Line) -> str:
    return "".join(
        _spanned(part.role, _coloured(part.text) if part.role in CODE else escape(part.text))
        for part in line
    )


def _spanned(role: str, text: str) -> str:
    return f'<span class="{role}">{text}</span>' if role else text


def _coloured(code: str) -> str:
    """A line of Python, whose first sign may be that of a diff; of a string of several lines it
    knows nothing."""
    # A tenth of a second, on pages alone.
    from pygments.lexers.python import PythonLexer  # type: ignore[import-untyped]
    from pygments.token import Comment, Keyword, Number, Operator, String  # type: ignore[import-untyped]

    kinds = ((Comment, "dim"), (Keyword, "word"), (Operator.Word, "word"), (String, "string"))
    sign, code = (code[:2], code[2:]) if code[:2] in SIGNS else ("", code)
    pieces = [escape(sign)]
    for _, token, text in PythonLexer().get_tokens_unprocessed(code):
        role = next((role for kind, role in (*kinds, (Number, "number")) if token in kind), "")
        pieces.append(_spanned(role, escape(text)))
    return "".join(pieces)


def _verbatim(text: str) -> str:
    """Text whose line breaks count, as in a traceback or a small table."""
    return "\n".join(escape("".join(expanded(line))) for line in text.split("\n"))


def prose(text: str) -> str:
    """Text with the `code` that it names set as code."""
    pieces = escape(sentence(text)).split("`")
    if len(pieces) % 2 == 0:  # a backtick of somebody's name
        return clean("`".join(pieces))
    return "".join(
        f"<code>{piece}</code>" if number % 2 else piece for number, piece in enumerate(pieces)
    )

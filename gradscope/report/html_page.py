"""Pages of HTML: self-contained, no script, nothing fetched, light and dark, printable.

Not called html.py, which would hide the standard library's.
"""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from gradscope.facts import Report, Summary
from gradscope.report import outline
from gradscope.report.diffs import numbered
from gradscope.report.outline import Cell, Code, Heading, Listed, Part, Prose, Section, Table
from gradscope.report.printable import Line, clean, expanded, sentence
from gradscope.report.rendering import Options
from gradscope.version import __version__

NAME = "html"

STYLE = """\
:root { color-scheme: light dark; --page: #fff; --text: #1d2127; --dim: #59626e; --line: #d5dae1;
  --code: #f5f7f9; --error: #b3151d; --warning: #8a5a00; --note: #0b6570; --good: #17692b;
  --mark: #2f5fc4; --added: #e2f5e5; --removed: #fbe6e6; --word: #7a2f9c; --string: #1f5f86; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --text: #e3e6ea; --dim: #9aa4b0;
  --line: #343b44; --code: #1d2127; --error: #ff7b78; --warning: #e6b450; --note: #5fc9d6;
  --good: #6fce82; --mark: #8fb2ff; --added: #17331d; --removed: #3b1c1e; --word: #d6a3f0;
  --string: #8cc8ea; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1rem 3rem; background: var(--page);
  color: var(--text); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.1rem; margin: 0 0 .25rem; }
body > h2 { margin-top: 2rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .25rem; }
p { margin: .4rem 0; max-width: 50rem; } a { color: inherit; }
code, pre { font: .875rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
code { background: var(--code); padding: 0 .2em; border-radius: 3px; }
pre { background: var(--code); border: 1px solid var(--line); border-radius: 6px; margin: .6rem 0;
  padding: .6rem .8rem; overflow-x: auto; overflow-wrap: normal; }
section { border: 1px solid var(--line); border-left: 4px solid var(--dim); border-radius: 6px;
  margin: 1.25rem 0; padding: 1rem 1.1rem; }
section.error { border-left-color: var(--error); } section.note { border-left-color: var(--note); }
section.warning { border-left-color: var(--warning); }
.scroll { overflow-x: auto; } .dim, .gutter { color: var(--dim); }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .9rem .25rem 0; text-align: left;
  vertical-align: baseline; overflow-wrap: normal; } td code { overflow-wrap: anywhere; }
th { color: var(--dim); font-weight: normal; } td.long { overflow-wrap: anywhere; min-width: 8rem; }
ul, ol { margin: .4rem 0; padding-left: 1.3rem; }
.chain { display: flex; flex-wrap: wrap; gap: .4rem 0; list-style: none; padding: 0; }
.chain li { border: 1px solid var(--line); border-radius: 6px; padding: 0 .5rem; }
.chain li:not(:last-child) { margin-right: 1.7rem; position: relative; }
.chain li:not(:last-child)::after { content: "\\2192"; position: absolute; right: -1.4rem; }
.chain li:first-child, .chain li:last-child { border-color: var(--error); color: var(--error); }
.error { color: var(--error); } .warning { color: var(--warning); } .note { color: var(--note); }
section.error, section.warning, section.note { color: inherit; }
.good { color: var(--good); } .bad { color: var(--error); } .related { color: var(--mark); }
.tag { font-weight: 600; } .word { color: var(--word); } .string, .number { color: var(--string); }
.added { background: var(--added); } .removed { background: var(--removed); }
.bar { display: inline-block; width: 5rem; height: .6rem; border: 1px solid var(--line);
  background: linear-gradient(var(--error), var(--error)) no-repeat; margin-right: .5rem; }
footer { color: var(--dim); font-size: .875rem; }
@media print { body { max-width: none; padding: 0; font-size: 10pt; }
  pre { font-size: 7.5pt; white-space: pre-wrap; overflow-wrap: anywhere; }
  h2, h3 { break-after: avoid; } pre, tr { break-inside: avoid; }
  .bar, .added, .removed { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""

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
                yield f"<p{_marked(role)}>{_lead(lead)}{prose(words)}</p>"
            case Code(str(text), "diff"):
                yield _pre(numbered(text, 4, Options().for_page()))
            case Code(str(text)):
                yield f"<pre>{_verbatim(text.rstrip())}</pre>"
            case Code(tuple(lines)):
                yield _pre(lines)
            case Listed(name, (item,)):
                yield f"<p>{_lead(name)}{_item(item)}</p>"
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


def _lead(name: str) -> str:
    return f"<b>{name}:</b> " if name else ""


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

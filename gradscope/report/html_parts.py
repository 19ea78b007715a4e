"""The pieces that HTML pages are made of: no script, nothing fetched, light and dark, printable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from gradscope.facts import Finding, Fix, Operand
from gradscope.report import sentences, tensors, trials
from gradscope.report.diffs import numbered
from gradscope.report.frames import frame, gutter_of, marks
from gradscope.report.printable import Line, clean, expanded, sentence
from gradscope.report.rendering import Options

STYLE = """\
:root { color-scheme: light dark; --page: #fff; --text: #1d2127; --dim: #59626e; --line: #d5dae1;
  --code: #f5f7f9; --error: #b3151d; --warning: #8a5a00; --note: #0b6570; --good: #17692b;
  --mark: #2f5fc4; --added: #e2f5e5; --removed: #fbe6e6; }
@media (prefers-color-scheme: dark) { :root { --page: #15181c; --text: #e3e6ea; --dim: #9aa4b0;
  --line: #343b44; --code: #1d2127; --error: #ff7b78; --warning: #e6b450; --note: #5fc9d6;
  --good: #6fce82; --mark: #8fb2ff; --added: #17331d; --removed: #3b1c1e; } }
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
  vertical-align: baseline; overflow-wrap: normal; }
th { color: var(--dim); font-weight: normal; } td.what { overflow-wrap: anywhere; min-width: 8rem; }
ul, ol { margin: .4rem 0; padding-left: 1.3rem; }
.error { color: var(--error); } .warning { color: var(--warning); } .note { color: var(--note); }
section.error, section.warning, section.note { color: inherit; }
.good { color: var(--good); } .bad { color: var(--error); } .related { color: var(--mark); }
.tag { font-weight: 600; }
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


def opening(title: str, style: str = "") -> str:
    """From the first line of a page to its body. `style` comes on top of that of every page."""
    return f"{HEAD}<title>{title}</title>\n<style>\n{STYLE}{style}</style>\n</head>\n<body>"


def section(number: int, finding: Finding, options: Options) -> Iterator[str]:
    severity = finding.severity.value
    yield f'<section class="{severity}" id="finding-{number}">'
    yield (
        f'<h2><span class="{severity}">{severity}[{escape(finding.rule)}] '
        f"{escape(finding.name)}</span>: {prose(finding.message)}</h2>"
    )
    if found := marks(finding):
        yield pre(frame(found, gutter_of(found), options))
    yield f"<p>{prose(finding.why)}</p>"
    for fix in sentences.offered(finding.fixes):
        yield from _fix(fix, options)
    yield from (f'<p class="dim">inside {prose(words)}</p>' for words in sentences.inside(finding))
    if measured := sentences.measured(finding):
        yield "<h3>Numbers</h3>"
        yield from listed("ul", (_number(phrase) for phrase in measured))
    if finding.tensors:
        yield "<h3>Tensors</h3>"
        yield from table(tensors.HEADINGS, dict.fromkeys(map(_tensor, finding.tensors)))
    if finding.symptoms:
        yield f"<h3>Symptoms</h3>\n<p>{prose(sentences.symptoms(finding.symptoms, 10))}</p>"
    if len(sentences.links(finding.chain)) > 1:
        yield "<h3>From birth to symptom</h3>"
        yield from listed("ol", map(prose, sentences.chain(finding)))
    yield f'<p class="dim">More: <code>gradscope explain {escape(finding.rule)}</code></p>'
    yield "</section>"


def _number(phrase: str) -> str:
    title, _, block = phrase.partition("\n")  # a small table of a rule's own, a test
    return f"{prose(title)}<pre>{verbatim(block.rstrip())}</pre>" if block else prose(title)


def _tensor(tensor: Operand) -> str:
    """A row of the table, the share of bad elements drawn as a bar."""
    (row,) = tensors.rows([tensor])
    cells = [escape(cell) for cell in row]
    if tensor.bad and tensor.numel:
        percent = max(100 * tensor.bad / tensor.numel, 2)
        index = tensors.HEADINGS.index("bad")
        bar = f'<span class="bar" style="background-size: {percent:.0f}% 100%"></span>'
        cells[index] = f'{bar}<span class="bad">{cells[index]}</span>'
    return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _fix(fix: Fix, options: Options) -> Iterator[str]:
    """A fix that was refuted is one line, without the patch that nobody should apply."""
    verdict = prose(trials.verdict(fix))
    if fix.verified is False:
        yield f"<h3>Tried</h3>\n<p>{prose(fix.title)}: {verdict}</p>"
        return
    yield f"<h3>Fix: {prose(fix.title)}</h3>"
    if fix.patch:
        yield pre(numbered(fix.patch, 4, options))
    elif fix.code:
        yield f"<pre>{verbatim(fix.code)}</pre>"
    role = "good" if fix.verified else "warning"
    safety = sentences.SAFETY.get(fix.safety, "")
    yield f'<p><span class="tag {role}">{verdict}</span></p>'
    yield f'<p class="dim">fix is {escape(fix.safety)}: {safety}</p>'


def table(headings: Iterable[str], rows: Iterable[str]) -> Iterator[str]:
    yield '<div class="scroll"><table>'
    yield f"<tr>{''.join(f'<th>{heading}</th>' for heading in headings)}</tr>"
    yield from rows
    yield "</table></div>"


def text_row(cells: Iterable[str]) -> str:
    """A row of a table, from its texts."""
    return f"<tr>{''.join(f'<td>{prose(cell)}</td>' for cell in cells)}</tr>"


def listed(tag: str, items: Iterable[str]) -> Iterator[str]:
    yield f"<{tag}>"
    yield from (f"<li>{item}</li>" for item in items)
    yield f"</{tag}>"


def pre(lines: Iterable[Line]) -> str:
    return f"<pre>{chr(10).join(_line(line) for line in lines)}</pre>"


def _line(line: Line) -> str:
    return "".join(
        f'<span class="{part.role}">{escape(part.text)}</span>' if part.role else escape(part.text)
        for part in line
    )


def verbatim(text: str) -> str:
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

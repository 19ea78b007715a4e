"""A report that shows itself in the cell of a notebook."""

import sys
from typing import Any

from gradscope.facts import Report
from gradscope.report import FORMATS, Options
from gradscope.report.html_page import fragment


def mimebundle(report: Report, **asked: Any) -> dict[str, str]:
    """As IPython displays objects: HTML in a notebook, text in a terminal."""
    options = Options.fitting(sys.stdout)
    text = FORMATS["terminal"].render(report, options)
    return {"text/plain": text.rstrip(), "text/html": fragment(report, options)}


Report._repr_mimebundle_ = mimebundle

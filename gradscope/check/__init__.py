"""The preflight: every configured target, each under every dtype, judged side by side.

Config ──► cases ──► workers (one process each) ──► Reports ──► accepted ──► Summary
"""

from gradscope.check.cases import Case, cases_of
from gradscope.check.whole import check

__all__ = ["Case", "cases_of", "check"]

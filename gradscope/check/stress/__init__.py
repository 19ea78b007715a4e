"""Edge inputs for function targets: made from the given ones, tried, and shrunk.

given inputs ──► variants ──► try each (a process of its own) ──► shrink ──► trace ──► findings
"""

from gradscope.check.stress.findings import stress

__all__ = ["stress"]

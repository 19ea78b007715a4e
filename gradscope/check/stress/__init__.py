"""Edge inputs for functions and batches for models: made from the given ones, tried, shrunk.

given inputs ──► edges ──► try each (a process of its own) ──► shrink ──► trace ──► findings
"""

from gradscope.check.stress.found import stress

__all__ = ["stress"]

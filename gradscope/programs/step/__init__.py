"""A step that is kept: the calls that a program made of torch in it, in a folder, and run again
from there.

    program ──tape──► calls, tensors ──store──► folder ──play──► the same calls, from the same lines

A folder holds `step.json`, `tensors.pt` (tensors alone), `trace.json` (what was seen) and copies of
the program's files that calls were made in. Nothing in it is code that is run: it names functions
of torch, and no other name is looked up.
"""

CALLS, TENSORS, TRACE, SOURCES = "step.json", "tensors.pt", "trace.json", "sources"

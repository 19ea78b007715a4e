"""What to run, and running it in a child process."""

from gradscope.target.conditions import Conditions
from gradscope.target.messages import Progress
from gradscope.target.options import Repeat, RunOptions
from gradscope.target.parse import FIRST_EXAMPLE, parse_parts, parse_reference, parse_target
from gradscope.target.run import ChildFault, run
from gradscope.target.targets import Function, Parts, Reference, Script, Target

__all__ = [
    "FIRST_EXAMPLE",
    "ChildFault",
    "Conditions",
    "Function",
    "Parts",
    "Progress",
    "Reference",
    "Repeat",
    "RunOptions",
    "Script",
    "Target",
    "parse_parts",
    "parse_reference",
    "parse_target",
    "run",
]

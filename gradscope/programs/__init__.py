"""What to run, and running it in a child process."""

from gradscope.programs.channel import ChildFault, NoAnswer
from gradscope.programs.parse import parse_parts, parse_target
from gradscope.programs.run import Kept, run
from gradscope.programs.run_options import Conditions, Repeat, RunOptions
from gradscope.programs.targets import Function, Parts, Reference, Script, Target

__all__ = [
    "ChildFault",
    "Conditions",
    "Function",
    "Kept",
    "NoAnswer",
    "Parts",
    "Reference",
    "Repeat",
    "RunOptions",
    "Script",
    "Target",
    "parse_parts",
    "parse_target",
    "run",
]

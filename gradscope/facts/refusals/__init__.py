"""What ended the program: an op that refused its operands, and what autograd raised on, with what
had been done to the graph before that."""

from gradscope.facts.refusals.of_graphs import *
from gradscope.facts.refusals.of_graphs import OfGraph
from gradscope.facts.refusals.of_leaves import *
from gradscope.facts.refusals.of_leaves import OfLeaf
from gradscope.facts.refusals.of_ops import *
from gradscope.facts.refusals.of_steps import *
from gradscope.facts.refusals.of_steps import OfStep

AnyRefusal = OfGraph | OfLeaf | OfStep

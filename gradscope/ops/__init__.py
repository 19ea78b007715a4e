"""What is known of each op: the one table that rules, repairs and hazards look things up in.

Pure data and arithmetic on Python floats: no torch.
"""

from gradscope.ops.dtypes import eps_for, finfo
from gradscope.ops.edges import Edge, Nature
from gradscope.ops.table import OPS, lookup

__all__ = ["OPS", "Edge", "Nature", "eps_for", "finfo", "lookup"]

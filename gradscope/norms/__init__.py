"""How large each gradient is, what clipping would do, and where gradients grow or die."""

from gradscope.norms.facts import NormOptions, NormReport
from gradscope.norms.run import norms

__all__ = ["NormOptions", "NormReport", "norms"]

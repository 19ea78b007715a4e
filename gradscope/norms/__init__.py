"""How large each gradient is, what clipping would do, and where gradients grow or die."""

from gradscope.norms.conclusions import norms
from gradscope.norms.facts import NormOptions, NormReport

__all__ = ["NormOptions", "NormReport", "norms"]

"""gradscope: names the op that broke a gradient, says why, and hands over a fix that was tried.

with gradscope.watch() as seen:
    train(model, loader)
print(seen)

report = gradscope.trace("train.py")
for finding in report.findings:
    print(finding.severity, finding.name, finding.location, finding.message)

The names in `__all__` are public; what they return is, too. All else may change at any time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gradscope.version import __version__ as __version__

if TYPE_CHECKING:
    from gradscope.errors import GradscopeError as GradscopeError
    from gradscope.facts import Finding as Finding
    from gradscope.facts import Report as Report
    from gradscope.facts import Severity as Severity
    from gradscope.facts import Trace as Trace
    from gradscope.integrations.apart import trace as trace
    from gradscope.integrations.watch import watch as watch

_PLACES = {
    "Finding": "gradscope.facts",
    "GradscopeError": "gradscope.errors",
    "Report": "gradscope.facts",
    "Severity": "gradscope.facts",
    "Trace": "gradscope.facts",
    "load_ipython_extension": "gradscope.integrations.notebook",
    "trace": "gradscope.integrations.apart",
    "watch": "gradscope.integrations.watch",
}

__all__ = ["Finding", "GradscopeError", "Report", "Severity", "Trace", "trace", "watch"]


def __getattr__(name: str) -> Any:
    """A public name is imported when it is first asked for: some bring torch along."""
    if name not in _PLACES:
        raise AttributeError(f"module 'gradscope' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_PLACES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

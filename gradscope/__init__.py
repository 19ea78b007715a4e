"""gradscope: names the op that broke a gradient, says why, and hands over a fix that was tried.

with gradscope.watch() as seen:
    train(model, loader)
print(seen)
"""

from typing import TYPE_CHECKING, Any

from gradscope.version import __version__ as __version__

if TYPE_CHECKING:
    from gradscope.integrations.watch import watch as watch


def __getattr__(name: str) -> Any:
    """`watch` brings torch along, and is imported by those who ask for it."""
    if name == "watch":
        from gradscope.integrations.watch import watch

        return watch
    raise AttributeError(f"module 'gradscope' has no attribute {name!r}")

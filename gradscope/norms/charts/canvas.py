"""matplotlib as the pictures use it. It comes with the extra `charts`, and is imported when the
first picture is drawn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeGuard

from gradscope.norms.charts.inline import Ink, inline

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.lines import Line2D

Style = dict[str, Any]

_DPI = 72  # a point is a pixel
_TICKS = 8
_MARGIN = 0.02  # of an axis: a mark at its end should not lie on what is beside it

# In place of all that a matplotlibrc says: the same run gives the same page everywhere.
_SETTINGS: Style = {
    "svg.fonttype": "none",
    "text.parse_math": False,  # a layer may be called `$x$`
    "font.size": 12,
    "text.color": Ink.TEXT,
    "axes.labelcolor": Ink.DIM,
    "xtick.labelcolor": Ink.DIM,
    "ytick.labelcolor": Ink.DIM,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "xtick.major.pad": 7,
    "ytick.major.pad": 7,
    "axes.axisbelow": True,
    "grid.color": Ink.LINE,
    "lines.linewidth": 1.75,
    "lines.markersize": 6.5,
    "lines.markeredgewidth": 1.75,
    "legend.frameon": False,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0,
    "legend.handlelength": 1,
    "legend.handletextpad": 0.5,
    "legend.columnspacing": 1.5,
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
}

# Of the first series and of the second: they differ without colour.
FILLED_CIRCLE: Style = {"color": Ink.MARK, "marker": "o", "linestyle": "-"}
OPEN_SQUARE: Style = {
    "color": Ink.WARNING, "marker": "s", "markerfacecolor": Ink.PAGE, "linestyle": (0, (2, 2)),
}  # fmt: skip
CROSS: Style = {"color": Ink.ERROR, "marker": "x", "markersize": 9, "markeredgewidth": 2.5}
FRAME: Style = {"color": Ink.DIM, "marker": "s", "markersize": 12, "markerfacecolor": "none"}


def missing() -> str | None:
    """Why no picture can be drawn, None where one can."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        return str(error)
    return None


@contextmanager
def settings() -> Iterator[None]:
    """Around all that draws one picture."""
    import matplotlib.style

    with matplotlib.style.context(_SETTINGS, after_reset=True), warnings.catch_warnings():
        # Its own font measures the text, the browser's shows it.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        yield


def has_logarithm(value: float | None) -> TypeGuard[float]:
    return value is not None and 0 < value < math.inf


class Canvas:
    """A picture with axes of `width` x `height` pixels, which what stands around them widens."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure

        self.figure = Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_autoscale_on(False)
        self.size = (width, height)
        self._tips: dict[str, Sequence[str]] = {}

    def marks(
        self, name: str, at: Sequence[tuple[float, float, str]], style: Style, **more: Any
    ) -> None:
        """A mark at each x, y, with its tip."""
        if not at:
            return
        x, y, tips = zip(*at, strict=True)
        (artist,) = self.axes.plot(x, y, **{**style, **more, "linestyle": "none"})
        self.tip(artist, name, tips)

    def tip(self, artist: Any, name: str, tips: Sequence[str]) -> None:
        """One tip for each of the artist's marks, in the order in which it draws them."""
        artist.set_gid(name)
        artist.set_clip_on(False)
        self._tips[name] = tips

    def legend(self, handles: Sequence[Line2D], below: float, left: float = 0) -> None:
        """In one row, `below` pixels under the axes, from `left` of their width on."""
        self.axes.legend(
            handles=handles, ncols=len(handles), loc="upper left",
            bbox_to_anchor=(left, -below / self.size[1]),
        )  # fmt: skip

    def svg(self, label: str, *, fit: bool) -> str:
        import matplotlib

        unnamed = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        drawn = StringIO()
        # The ids of its parts are the same at every run, and differ from picture to picture.
        with matplotlib.rc_context({"svg.hashsalt": label}):
            self.figure.savefig(
                drawn, format="svg", metadata=unnamed, transparent=True,
                bbox_inches="tight", pad_inches=6 / _DPI,
            )  # fmt: skip
        return inline(drawn.getvalue(), label, self._tips, fit=fit)


def handle(label: str, style: Style) -> Line2D:
    """An entry of a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **{**style, "linestyle": "none"}, label=label)


def decades(axis: Axis, values: Sequence[float | None]) -> None:
    """An axis of log10 between two powers of ten, of which the outermost need not be floats."""
    logs = [math.log10(value) for value in values if has_logarithm(value)]
    low = math.floor(min(logs, default=0.0))
    high = max(math.ceil(max(logs, default=1.0)), low + 1)
    powers = range(low, high + 1, max(1, math.ceil((high - low) / _TICKS)))
    axis.set_ticks(powers, [f"1e{power}" for power in powers])
    margin = _MARGIN * (high - low)
    axis.set_view_interval(low - margin, high + margin, ignore=True)
    axis.grid(True)

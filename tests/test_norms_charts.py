"""The pictures of the page, counted mark by mark in what matplotlib drew."""

import math
import re
import subprocess
import sys
import warnings
from collections.abc import Sequence
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from gradscope.facts import Leaf
from gradscope.norms import charts
from gradscope.norms.charts import Series
from gradscope.norms.charts.inline import Ink

pytest.importorskip("matplotlib")

HOSTILE = (
    "</svg><script>alert(1)</script>",
    "\"><b onload='x'>",
    "&amp;",
    "$x_{2}$",
    "a\x1b[31m\n",
)


def leaf(name: str, norms: Sequence[float | None]) -> Leaf:
    return Leaf(name, (1,), "float32", 1, "parameter", True, 1.0, tuple(norms))


def tips(svg: str, group: str) -> list[str]:
    """The tips of a group's marks."""
    found = ElementTree.fromstring(svg).findall(f".//g[@class='{group}']//title")
    return [title.text or "" for title in found]


def texts(svg: str) -> list[str]:
    return [text.text or "" for text in ElementTree.fromstring(svg).iter("text")]


def fills(svg: str) -> list[str]:
    cells = ElementTree.fromstring(svg).findall(".//g[@class='cells']/path")
    return [re.findall("fill: ([^;]+)", cell.get("style", ""))[0] for cell in cells]


def test_each_step_is_marked_by_what_its_norm_is():
    total = Series("total norm", [1.0, math.nan, 0.0, None, 1e5, math.inf])
    svg = charts.lines("Total", [total], list("012345"), "step", bound=100.0)

    assert tips(svg, "series-0") == ["step 0: 1", "step 4: 1e+05"]
    assert tips(svg, "zero-0") == ["step 2: 0"]
    assert tips(svg, "lost-0") == ["step 1: nan", "step 5: inf"]
    assert {"max_norm 100", "total norm", "exactly 0", "not finite", "step"} < set(texts(svg))


def test_a_long_run_is_a_line_on_which_only_the_odd_steps_are_marked():
    norms = [*([1.0, 2.0] * 500), math.nan]
    svg = charts.lines("Total", [Series("t", norms)], [str(at) for at in range(1001)], "step")

    assert tips(svg, "series-0") == [] and tips(svg, "lost-0") == ["step 1000: nan"]


def test_the_ends_of_float64_have_a_place():
    svg = charts.lines("Ends", [Series("t", [5e-324, 1.7e308])], ["0", "1"], "step", 5e-324)

    assert tips(svg, "series-0") == ["step 0: 4.941e-324", "step 1: 1.7e+308"]
    assert "1e-324" in texts(svg)


def test_each_layer_has_a_row_with_a_mark_of_each_series():
    gradient = Series("gradient", [1.0, None, math.inf, 0.0])
    size = Series("activation", [2.0, 3.0, 4.0, 5.0])
    svg = charts.dots("Layers", [gradient, size], ["a", "b", "c", "d"])

    assert tips(svg, "series-0") == ["gradient of a: 1"]
    assert tips(svg, "lost-0") == ["gradient of c: inf"]
    assert tips(svg, "zero-0") == ["gradient of d: 0"]
    assert len(tips(svg, "series-1")) == 4
    assert [text for text in texts(svg) if len(text) == 1] == ["a", "b", "c", "d"]


def test_each_gradient_has_a_cell_a_step_and_the_odd_ones_a_mark_without_colour():
    rows = [leaf("w", [1e-3, 1.0, math.nan, None]), leaf("b", [10.0, 0.0, 1.0])]
    svg = charts.heat_map("Heat", rows)

    assert tips(svg, "cells") == [
        "w, step 0: 0.001", "w, step 1: 1", "w, step 2: nan", "w, step 3: none",
        "b, step 0: 10", "b, step 1: 0", "b, step 2: 1", "b, step 3: none",
    ]  # fmt: skip
    assert tips(svg, "lost") == ["w, step 2: nan"] and tips(svg, "zero") == ["b, step 1: 0"]
    shades = fills(svg)
    assert [at for at, shade in enumerate(shades) if shade == "none"] == [2, 3, 5, 7]
    assert shades[1] == shades[6] != shades[0] != shades[4]


def test_one_spike_is_no_scale():
    steady = [10.0 ** (at / 50) for at in range(50)]
    without = fills(charts.heat_map("Heat", [leaf("w", [*steady, 10.0])]))
    spiked = fills(charts.heat_map("Heat", [leaf("w", [*steady, 1e30])]))

    assert without == spiked and len(set(without)) > 20


def test_many_steps_are_joined_and_what_is_not_finite_is_never_lost():
    norms = [1.0] * 200
    norms[101] = math.inf
    svg = charts.heat_map("Heat", [leaf("w", norms)])

    assert len(tips(svg, "cells")) == 50
    assert tips(svg, "lost") == ["w, step 100: inf"]


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_only_ever_text(name):
    heat = charts.heat_map("Heat", [leaf(name, [1.0, math.nan])])
    rows = charts.dots("Rows", [Series("gradient", [1.0])], [name])
    page = Elements()
    page.feed(heat + rows)

    assert page.names <= {"svg", "g", "path", "use", "text", "title", "defs", "clippath", "rect"}
    assert not {attribute for attribute in page.attributes if attribute.startswith("on")}
    shown = name.replace("\x1b", "\\x1b").replace("\n", "\\n")
    assert shown in texts(heat) and shown in texts(rows)
    assert f"gradient of {shown}: 1" in tips(rows, "series-0")


def test_the_page_gives_the_colours_and_nothing_is_fetched():
    series = [Series("a", [1.0, 2.0]), Series("b", [0.0, math.nan])]
    drawn = charts.lines("One", series, ["0", "1"], "step", 3.0)
    drawn += charts.dots("Two", series, ["x", "y"])
    drawn += charts.heat_map("Three", [leaf("w", [1.0, 0.0, math.nan])])

    assert not [ink for ink in Ink if ink in drawn]
    assert {f"var(--{ink.name.lower()})" for ink in Ink} <= set(re.findall(r"var\([^)]*\)", drawn))
    assert "#000000" not in drawn and "<style" not in drawn and "font-family" not in drawn
    assert "://" not in drawn and "data:" not in drawn and "<image" not in drawn
    assert set(re.findall(r'href="(.)', drawn)) == {"#"}
    assert re.findall('role="img" aria-label="([^"]*)"', drawn) == ["One", "Two", "Three"]


def test_ids_of_a_page_are_its_own_and_the_same_at_every_run():
    one, two = (charts.lines(label, [Series("a", [1.0])], ["0"], "step") for label in "AB")
    again = charts.lines("A", [Series("a", [1.0])], ["0"], "step")
    ids = [set(re.findall(r' id="([^"]*)"', svg)) for svg in (one, two)]

    assert one == again
    assert ids[0] and not ids[0] & ids[1]


def test_a_glyph_that_matplotlib_lacks_is_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        svg = charts.dots("Layers", [Series("gradient", [1.0])], ["编码器.权重"])

    assert "编码器.权重" in texts(svg)


def test_neither_pyplot_nor_the_settings_of_the_caller_are_touched():
    import matplotlib

    matplotlib.rcParams["font.size"] = 31.0
    try:
        svg = charts.lines("A", [Series("a", [1.0])], ["0"], "step")
        assert "31px" not in svg and matplotlib.rcParams["font.size"] == 31.0
    finally:
        matplotlib.rcdefaults()
    program = (
        "import sys; from gradscope.norms import charts; early = 'matplotlib' in sys.modules\n"
        "charts.lines('A', [charts.Series('a', [1.0])], ['0'], 'step')\n"
        "print(early, 'matplotlib.pyplot' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "False False\n", run.stderr

"""A drawn picture made a part of the page: its colours, its fonts, and a tip at each mark."""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from xml.etree import ElementTree

STYLE = """\
body > h2 { margin-top: 2.25rem; } th { white-space: nowrap; }
.scroll svg { display: block; overflow: visible; stroke-linejoin: round; }
svg.fit { max-width: 100%; min-width: 40rem; height: auto; }
"""


class Ink(StrEnum):
    """Colours that stand for one of the page's until the picture is in it: light, dark or print
    is known only there."""

    TEXT = "#010203"
    DIM = "#010204"
    LINE = "#010205"
    PAGE = "#010206"
    MARK = "#010207"
    WARNING = "#010208"
    ERROR = "#010209"


_COLOURS = {str(ink): f"var(--{ink.name.lower()})" for ink in Ink}
_COLOUR = re.compile("|".join(_COLOURS))
_FONT = re.compile("font-family:[^;]*(; )?")


def inline(svg: str, label: str, tips: Mapping[str, Sequence[str]], *, fit: bool) -> str:
    """An SVG document as an element of an HTML page, which calls it `label`.

    `tips` has the texts for the marks of a group, by the group's id. With `fit` the picture
    shrinks on a small screen.
    """
    root = ElementTree.fromstring(svg)
    for element in root.iter():
        _rename(element)
        for child in list(element):
            if child.tag.endswith("style"):  # one of all the page's elements
                element.remove(child)
        if "style" in element.attrib:
            _restyle(element)
        if element.tag == "g":  # nothing refers to one
            name = element.attrib.pop("id", "")
            if name in tips:
                element.set("class", name)
                _tip(element, tips[name])
    left, top, width, height = root.attrib["viewBox"].split()
    root.attrib = {"viewBox": f"{left} {top} {width} {height}", "role": "img", "aria-label": label}
    root.attrib |= {"width": width, "height": height} | ({"class": "fit"} if fit else {})
    return ElementTree.tostring(root, encoding="unicode")


def _rename(element: ElementTree.Element) -> None:
    """Without namespaces, which HTML knows by itself."""
    element.tag = element.tag.rpartition("}")[2]
    element.attrib = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}


def _restyle(element: ElementTree.Element) -> None:
    style = _FONT.sub("", element.attrib["style"])
    element.set("style", _COLOUR.sub(lambda found: _COLOURS[found[0]], style))


def _tip(group: ElementTree.Element, tips: Sequence[str]) -> None:
    marks = group.findall(".//{*}use") or group.findall(".//{*}path")
    for mark, tip in zip(marks, tips, strict=True):
        ElementTree.SubElement(mark, "title").text = tip

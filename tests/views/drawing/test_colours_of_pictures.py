"""Pictures where no style is let through: each mark has its colour as an attribute."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import pytest

from tests.views.test_outputs_stay import RESULTS

PICTURED = ("profile_with_memory", "sweep", "ranks", "profile_with_efficiency")
FILLED, STROKED = {"path", "rect", "circle", "polygon", "polyline"}, {"polyline"}


def marks(element: ElementTree.Element, inherited: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(tag, its colours, those of the groups round it included)."""
    own = inherited | {name: element.attrib[name] for name in ("fill", "stroke") if name in element.attrib}
    yield element.tag, own
    for child in element:
        yield from marks(child, own)


@pytest.mark.parametrize("name", PICTURED)
def test_every_mark_has_a_colour_of_its_own_without_style(name: str) -> None:
    html = RESULTS[name]()._repr_mimebundle_()["text/html"]
    drawings = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    assert drawings
    for drawing in drawings:
        root = ElementTree.fromstring(re.sub(r'=([^\s"<>]+)(?=[ >])', r'="\1"', drawing))
        assert root.attrib["fill"] == "currentColor", "words follow the colour of the text around"
        for tag, colours in marks(root, {}):
            if tag in FILLED and "fill" in colours:
                assert colours["fill"] != "currentColor", tag
            if tag in STROKED:
                assert "stroke" in colours, "a line without a colour is not seen"

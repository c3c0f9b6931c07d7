"""What axe-core finds wrong with each view as a page, in both themes: nothing serious, nothing moderate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.show.test_outputs_stay import RESULTS
from torchbench_magic.show import html

from .results import ALL_DRAWN

axe_playwright = pytest.importorskip("axe_playwright_python.base")
pytestmark = pytest.mark.browser


GRAVE = ("critical", "serious", "moderate")
RULES = {"light": {}, "dark": {"runOnly": ["color-contrast"]}}
"""In the dark only colours can be wrong that were not in the light."""


def violations(page: Page, scheme: Any) -> list[str]:
    """What axe finds in that theme."""
    page.emulate_media(color_scheme=scheme)
    found = page.evaluate("options => axe.run(options)", RULES[scheme] | {"resultTypes": ["violations"]})["violations"]
    return [
        f"{each['impact']} {each['id']}: {node['target']} {node.get('failureSummary', '')[:200]}"
        for each in found
        for node in each["nodes"][:2]
        if each["impact"] in GRAVE
    ]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each kind of result as a page of its own."""
    folder, made = tmp_path_factory.mktemp("pages"), {}
    for name, make in RESULTS.items():
        bundle = make()._repr_mimebundle_()
        bundle = bundle[0] if isinstance(bundle, tuple) else bundle
        text = bundle["text/html"]
        made[name] = folder / f"{name}.html"
        made[name].write_text(text if text.startswith("<!doctype") else html.around(text, name), encoding="utf-8")
    return made


def views(page: Page) -> Iterator[str]:
    """As it opens, and each other view of each result on the page, chosen in turn; its name."""
    switches = page.locator(".torchbench .seg button, .torchbench .controls select option").all()
    others = [each for each in switches if not each.evaluate("e => e.selected || e.ariaPressed === 'true'")]
    yield "as it opens"
    for switch in others:
        if switch.evaluate("e => e.tagName") == "OPTION":
            name = switch.inner_text()
            switch.locator("..").select_option(label=name)
        elif switch.is_visible():
            name = switch.inner_text()
            switch.click()
        else:
            continue
        yield name


@pytest.mark.slow
@pytest.mark.parametrize("name", RESULTS)
def test_axe_finds_nothing(visit: Any, pages: dict[str, Path], name: str) -> None:
    page = visit.open(pages[name].as_uri())
    page.set_viewport_size({"width": 1000, "height": 1000})
    page.wait_for_function(ALL_DRAWN)
    page.evaluate(axe_playwright.AXE_SCRIPT)
    wrong = {(view, scheme): found for view in views(page) for scheme in RULES if (found := violations(page, scheme))}
    assert wrong == {}

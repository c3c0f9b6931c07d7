"""What axe-core finds wrong with each view as a page, in both themes: nothing serious, nothing moderate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from torchbench_magic.views.carriers import html

from ..views.test_outputs_stay import RESULTS

axe_playwright = pytest.importorskip("axe_playwright_python.sync_playwright")
pytestmark = pytest.mark.browser



GRAVE = ("critical", "serious", "moderate")


def violations(page: Page, scheme: str) -> list[str]:
    """What axe finds; in the dark only colours can be wrong that were not in the light."""
    options = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
    found = axe_playwright.Axe().run(page, options=options).response["violations"]
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
    """Chooses each view of each result on the page in turn; its name."""
    yield "as it opens"
    for switch in page.locator(".torchbench .seg button, .torchbench .controls select option").all():
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
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", RESULTS)
def test_axe_finds_nothing(chromium: Browser, pages: dict[str, Path], name: str, scheme: Any) -> None:
    context = chromium.new_context(color_scheme=scheme, viewport={"width": 1000, "height": 1000})
    page = context.new_page()
    page.goto(pages[name].as_uri())
    page.wait_for_timeout(500)
    wrong = {view: found for view in views(page) if (found := violations(page, scheme))}
    context.close()
    assert wrong == {}

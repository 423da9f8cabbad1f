"""The page of the benchmark in a real browser (`make test-browser`)."""

import os
from pathlib import Path

import pytest

from tests.browser.chromium import browser

PROGRAM = os.environ.get("PILEUS_BROWSER", "")
SHOTS = os.environ.get("PILEUS_SCREENSHOTS", "")
REPORT = Path(__file__).parents[2] / "docs" / "performance" / "report.html"
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.timeout(180),
    pytest.mark.skipif(
        not PROGRAM, reason="no browser: PILEUS_BROWSER is not set (see make test-browser)"
    ),
]
BEYOND = """[...document.querySelectorAll("body *")].filter(each => {
  for (let box = each; box; box = box.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(box).overflowX)) return false;
  return each.getBoundingClientRect().right > window.innerWidth + 1;
}).map(each => each.tagName + " " + each.innerText?.slice(0, 60))"""
"""What is wider than the page, outside of boxes that scroll by themselves."""


@pytest.mark.parametrize("width", [320, 400, 1280])
async def test_the_page_does_not_scroll_sideways(tmp_path: Path, width: int) -> None:
    async with browser(Path(PROGRAM), tmp_path) as page:
        await page.size(width, 844)
        await page.open(REPORT.as_uri())
        beyond = await page.value(BEYOND)
        wide = await page.value("document.documentElement.scrollWidth - window.innerWidth")
        zoomed_out = await page.value("window.innerWidth")
        if SHOTS:
            await page.screenshot(Path(SHOTS) / f"bench-{width}.png", whole=True)

    assert zoomed_out == width, "a phone zooms out until a wide page fits"
    assert beyond == []
    assert wide <= 0

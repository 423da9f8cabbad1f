"""Commands that install the CSI driver name an image that was built with it."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
BUILT = re.compile(r"make image EXTRAS=\S*csi\S* IMAGE=(\S+)")
MANIFESTS = re.compile(r"pileus manifests(?= )[^`|\n]*? --csi(?![-\w])[^`|\n]*")
CHART = re.compile(r"--set csi\.enabled=true[^`\n]*")


def text_of(page: Path) -> str:
    """Returns a page with each command on one line."""
    return page.read_text().replace("\\\n", " ")


def test_every_command_with_the_driver_names_an_image_that_the_page_builds() -> None:
    commands = 0
    for page in PAGES:
        text = text_of(page)
        built = set(BUILT.findall(text))
        for command in MANIFESTS.findall(text):
            image = re.search(r"--image=(\S+)", command)
            assert image, f"{page.name}: {command}"
            assert image[1] in built, f"{page.name}: {command}"
            commands += 1
        for command in CHART.findall(text):
            parts = dict(re.findall(r"--set image\.(repository|tag)=(\S+)", command))
            assert f"{parts.get('repository')}:{parts.get('tag')}" in built, (
                f"{page.name}: {command}"
            )
            commands += 1
    assert commands >= 2

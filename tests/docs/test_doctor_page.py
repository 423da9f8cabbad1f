"""The page of `pileus doctor` lists every check and every finding, and no others."""

import re
from pathlib import Path

from pileus.doctor.doctor import CHECKS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/reference/doctor.md").read_text()
SOURCES = (*(ROOT / "src/pileus/doctor").glob("*.py"), ROOT / "src/pileus/cloud/finding.py")
FINDING = re.compile(
    r'(?:error|warning|note|make)\)?\(\s*"([a-z-]+)"'
    r'|\bid="([a-z-]+)"(?: if is_full else "([a-z-]+)")?'
)


def rows(heading: str) -> list[str]:
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)


def test_every_check_is_listed_in_order() -> None:
    assert rows("Checks") == [check.id for check in CHECKS]


def test_every_finding_is_listed() -> None:
    found = {
        name
        for source in SOURCES
        for match in FINDING.findall(source.read_text())
        for name in match
        if name
    }

    assert len(found) > 30
    assert sorted(rows("Findings")) == sorted(found)


def test_every_finding_of_openstack_is_listed() -> None:
    source = (ROOT / "src/pileus/providers/openstack/checks.py").read_text()
    page = (ROOT / "docs/reference/openstack.md").read_text()
    section = page.partition("## Findings of pileus doctor\n")[2].partition("\n## ")[0]
    found = set(re.findall(r'\bid="([a-z-]+)"(?: if is_role else "([a-z-]+)")?', source))
    names = {name for pair in found for name in pair if name}

    assert len(names) == 7
    assert all(f"| `{name}` |" in section for name in names)

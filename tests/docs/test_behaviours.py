"""`docs/explanation/differences.md` is complete: what the Go framework does is held or stated.

`behaviours.txt` goes through the specification of the framework section by section, and names the
tests that show each difference.
"""

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "explanation" / "differences.md"
SECTIONS = (
    "0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7",
    "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "4.1", "4.2", "4.3", "4.4", "4.5", "4.6",
    "4.7", "5", "openstack",
)  # fmt: skip
"""Of the specification; 6 and 7 repeat what these say. The last one is about one provider."""
ADDITIONS = "Only here"
"""The section of the page that lists what the Go framework does not have at all."""
HEADER, RULE = "the Go framework", "---"


@dataclass(frozen=True, slots=True)
class Behaviour:
    section: str
    id: str
    text: str
    places: tuple[str, ...]


@cache
def behaviours() -> tuple[Behaviour, ...]:
    section, found = "", list[Behaviour]()
    for line in Path(__file__).with_name("behaviours.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line[1 : line.index("]")]
            continue
        id_, text, places = (part.strip() for part in line.split(" | "))
        found.append(Behaviour(section, id_, text, tuple(places.split(" ; "))))
    return tuple(found)


@cache
def rows() -> tuple[tuple[str, str], ...]:
    """Section and first filled cell of every row that states a difference."""
    section, found = "", list[tuple[str, str]]()
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("|") and section != ADDITIONS:
            cell = next(each.strip() for each in line.split("|") if each.strip())
            if cell != HEADER and not cell.startswith(RULE):
                found.append((section, cell))
    return tuple(found)


def stated(place: str) -> list[tuple[str, str]]:
    """The rows that a place means."""
    section, _, beginning = place.removeprefix("= ").partition(": ")
    return [row for row in rows() if row[0] == section and row[1].startswith(beginning)]


def is_test(place: str) -> bool:
    file, _, name = place.partition("::")
    path = ROOT / "tests" / file
    if not path.is_file():
        return False
    return (
        re.search(rf"^\s*(async )?def {re.escape(name)}\(", path.read_text(), re.MULTILINE)
        is not None
    )


def test_every_section_of_the_specification_is_gone_through():
    assert tuple(dict.fromkeys(each.section for each in behaviours())) == SECTIONS


def test_no_behaviour_is_listed_twice():
    ids = [each.id for each in behaviours()]

    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("behaviour", behaviours(), ids=lambda each: each.id)
def test_a_behaviour_of_the_go_framework_is_held_by_a_test_or_stated_as_a_difference(
    behaviour: Behaviour,
):
    for place in behaviour.places:
        if place.startswith("= "):
            assert len(stated(place)) == 1, f"no row, or several: {place}"
        else:
            assert is_test(place), f"no such test: {place}"


@pytest.mark.parametrize("behaviour", behaviours(), ids=lambda each: each.id)
def test_a_test_shows_each_difference(behaviour: Behaviour):
    before = ("=", *behaviour.places)

    unshown = [
        place
        for previous, place in zip(before, behaviour.places, strict=False)
        if place.startswith("=") and previous.startswith("=")
    ]
    assert unshown == [], "name a test that shows the difference before its row"


def test_every_difference_is_one_from_a_behaviour_that_is_listed():
    named = {
        row
        for each in behaviours()
        for place in each.places
        if place.startswith("= ")
        for row in stated(place)
    }

    missing = [f"{section}: {cell}" for section, cell in rows() if (section, cell) not in named]
    assert missing == [], (
        "name each row in tests/docs/behaviours.txt, beside what the Go framework does"
    )


def test_every_difference_says_why_and_what_gives_the_old_way_back():
    for line in PAGE.read_text(encoding="utf-8").partition(f"## {ADDITIONS}")[0].splitlines():
        if line.startswith("|"):
            cells = [cell.strip() for cell in line.split("|")[1:-1]]
            assert len(cells) == 4, line
            assert all(cells[1:]), line

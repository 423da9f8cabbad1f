"""`docs/explanation/differences.md` is complete: what the Go framework does is held or stated.

`behaviours.txt` goes through the specification of the framework section by section, and names the
tests that show each difference.
"""

import re
from pathlib import Path

import pytest
from tools.differences_tests import PAGE, Behaviour, behaviours, page, rows, shown_by, stated

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = (
    "0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "2.7",
    "2.8", "3.0", "3.1", "3.2", "3.3", "3.4", "3.5", "4.1", "4.2", "4.3", "4.4", "4.5", "4.6",
    "4.7", "5", "openstack", "only here",
)  # fmt: skip
"""Of the specification; 6 and 7 repeat what these say. The last two are about one provider, and
about what the Go framework does not have at all."""
ADDITIONS = "Only here"
"""The section of the page with rows of three cells."""
ROWS = tuple(rows(PAGE.read_text(encoding="utf-8")))


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
    for place in (*behaviour.same, *behaviour.places):
        if place.startswith("= "):
            assert len(stated(place, ROWS)) == 1, f"no row, or several: {place}"
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
    missing = [f"{row.section}: {row.name}" for row in ROWS if not shown_by(row)]

    assert missing == [], (
        "name each row in tests/docs/behaviours.txt, beside what the Go framework does"
    )


def test_every_row_links_to_the_tests_that_show_it():
    text = PAGE.read_text(encoding="utf-8")

    assert page(text) == text, "run `make docs`"


def test_every_difference_says_why_and_what_gives_the_old_way_back():
    for row in ROWS:
        cells = row.cells[1:]
        assert len(cells) == (2 if row.section == ADDITIONS else 4), row.name
        assert all(cells), row.name

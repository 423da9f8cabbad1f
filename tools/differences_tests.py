"""Write the tests into docs/explanation/differences.md: `python -m tools.differences_tests`.

The last cell of each row links to the tests that show it. They stand in tests/docs/behaviours.txt.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "explanation" / "differences.md"
LIST = ROOT / "tests" / "docs" / "behaviours.txt"
COLUMN = "test"
RULE = "---"
_TESTS = "../../tests"
"""The folder of the tests, as seen from the page."""


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What the Go framework does, and where it is held or stated here."""

    section: str
    id: str
    text: str
    same: tuple[str, ...]
    """Places before " / ": tests of what is the same."""
    places: tuple[str, ...]
    """The other places: tests of what is the same, or rows with the tests that show them before."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the page that states a difference."""

    section: str
    cells: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its first filled cell."""
        return next(filter(None, self.cells))


@cache
def behaviours() -> tuple[Behaviour, ...]:
    section, found = "", list[Behaviour]()
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            section = line[1 : line.index("]")]
            continue
        id_, text, places = (part.strip() for part in line.split(" | "))
        *same, rest = (tuple(each.split(" ; ")) for each in places.split(" / "))
        found.append(Behaviour(section, id_, text, same[0] if same else (), rest))
    return tuple(found)


def rows(page: str) -> Iterator[Row]:
    for section, line in _lines(page):
        cells = _cells(line)
        if cells and cells[-1] != COLUMN and not cells[0].startswith(RULE):
            yield Row(section, cells)


def stated(place: str, among: Iterable[Row]) -> list[Row]:
    """The rows that a place means: "= section: beginning of the row"."""
    section, _, beginning = place.removeprefix("= ").partition(": ")
    return [row for row in among if row.section == section and row.name.startswith(beginning)]


def shown_by(row: Row) -> tuple[str, ...]:
    """The tests that show the row."""
    found: list[str] = []
    for behaviour in behaviours():
        before: list[str] = []
        for place in behaviour.places:
            if not place.startswith("= "):
                before.append(place)
                continue
            if stated(place, (row,)):
                found += before
            before = []
    return tuple(dict.fromkeys(found))


def page(text: str) -> str:
    """The page, with the last cell of each row made from the list."""
    known, lines, width = set(rows(text)), list[str](), 0
    for section, line in _lines(text):
        row = Row(section, _cells(line))
        if row in known:
            links = ", ".join(map(_link, shown_by(row)))
            lines.append(
                _line((*row.cells[: width - 1], links))
            )  # a new row may lack the last cell
            continue
        width = len(row.cells) or width
        lines.append(line)
    return "\n".join(lines) + "\n"


def _lines(page: str) -> Iterator[tuple[str, str]]:
    """Each line with the title of its section."""
    section = ""
    for line in page.splitlines():
        section = line.removeprefix("## ") if line.startswith("## ") else section
        yield section, line


def _cells(line: str) -> tuple[str, ...]:
    if not line.startswith("|"):
        return ()
    return tuple(
        cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _link(test: str) -> str:
    """A short text, and the name of the test as the title of the link."""
    file, _, name = test.partition("::")
    return f'[{Path(file).stem.removeprefix("test_")}]({_TESTS}/{file} "{name}")'


def main() -> int:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

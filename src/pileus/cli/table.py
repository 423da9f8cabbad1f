"""Tables: aligned columns, wrapped to the terminal, or one block per row if it is too narrow."""

import textwrap
from collections.abc import Iterator, Sequence

from pileus.cli.terminal import Terminal

Row = Sequence[str]
GAP = "   "


def show_table(terminal: Terminal, columns: Row, rows: Sequence[Row]) -> None:
    """Write the rows. Nothing is cut off, and no word is broken that fits into a line."""
    for line in table_lines([column.upper() for column in columns], rows, _width(terminal)):
        terminal.out.write(f"{line.rstrip()}\n")


def _width(terminal: Terminal) -> int:
    return terminal.width(terminal.out)


def table_lines(heads: Row, rows: Sequence[Row], width: int) -> Iterator[str]:
    """The table in lines of at most `width`; 0: as long as they are."""
    lines = [heads, *rows]
    wide = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if width:
        least = [max(map(_longest_word, column)) for column in zip(*lines, strict=True)]
        if _total(least) > width:
            yield from _blocks(heads, rows, width)
            return
        wide = _narrowed(wide, least, width)
    for line in lines:
        yield from _wrapped(line, wide)


def _longest_word(cell: str) -> int:
    return max(map(len, cell.split()), default=0)


def _total(wide: Sequence[int]) -> int:
    return sum(wide) + len(GAP) * (len(wide) - 1)


def _narrowed(wide: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """The widths with the widest columns made narrower, down to their longest word."""
    found = list(wide)
    while _total(found) > width:
        widest = max((i for i, each in enumerate(found) if each > least[i]), key=found.__getitem__)
        found[widest] -= 1
    return found


def _wrapped(line: Row, wide: Sequence[int]) -> Iterator[str]:
    cells = [_words(cell, wide[i]) for i, cell in enumerate(line)]
    for number in range(max(map(len, cells))):
        parts = (cell[number] if number < len(cell) else "" for cell in cells)
        yield GAP.join(part.ljust(wide[i]) for i, part in enumerate(parts))


def _words(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, max(width, 1), break_on_hyphens=False) or [""]


def _blocks(heads: Row, rows: Sequence[Row], width: int) -> Iterator[str]:
    indent = 2 + max(map(len, heads)) + len(GAP)
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from _words(row[0], width)
        for head, cell in zip(heads[1:], row[1:], strict=True):
            first, *rest = _words(cell, width - indent)
            yield f"  {head:<{indent - 2}}{first}"
            yield from (f"{'':<{indent}}{line}" for line in rest)

"""The terminal of a command: streams, environment, width, colours and tables."""

import errno
import io
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TextIO

from pileus.dataclass import dataclass
from pileus.fix import FIX, fix_in, shell_words

NARROWEST = 40
CONTINUED = " \\"
"""Ends a line of a command that goes on in the next line."""
GAP = "   "
"""Between two columns of a table."""
CLEAR = "\r\x1b[K"
"""Clears the line of a terminal."""
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Errors of a disk that is full, or of a file that cannot be written."""

Row = Sequence[str]


@dataclass(frozen=True, slots=True)
class Terminal:
    out: TextIO
    err: TextIO
    environment: Mapping[str, str]
    source: TextIO | None = None
    """Standard input; None: there is no user."""

    def width(self, stream: TextIO) -> int:
        """Returns the columns of a terminal; 0 if `stream` is something else, such as a file."""
        try:
            return os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            return 0

    def can_ask(self) -> bool:
        """Whether a user can see a question and answer it."""
        return self.source is not None and self.source.isatty() and bool(self.width(self.err))

    def agrees(self, question: str) -> bool:
        """Whether the user types `yes`; any other answer means no."""
        self.err.write(f"{question} Type yes to continue: ")
        self.err.flush()
        return self.source is not None and self.source.readline().strip() == "yes"

    def misused(self, program: str, usage: str, message: str, hint: str = "") -> int:
        """Report a command line that cannot be understood, with the command's usage."""
        code = self.refuse(message, hint)
        self.err.write(f'Usage: {usage}\nRun "{program} --help" for more information.\n')
        return code

    def show(self, text: str) -> None:
        """Write text that may quote users and clouds."""
        self.out.write(printable(text))

    def refuse(self, message: str, hint: str = "") -> int:
        """Report why a command is not carried out; return its exit code."""
        self.err.write(f"Error: {printable(message)}\n")
        if hint:
            self.err.write(f"{printable(hint)}\n")
        return 1


def whole(stream: TextIO) -> TextIO:
    """Returns a stream that writes everything.

    With PYTHONUNBUFFERED, which is common in containers, Python's own streams drop the rest of a
    write of which a pipe or terminal accepted only a part.
    """
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=True)


def is_unwritable(error: BaseException) -> bool:
    """Whether an output could not be written, which no command can do anything about."""
    return isinstance(error, OSError) and error.errno in NO_ROOM


def own_terminal() -> Terminal:
    """Returns the terminal of this process."""
    return Terminal(sys.stdout, sys.stderr, os.environ, sys.stdin)


class Ink(StrEnum):
    GREEN = "32"
    YELLOW = "33"
    RED = "31"
    MAGENTA = "35"
    BOLD = "1"
    DIM = "2"


_INKED = re.compile(r"(\x1b\[(?:0|1|2|3[1235])m)")
"""The sequences of `Style.inked`."""


def printable(text: str) -> str:
    """Returns the text without control characters, except for line breaks, tabs and colours.

    Texts of users and clouds could move the cursor, hide lines or set the title of a terminal. The
    escapes are those of JSON, so a document in JSON keeps its meaning.
    """
    parts = enumerate(_INKED.split(text))
    return "".join(part if number % 2 else _escaped(part) for number, part in parts)


def plain(text: str) -> str:
    """Returns a text of a user or a cloud in one line, also without colours."""
    return _escaped(text.replace("\n", " "))


def _escaped(text: str) -> str:
    if text.replace("\n", "").isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign in "\n\t" else json.dumps(sign)[1:-1] for sign in text
    )


@dataclass(frozen=True, slots=True)
class Style:
    """Colours and line breaks on a terminal; neither of them in a file or pipe."""

    width: int = 0
    """Columns; 0: lines are not wrapped."""
    has_colour: bool = False

    @classmethod
    def of(cls, terminal: Terminal) -> "Style":
        """Returns the style of standard output."""
        width = terminal.width(terminal.out)
        return cls(width, bool(width) and not terminal.environment.get("NO_COLOR"))

    def inked(self, text: str, ink: Ink) -> str:
        text = plain(text)
        return f"\x1b[{ink}m{text}\x1b[0m" if self.has_colour and text else text

    def lines(self, text: str, indent: int) -> list[str]:
        """Returns the text in lines that fit after an indent, which the caller writes."""
        text = plain(text)
        if not self.width:
            return [text]
        return textwrap.wrap(text, self._room(indent), break_on_hyphens=False) or [""]

    def command_lines(self, label: str, command: str, indent: int) -> list[str]:
        """Returns a command in lines that can be pasted into a shell, after a label.

        The lines end between words of the shell. A word that does not fit stays in one line.
        """
        if not self.width or len(label) + len(command) <= self._room(indent):
            return [f"{label}{command}"]
        first, *words = shell_words(command)
        room = self._room(indent + len(CONTINUED))
        *lines, last = _filled([f"{label}{first}", *words], room)
        return [*(f"{line}{CONTINUED}" for line in lines), last]

    def message_lines(self, text: str, indent: int) -> list[str]:
        """Returns a message in lines; a command at its end can be pasted into a shell."""
        lines, fix = self.lines(text, indent), fix_in(text)
        if len(lines) == 1 or not fix:
            return lines
        said, _, rest = text.partition(FIX)
        more = rest.removeprefix(fix).strip()
        return [
            *self.lines(said, indent),
            *self.command_lines(FIX.lstrip(), fix, indent),
            *(self.lines(more, indent) if more else ()),
        ]

    def _room(self, indent: int) -> int:
        return max(self.width - indent, NARROWEST)


def _filled(words: Iterable[str], room: int) -> Iterator[str]:
    """Yields lines with as many words as fit, and at least one."""
    line = ""
    for word in words:
        if line and len(line) + 1 + len(word) > room:
            yield line
            line = word
        else:
            line = f"{line} {word}" if line else word
    if line:
        yield line


def show_table(terminal: Terminal, columns: Row, rows: Sequence[Row]) -> None:
    """Write a table. Nothing is cut off, and no word is broken that fits into a line."""
    for line in table_lines([column.upper() for column in columns], rows, _width(terminal)):
        terminal.show(f"{line.rstrip()}\n")


def _width(terminal: Terminal) -> int:
    return terminal.width(terminal.out)


def table_lines(heads: Row, rows: Sequence[Row], width: int) -> Iterator[str]:
    """Yields the table in lines of at most `width` columns; 0: not wrapped.

    Where a terminal is too narrow for columns, each row is a block of lines.
    """
    rows = [[plain(cell) for cell in row] for row in rows]
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
    """Returns the widths with the widest columns narrowed, down to their longest word."""
    found = list(wide)
    while _total(found) > width:
        widest = max((i for i, each in enumerate(found) if each > least[i]), key=found.__getitem__)
        found[widest] -= 1
    return found


def _wrapped(line: Row, wide: Sequence[int]) -> Iterator[str]:
    cells = [_fitted(cell, wide[i]) for i, cell in enumerate(line)]
    for number in range(max(map(len, cells))):
        parts = (cell[number] if number < len(cell) else "" for cell in cells)
        yield GAP.join(part.ljust(wide[i]) for i, part in enumerate(parts))


def _fitted(cell: str, width: int) -> list[str]:
    if len(cell) <= width:
        return [cell]
    return textwrap.wrap(cell, max(width, 1), break_on_hyphens=False) or [""]


def _blocks(heads: Row, rows: Sequence[Row], width: int) -> Iterator[str]:
    indent = 2 + max(map(len, heads)) + len(GAP)
    for number, row in enumerate(rows):
        if number:
            yield ""
        yield from _fitted(row[0], width)
        for head, cell in zip(heads[1:], row[1:], strict=True):
            first, *rest = _fitted(cell, width - indent)
            yield f"  {head:<{indent - 2}}{first}"
            yield from (f"{'':<{indent}}{line}" for line in rest)

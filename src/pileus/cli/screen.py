"""Full-screen views in sections that fit the terminal, for `pileus top` and the demo."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from rich.console import Console, ConsoleRenderable
from rich.segment import ControlType, Segment, Segments
from rich.text import Text

from pileus.dataclass import dataclass

GAP = 2
"""Columns between two cells."""
LEAST = 2
"""Lines of a list that are kept as long as possible when it is shortened, including the title."""
NONE = (Text("none", style="dim"),)


@dataclass(frozen=True, slots=True)
class Section:
    """A titled list.

    `shrinks`: its oldest lines are dropped if there is not enough room. `scrolls`: what does not
    fit is counted in the last line, and the list begins with line `offset`.
    """

    title: str
    lines: tuple[Text, ...]
    shrinks: bool = False
    scrolls: bool = False
    offset: int = 0

    @property
    def is_flexible(self) -> bool:
        return self.shrinks or self.scrolls

    def shown(self, rows: int) -> tuple[Text, ...]:
        """The lines for that many rows."""
        if rows < 1:
            return ()
        if self.shrinks:
            return self.lines[-rows:]
        if not self.scrolls or len(self.lines) <= rows:
            return self.lines[:rows]
        first = min(self.offset, self.last_offset(rows))
        below = len(self.lines) - first - (rows - 1)
        counts = f"{first} above, {below} below" if first else f"{below} more"
        return (*self.lines[first : first + rows - 1], Text(f"… {counts}", style="dim"))

    def last_offset(self, rows: int) -> int:
        """The offset from which on the last line is shown."""
        if not self.scrolls or rows < 1 or len(self.lines) <= rows:
            return 0
        return len(self.lines) - rows + 1

    @property
    def height(self) -> int:
        return 1 + len(self.lines)


def stack(sections: Sequence[Section], width: int, room: int) -> list[Text]:
    """The sections below each other, each line at most `width` wide, at most `room` lines."""
    lines: list[Text] = []
    for section, height in zip(sections, shares(sections, room), strict=True):
        if height < 1:
            continue
        lines.append(title_line(section.title, width))
        lines.extend(cut(line, width) for line in section.shown(height - 1))
    return lines[:room]


def last_offset(sections: Sequence[Section], room: int) -> int:
    """The offset from which on each list shows its last line."""
    heights = shares(sections, room)
    return max(
        section.last_offset(height - 1) for section, height in zip(sections, heights, strict=True)
    )


def shares(sections: Sequence[Section], room: int) -> list[int]:
    """How many lines each section gets: lists that shrink or scroll share the remaining room."""
    fixed = sum(section.height for section in sections if not section.is_flexible)
    wanting = [section for section in sections if section.is_flexible]
    left = max(room - fixed, LEAST * len(wanting))
    given: dict[int, int] = {}
    for count, section in sorted(enumerate(wanting), key=lambda one: one[1].height):
        fair = left // (len(wanting) - len(given))
        given[count] = min(section.height, fair)
        left -= given[count]
    order = iter(range(len(wanting)))
    return [given[next(order)] if one.is_flexible else one.height for one in sections]


def title_line(title: str, width: int) -> Text:
    line = Text(f"{title} ", style="bold blue")
    line.append("─" * max(0, width - line.cell_len), style="dim")
    return cut(line, width)


def cut(line: Text, width: int) -> Text:
    short = line.copy()
    short.truncate(width, overflow="ellipsis" if width > 1 else "crop")
    short.no_wrap = True
    return short


def aligned(rows: Sequence[tuple[Text, ...]], width: int) -> tuple[Text, ...]:
    """The rows in columns; columns that do not fit are dropped, the last ones first."""
    if not rows:
        return ()
    wide = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    shown = len(wide)
    while shown > 1 and sum(wide[:shown]) + GAP * (shown - 1) > width:
        shown -= 1
    return tuple(joined(row[:shown], wide) for row in rows)


def joined(cells: Iterable[Text], wide: Sequence[int]) -> Text:
    """The cells next to each other, padded to their width."""
    line = Text(no_wrap=True)
    for index, (cell, columns) in enumerate(zip(cells, wide, strict=False)):
        line.append(" " * GAP if index else "")
        line.append_text(cell)
        line.append(" " * (columns - cell.cell_len))
    line.rstrip()
    return line


class FullScreen:
    """The terminal's second screen, which leaves no trace on the first.

    Lines end with their last character: a command that is copied from the screen has no blanks at
    the end of its lines, which a shell would take for an argument.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def shown(self) -> Generator[None]:
        self._console.set_alt_screen(enable=True)
        self._console.show_cursor(show=False)
        try:
            yield
        finally:
            self._console.show_cursor(show=True)
            self._console.set_alt_screen(enable=False)

    def draw(self, drawn: ConsoleRenderable) -> None:
        """Replaces what is shown."""
        width, height = self._console.size
        lines = self._console.render_lines(drawn, pad=False)[:height]
        segments = [_HOME]
        for number in range(height):
            line = lines[number] if number < len(lines) else []
            segments += line
            if Segment.get_line_length(line) < width:
                segments.append(_ERASE)  # behind a full line it would erase the last character
            if number < height - 1:
                segments.append(Segment.line())
        self._console.print(Segments(segments), end="", crop=False)


_HOME = Segment("\x1b[H", None, [(ControlType.HOME,)])
_ERASE = Segment("\x1b[K", None, [(ControlType.ERASE_IN_LINE, 0)])

"""How text is written for whoever reads it: colours and line breaks on a terminal, neither else."""

import textwrap
from dataclasses import dataclass
from enum import StrEnum

from pileus.cli.terminal import Terminal

NARROWEST = 40


class Ink(StrEnum):
    GREEN = "32"
    YELLOW = "33"
    RED = "31"
    MAGENTA = "35"
    BOLD = "1"
    DIM = "2"


@dataclass(frozen=True, slots=True)
class Style:
    width: int = 0
    """Columns; 0: lines are as long as they are."""
    has_colour: bool = False

    @classmethod
    def of(cls, terminal: Terminal) -> "Style":
        """For what is written to standard output."""
        width = terminal.width(terminal.out)
        return cls(width, bool(width) and not terminal.environment.get("NO_COLOR"))

    def inked(self, text: str, ink: Ink) -> str:
        return f"\x1b[{ink}m{text}\x1b[0m" if self.has_colour and text else text

    def lines(self, text: str, indent: int) -> list[str]:
        """The text in lines that fit behind an indent, which is for the caller to write."""
        if not self.width:
            return [text]
        width = max(self.width - indent, NARROWEST)
        return textwrap.wrap(text, width, break_on_hyphens=False) or [""]

"""What a command sees of the outside: where it writes, how wide, and the environment."""

import io
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, slots=True)
class Terminal:
    out: TextIO
    err: TextIO
    environment: Mapping[str, str]
    source: TextIO | None = None
    """Where a user types; None: there is no user."""

    def width(self, stream: TextIO) -> int:
        """The columns of a terminal; 0 when `stream` is something else, such as a file."""
        try:
            return os.get_terminal_size(stream.fileno()).columns
        except (OSError, ValueError):
            return 0

    def can_ask(self) -> bool:
        """Whether someone sees a question and can answer it."""
        return self.source is not None and self.source.isatty() and bool(self.width(self.err))

    def agrees(self, question: str) -> bool:
        """Whether the user types `yes`; nothing else will do."""
        self.err.write(f"{question} Type yes to go on: ")
        self.err.flush()
        return self.source is not None and self.source.readline().strip() == "yes"

    def misused(self, program: str, usage: str, message: str, hint: str = "") -> int:
        """Report a command line that cannot be understood, with the command's usage."""
        code = self.refuse(message, hint)
        self.err.write(f'Usage: {usage}\nRun "{program} --help" for more information.\n')
        return code

    def refuse(self, message: str, hint: str = "") -> int:
        """Report why a command is not carried out; return its exit code."""
        self.err.write(f"Error: {message}\n")
        if hint:
            self.err.write(f"{hint}\n")
        return 1


def whole(stream: TextIO) -> TextIO:
    """The same stream, but one that writes everything.

    With PYTHONUNBUFFERED, as containers like to have it, Python's own streams forget what a write
    has left over when a pipe or terminal took only a part of it.
    """
    raw = getattr(stream, "buffer", None)
    if not isinstance(raw, io.RawIOBase):
        return stream
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=True)


def own_terminal() -> Terminal:
    """The one that this process was started in."""
    return Terminal(sys.stdout, sys.stderr, os.environ, sys.stdin)

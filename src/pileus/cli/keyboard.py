"""Keys of the terminal for full-screen views: read one by one, not echoed."""

import asyncio
import os
import sys
import termios
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from enum import StrEnum


class Key(StrEnum):
    QUIT = "q"
    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"


_SEQUENCES = {
    b"\x1b[5~": Key.PAGE_UP,
    b"\x1b[6~": Key.PAGE_DOWN,
    b"\x1b[1~": Key.HOME,
    b"\x1b[4~": Key.END,
    b"\x1b[A": Key.UP,
    b"\x1bOA": Key.UP,
    b"\x1b[B": Key.DOWN,
    b"\x1bOB": Key.DOWN,
    b"\x1b[H": Key.HOME,
    b"\x1bOH": Key.HOME,
    b"\x1b[F": Key.END,
    b"\x1bOF": Key.END,
    b"q": Key.QUIT,
    b"Q": Key.QUIT,
    b"k": Key.UP,
    b"j": Key.DOWN,
    b" ": Key.PAGE_DOWN,
    b"g": Key.HOME,
    b"G": Key.END,
}


def keys_of(read: bytes) -> Iterator[Key]:
    """Yields the keys in what a terminal sent; others are skipped."""
    while read:
        found = next((each for each in _SEQUENCES if read.startswith(each)), b"")
        if found:
            yield _SEQUENCES[found]
        elif read.startswith((b"\x1b[", b"\x1bO")):  # a key that has no meaning here
            last = read[2:].lstrip(b"0123456789;")
            found = read[: len(read) - len(last) + 1]
        read = read[len(found) or 1 :]


@asynccontextmanager
async def keyboard(pressed: Callable[[Key], None]) -> AsyncGenerator[None]:
    """Calls `pressed` for each key while the block lasts, then restores the terminal.

    Without a terminal as standard input there are no keys. Ctrl-C remains a signal.
    """
    source = _terminal()
    if source is None:
        yield
        return
    before = termios.tcgetattr(source)
    now = termios.tcgetattr(source)
    now[3] &= ~(termios.ICANON | termios.ECHO)
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            sent = os.read(source, 1024)
        except OSError:  # the terminal was closed
            sent = b""
        if not sent:
            loop.remove_reader(source)
        for key in keys_of(sent):
            pressed(key)

    termios.tcsetattr(source, termios.TCSADRAIN, now)
    try:
        loop.add_reader(source, read)
        try:
            yield
        finally:
            loop.remove_reader(source)
    finally:
        termios.tcsetattr(source, termios.TCSADRAIN, before)


def _terminal() -> int | None:
    """Returns standard input if it is a terminal."""
    try:
        number = sys.stdin.fileno()
    except (AttributeError, OSError, ValueError):
        return None
    return number if os.isatty(number) else None

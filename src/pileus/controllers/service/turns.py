"""One at a time where a balancer is shared: wishes of one lock key take turns."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from pileus.deadline import covered


class Turn:
    """The queue before one key, as one of those who stand in it sees it."""

    def __init__(self, line: "_Line") -> None:
        self._line = line
        self._seen = line.taken

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[bool]:
        """Wait for one's turn. Yields whether someone else had one since this queue was entered."""
        with covered():
            await self._line.lock.acquire()
        try:
            moved_on = self._line.taken != self._seen
            self._line.taken += 1
            yield moved_on
        finally:
            self._line.lock.release()


class _Line:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.standing = 0
        self.taken = 0


class Turns:
    """All queues; one that nobody stands in is forgotten."""

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}

    @contextmanager
    def queueing(self, key: str) -> Generator[Turn]:
        """Enter before looking, so that a look which is outdated by another's turn is known."""
        line = self._lines.setdefault(key, _Line())
        line.standing += 1
        try:
            yield Turn(line)
        finally:
            line.standing -= 1
            if not line.standing:
                del self._lines[key]

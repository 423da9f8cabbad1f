"""The parts of one list, put together; a list that never ends is refused."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Generic

from pileus.kube.codec import Odd, Page
from pileus.kube.errors import Unreadable
from pileus.kube.model.meta import T
from pileus.kube.transport import MEBIBYTE

LONGEST_LIST = 900.0
"""Seconds for all pages of a list; the API server keeps their common version for 5 minutes."""
MOST_OBJECTS = 200_000
"""Objects in a list; Kubernetes supports 5,000 nodes and 10,000 Services."""
MOST_BYTES = 1024 * MEBIBYTE
LONGEST_TOKEN = 8192
"""Characters of a `continue` token, which has to fit into a URL."""


@asynccontextmanager
async def listing_in_time(request: str) -> AsyncGenerator[None]:
    """The block fetches a list. Raises `Unreadable` if that takes longer than `LONGEST_LIST`."""
    timer = asyncio.timeout(LONGEST_LIST)
    try:
        async with timer:
            yield
    except TimeoutError as error:
        if not timer.expired():
            raise
        problem = f"the list is not complete after {LONGEST_LIST:g} s"
        raise Unreadable(f"{request}: {problem}") from error


@dataclass(slots=True)
class Pages(Generic[T]):
    """What has come of a list so far."""

    path: str
    items: list[T] = field(default_factory=list[T])
    odd: list[Odd[T]] = field(default_factory=list[Odd[T]])
    resource_version: str = ""
    more: str = ""
    """The token for the next page, "" after the last."""
    _bytes: int = 0
    _tokens: set[int] = field(default_factory=set[int])
    """Hashes of the tokens so far; a token may be long."""

    def add(self, page: Page[T], size: int) -> None:
        """Take in a page of `size` bytes.

        Raises `Unreadable` if the list repeats itself or is longer than that of any real cluster.
        """
        self.items.extend(page.items)
        self.odd.extend(page.odd)
        self.resource_version, self.more = page.resource_version, page.more
        self._bytes += size
        if problem := self._problem():
            raise Unreadable(f"GET {self.path}: {problem}")
        self._tokens.add(hash(self.more))

    def _problem(self) -> str:
        if len(self.items) + len(self.odd) > MOST_OBJECTS or len(self._tokens) > MOST_OBJECTS:
            return f"the list has more than {MOST_OBJECTS} objects or pages"
        if self._bytes > MOST_BYTES:
            return f"the list has more than {MOST_BYTES} bytes"
        if len(self.more) > LONGEST_TOKEN:
            return f"the continue token has more than {LONGEST_TOKEN} characters"
        if self.more and hash(self.more) in self._tokens:
            return "the list does not end: its continue token repeats"
        return ""

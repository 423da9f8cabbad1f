"""The narrow seam between the client and the network: one request, one reply.

`pileus.kube.http.HttpTransport` sends HTTP requests; tests and simulations put another one in its
place and need no sockets, so that they can run in virtual time.
"""

import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from typing import Protocol

from pileus.dataclass import dataclass
from pileus.kube.errors import ReadOnly

MEBIBYTE = 2**20
ANSWER_LIMIT = 32 * MEBIBYTE
"""Bytes of an answer, or of one line of a watch.

etcd stores 1.5 MiB per object, which as JSON is 9 MiB at most; a page of 500 nodes is about 8 MiB.
"""

READS = frozenset({"GET", "HEAD"})
"""The methods that change nothing: they may be repeated, and need neither fence nor dry run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    body: bytes | None = field(default=None, repr=False)
    timeout: float | None = 30.0
    """Seconds for the whole exchange; None for a watch."""
    idle_timeout: float | None = None
    """Seconds without a single byte after which the connection is dead; for watches."""
    gather: float = 0.0
    """Seconds for which the events of a watch are gathered after each delivery."""
    limit: int = ANSWER_LIMIT
    """Bytes that the answer may have; not for watches, which have no end."""
    guard: Callable[[], None] | None = field(default=None, repr=False)
    """Called right before the request leaves; if it raises, nothing is sent."""


class Reply(Protocol):
    @property
    def status(self) -> int: ...
    @property
    def headers(self) -> Mapping[str, str]:
        """Case-insensitive."""
        ...

    async def read(self) -> bytes:
        """Return the whole body. Raises `TooLong` if it has more bytes than the request allows."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes in, cut anywhere."""
        ...


class Transport(Protocol):
    def send(self, request: Request) -> AbstractAsyncContextManager[Reply]:
        """Send it; the block ends with the connection released.

        Errors: `pileus.kube.errors.Unreachable` if there is no (whole) answer, `Unreadable` if it
        comes in an encoding that was not asked for.
        """
        ...


Permits = Callable[[Request], bool]
"""Whether a request may leave."""

_EVENTS = re.compile(r"/api/v1/namespaces/[^/]+/events(/[^/]+)?")
_EVENT_WRITES = frozenset({"POST", "PATCH"})


def all_requests(_: Request) -> bool:
    return True


def reads(request: Request) -> bool:
    return request.method in READS


def reads_and_events(request: Request) -> bool:
    """Permits reads, and writes of events."""
    tells = request.method in _EVENT_WRITES and _EVENTS.fullmatch(request.path) is not None
    return tells or reads(request)


class Restricted:
    def __init__(self, inner: Transport, permits: Permits) -> None:
        self._inner = inner
        self._permits = permits

    def send(self, request: Request) -> AbstractAsyncContextManager[Reply]:
        """Errors: also `ReadOnly`, before anything is sent."""
        if not self._permits(request):
            raise ReadOnly(
                f"{request.method} {request.path}: not sent, for this process may only look; "
                "that it was tried is a bug, please report it"
            )
        return self._inner.send(request)

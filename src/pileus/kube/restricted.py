"""A transport through which only some requests leave: it stands beneath whoever may only look."""

import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from pileus.kube.errors import ReadOnly
from pileus.kube.transport import READS, Reply, Request, Transport

Permits = Callable[[Request], bool]
"""Whether a request may leave."""

_EVENTS = re.compile(r"/api/v1/namespaces/[^/]+/events(/[^/]+)?")
_EVENT_WRITES = frozenset({"POST", "PATCH"})


def all_requests(_: Request) -> bool:
    return True


def reads(request: Request) -> bool:
    return request.method in READS


def reads_and_events(request: Request) -> bool:
    """Reads, and the telling of events; nothing that any program acts upon."""
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

"""A transport of which the server keeps nothing: it checks each write, answers, and forgets it."""

from contextlib import AbstractAsyncContextManager
from dataclasses import replace

from pileus.kube.transport import READS, Reply, Request, Transport


class DryTransport:
    """Puts `dryRun=All` on whatever is no read."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner

    def send(self, request: Request) -> AbstractAsyncContextManager[Reply]:
        if request.method not in READS:
            request = replace(request, query={**request.query, "dryRun": "All"})
        return self._inner.send(request)

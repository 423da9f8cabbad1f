"""HTTP clients for the servers of one cloud, with the TLS settings in use.

When TLS files change, requests that are under way end with the clients that they began with.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import field

from pileus.cloud.http import Http, HttpSettings, http_client
from pileus.dataclass import dataclass
from pileus.providers.openstack.errors import error_of
from pileus.providers.openstack.load import Loaded
from pileus.version import PILEUS

CONNECT_TIMEOUT = 10.0


@dataclass
class _Clients:
    """Clients by the URL of their service, all with the TLS settings of one configuration."""

    loaded: Loaded
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    by_url: dict[str, Http] = field(default_factory=dict[str, Http])
    requests: int = 0
    """Requests under way."""
    is_replaced: bool = False


class Connections:
    """Clients for any service of the cloud, shared by all requests."""

    def __init__(
        self,
        loaded: Loaded,
        environ: Mapping[str, str],
        user_agent: tuple[str, ...] = (),
    ) -> None:
        self._environ = environ
        self._headers = {"User-Agent": " ".join((*user_agent, f"pileus/{PILEUS}"))}
        self._timeout = loaded.config.metadata.request_timeout
        self._clients = _Clients(loaded)

    def use(self, loaded: Loaded) -> None:
        """From now on, send requests with these TLS settings."""
        if _is_same_tls(loaded, self._clients.loaded):
            return
        self._clients.is_replaced = True
        self._clients = _Clients(loaded)

    async def close(self) -> None:
        self._clients.is_replaced = True
        await self._clients.stack.aclose()

    @asynccontextmanager
    async def client(self, base_url: str, loaded: Loaded | None = None) -> AsyncGenerator[Http]:
        """A client for one service; with the TLS settings of `loaded`, if not yet in use."""
        clients = self._clients
        if loaded is not None and not _is_same_tls(loaded, clients.loaded):
            clients = _Clients(loaded, is_replaced=True)
        clients.requests += 1
        try:
            yield await self._client(clients, base_url)
        finally:
            clients.requests -= 1
            if clients.is_replaced and not clients.requests:
                await clients.stack.aclose()

    async def _client(self, clients: _Clients, base_url: str) -> Http:
        if base_url not in clients.by_url:
            settings = HttpSettings(
                base_url=base_url,
                tls=clients.loaded.tls,
                tls_context=clients.loaded.tls_context,
                environ=self._environ,
                headers=self._headers,
                timeout=self._timeout,
                connect_timeout=min(CONNECT_TIMEOUT, self._timeout),
            )
            clients.by_url[base_url] = await clients.stack.enter_async_context(
                http_client(settings, error_of=error_of)
            )
        return clients.by_url[base_url]


def _is_same_tls(one: Loaded, other: Loaded) -> bool:
    """Whether both have the same TLS settings, with the same content of files."""

    def settings(loaded: Loaded) -> object:
        files = (loaded.tls.ca_file, loaded.tls.certificate_file, loaded.tls.key_file)
        return loaded.tls, [loaded.fingerprints.get(each) for each in files]

    return settings(one) == settings(other)

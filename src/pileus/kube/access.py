"""Where an API server is, and how one is let in: what credentials give and the client takes."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


class Credentials(Protocol):
    """Proof of identity, renewed by itself when it is due."""

    async def headers(self) -> Mapping[str, str]:
        """The headers (authorization, impersonation) for the next request; called for each one.

        A multidict where a header occurs several times, as Impersonate-Group may: merge it
        with `CIMultiDict.extend`. Takes long when a plugin has to be run: call it outside the
        request's own deadline.

        Errors: `pileus.kube.errors.CredentialsError`, naming the file, command or account.
        """
        ...

    def tls(self) -> ssl.SSLContext | None:
        """The TLS context to connect with; None for plain http. To be asked after `headers`.

        The same object as long as nothing changed; another one once a certificate was renewed.
        """
        ...

    def rejected(self) -> None:
        """The server answered 401: what is cached is stale, and must be fetched anew."""
        ...


@dataclass(frozen=True, slots=True)
class Server:
    """What metrics and errors of a client say about its API server."""

    host: str = ""
    refused: str = ""
    """Added to the text of a 401: whose credentials were refused, and what to do."""


@dataclass(frozen=True, slots=True)
class Access:
    """One API server with one identity."""

    server: str
    """Scheme, host, port and optional path prefix, without a trailing slash."""
    credentials: Credentials = field(repr=False)
    proxy: str | None = field(default=None, repr=False)
    server_name: str | None = None
    """The name to expect in the server's certificate, where it is not the host's."""
    namespace: str = "default"
    trust: str = ""
    """Whom the server's certificate must be from, for messages: a file, a field, the system."""
    refused: str = ""
    """What to tell the user after a 401: whose credentials these are, and what to do."""
    anonymous: Credentials | None = field(default=None, repr=False)
    """The same trust with nobody's identity, for who brings an identity of its own."""

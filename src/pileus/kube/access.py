"""Access to an API server: its address, TLS settings and credentials."""

import ssl
from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from pileus.dataclass import dataclass


class Credentials(Protocol):
    """Credentials that renew themselves."""

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
        """The server answered 401: discard cached credentials and fetch new ones."""
        ...


@dataclass(frozen=True, slots=True)
class Server:
    """What metrics and errors of a client say about its API server."""

    host: str = ""
    refused: str = ""
    """Added to the message of a 401: which credentials were rejected, and the fix.

    Also to that of a 403 if the API server takes the request as anonymous.
    """


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
    """The source of the trusted CAs, for messages: a file, a field, the system."""
    refused: str = ""
    """The hint after a 401: which credentials these are, and the fix."""
    anonymous: Credentials | None = field(default=None, repr=False)
    """The same TLS settings without an identity, for clients with their own credentials."""

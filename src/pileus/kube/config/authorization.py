"""How a request says who sends it; the simple ways, which never change while we run."""

import base64
import re
import ssl
from collections.abc import Iterable, Mapping
from typing import Protocol

from multidict import CIMultiDict, CIMultiDictProxy

from pileus.kube.config.tls import TlsContexts
from pileus.kube.errors import CredentialsError
from pileus.pki import KeyPair

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")


class Authorization(Protocol):
    """The identity of one user, without the TLS settings of the server."""

    async def header(self) -> str | None:
        """The value of the Authorization header, if there is to be one."""
        ...

    def issued(self) -> KeyPair | None:
        """The client certificate that came with the last header, if one did."""
        ...

    def rejected(self) -> None: ...


class Fixed:
    """A token or password from the configuration, or nobody at all."""

    def __init__(self, header: str | None) -> None:
        self._header = header

    async def header(self) -> str | None:
        return self._header

    def issued(self) -> KeyPair | None:
        return None

    def rejected(self) -> None:
        """There is nothing that could be fetched anew."""


NOBODY = Fixed(None)


def bearer(token: str, origin: str) -> str:
    """Return the header for a token. Errors: `CredentialsError` if it cannot be one."""
    if not _HEADER_SAFE.fullmatch(token):
        what = "holds blanks or characters that no token has" if token else "is empty"
        raise CredentialsError(f"{origin}: the token {what}")
    return f"Bearer {token}"


def basic(username: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{username}:{password}".encode()).decode()


class ConfiguredCredentials:
    """`pileus.kube.access.Credentials` put together from a configuration's parts."""

    def __init__(
        self,
        authorization: Authorization,
        tls: TlsContexts | None,
        impersonation: Iterable[tuple[str, str]] = (),
    ) -> None:
        self._authorization = authorization
        self._tls = tls
        self._impersonation = tuple(impersonation)

    async def headers(self) -> Mapping[str, str]:
        """A multidict: the header Impersonate-Group occurs once for each group."""
        headers = CIMultiDict(self._impersonation)
        if value := await self._authorization.header():
            headers["Authorization"] = value
        return CIMultiDictProxy(headers)

    def tls(self) -> ssl.SSLContext | None:
        return self._tls.current(self._authorization.issued()) if self._tls else None

    def rejected(self) -> None:
        self._authorization.rejected()

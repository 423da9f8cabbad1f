"""Verification of client certificates, and the CAs that are trusted for it.

The CAs come from files or from the cluster's authentication settings, and are reloaded when these
change.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from pathlib import Path

import msgspec

from pileus.dataclass import dataclass
from pileus.kube.decoding import Malformed, decode
from pileus.server.errors import BadCertificate, LookupFailed, ServerError
from pileus.server.reviews import AuthenticationSettings, ReviewFailed
from pileus.server.settings import AuthenticationOptions, RequestHeaderOptions
from pileus.server.users import HeaderNames, Leaf, User
from pileus.telemetry.log import Log

log = Log(__name__)


CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


class Authorities:
    """A bundle of CA certificates."""

    def __init__(self, pem: bytes) -> None:
        """Raises `BadCertificate` if there is no certificate in it, or an invalid one."""
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(cadata=pem.decode())
        except (ssl.SSLError, ValueError) as error:
            raise BadCertificate(f"not a bundle of CA certificates: {error}") from error
        self._pem = pem

    def verify(self, chain: Sequence[bytes], now: datetime) -> Leaf:
        """Returns the first certificate of the chain (DER) if one of these CAs signed it.

        Raises `Unauthenticated` if none did.
        """
        # 11 MB of memory, only for clients with certificates. No probe has one.
        from pileus.server.certificate_verification import verified  # noqa: PLC0415

        return verified(self._pem, chain, now)


def user_of(leaf: Leaf) -> User | None:
    """Returns the user of a verified certificate: common name, with organizations as groups."""
    if not leaf.common_name:
        return None
    return User(
        leaf.common_name,
        groups=leaf.organizations,
        extra=((CREDENTIAL_ID, (f"X509SHA256={leaf.fingerprint}",)),),
    )


REFRESH_EVERY = 1.0


@dataclass(frozen=True, slots=True)
class ProxyTrust:
    """Proxies that may name the user of a request."""

    ca: bytes
    allowed_names: tuple[str, ...] = ()
    """Common names of such proxies; empty: all that the CA has signed."""
    headers: HeaderNames = field(default_factory=HeaderNames)


@dataclass(frozen=True, slots=True)
class Trust:
    """CA certificates (PEM) of clients, and of proxies that may name the user."""

    client_ca: bytes = b""
    proxies: ProxyTrust | None = None

    @property
    def bundle(self) -> bytes:
        """All CAs, for the TLS handshake."""
        proxies = self.proxies.ca if self.proxies else b""
        return b"\n".join(ca for ca in (self.client_ca, proxies) if ca)


NO_TRUST = Trust()
Use = Callable[[Trust], None]


class TrustSource:
    """Calls `use` with the trusted CAs, at start and whenever they change."""

    def __init__(
        self, options: AuthenticationOptions, settings: AuthenticationSettings | None, use: Use
    ) -> None:
        """`use` may run in any thread; it raises `ServerError` for what it cannot use."""
        self._options = options
        self._use = use
        self._used: Trust | None = None
        self._looked_up: Mapping[str, str] = {}
        self._complaint = ""
        self._settings = settings if self._needs_settings() else None
        if settings is None:
            _warn_without_settings(options)

    async def start(self) -> None:
        """Use what is to be trusted now.

        While the API server does not answer, the cluster's settings are left out: fewer clients
        are trusted, and `follow` reads them later. Raises `BadCertificate` for a file, and
        `LookupFailed` if the API server refuses to show the settings and that is not tolerated.
        """
        if self._settings:
            try:
                self._looked_up = await self._settings.read()
            except ReviewFailed as error:
                self._tolerate(error)
        await asyncio.to_thread(self._show)

    async def follow(self) -> None:
        """Follow changes of files and settings until cancelled."""
        async with asyncio.TaskGroup() as group:
            if self._settings:
                group.create_task(self._settings.follow(self.look_up))
            group.create_task(self._refresh_often())

    def look_up(self, settings: Mapping[str, str]) -> None:
        """Use the cluster's settings from the next refresh on."""
        self._looked_up = settings

    def refresh(self) -> None:
        """Load the current CAs; if they are invalid, keep the old ones and log it once."""
        try:
            self._show()
        except ServerError as error:
            if str(error) != self._complaint:
                log.error("Keeping the previous client CAs", error=error)
            self._complaint = str(error)

    async def _refresh_often(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_EVERY)
            await asyncio.to_thread(self.refresh)

    def _show(self) -> None:
        trust = self._assemble()
        if trust != self._used:
            self._use(trust)
            before, self._used = self._used, trust
            if trust.bundle or before:
                log.info("Client CAs loaded")
        self._complaint = ""

    def _needs_settings(self) -> bool:
        options = self._options
        given = options.client_ca_file and options.request_header.client_ca_file
        return not (given or options.skip_lookup)

    def _assemble(self) -> Trust:
        options, looked_up = self._options, self._looked_up
        if options.client_ca_file:
            client_ca = _read_ca("--client-ca-file", options.client_ca_file)
        else:
            client_ca = looked_up.get("client-ca-file", "").encode()
        if options.request_header.client_ca_file:
            proxies = proxies_from_flags(options.request_header)
        else:
            proxies = proxies_from_settings(looked_up)
        return Trust(client_ca, proxies)

    def _tolerate(self, error: ReviewFailed) -> None:
        absent = error.passing or not error.code
        if not (absent or self._options.tolerate_lookup_failure):
            raise LookupFailed(
                "cannot read the cluster's authentication settings (ConfigMap "
                f"kube-system/extension-apiserver-authentication): {error}; grant the role "
                "extension-apiserver-authentication-reader, or set "
                "--authentication-tolerate-lookup-failure=true to start without them"
            ) from error
        log.warning(
            "No authentication settings from the cluster; client certificates are not accepted yet",
            err=error,
        )


def proxies_from_flags(options: RequestHeaderOptions) -> ProxyTrust:
    """Returns the proxies of `--requestheader-…`. Raises `BadCertificate`."""
    headers = HeaderNames(
        username=options.username_headers,
        uid=options.uid_headers,
        group=options.group_headers,
        extra_prefix=options.extra_headers_prefix,
    )
    ca = _read_ca("--requestheader-client-ca-file", options.client_ca_file)
    return ProxyTrust(ca, options.allowed_names, headers)


def proxies_from_settings(settings: Mapping[str, str]) -> ProxyTrust | None:
    """Returns the proxies in the cluster's settings. Raises `BadCertificate`."""
    ca = settings.get("requestheader-client-ca-file", "").encode()
    if not ca:
        return None
    headers = HeaderNames(
        username=_listed(settings, "requestheader-username-headers"),
        uid=_listed(settings, "requestheader-uid-headers"),
        group=_listed(settings, "requestheader-group-headers"),
        extra_prefix=_listed(settings, "requestheader-extra-headers-prefix"),
    )
    return ProxyTrust(ca, _listed(settings, "requestheader-allowed-names"), headers)


_NAMES = msgspec.json.Decoder(tuple[str, ...])


def _listed(settings: Mapping[str, str], key: str) -> tuple[str, ...]:
    try:
        return decode(_NAMES, (settings.get(key) or "[]").encode())
    except Malformed as error:
        raise BadCertificate(
            f"ConfigMap kube-system/extension-apiserver-authentication, {key}: {error}"
        ) from error


def _read_ca(flag: str, path: str) -> bytes:
    try:
        pem = Path(path).read_bytes()
        Authorities(pem)
    except OSError as error:
        raise BadCertificate(f"{flag}={path}: {error.strerror or error}") from error
    except BadCertificate as error:
        raise BadCertificate(f"{flag}={path}: {error}") from error
    return pem


def _warn_without_settings(options: AuthenticationOptions) -> None:
    files = {
        "client certificates": options.client_ca_file,
        "request headers": options.request_header.client_ca_file,
    }
    useless = [name for name, file in files.items() if not file]
    if useless and not options.skip_lookup:
        log.warning(
            "Client-certificate authentication disabled: set --authentication-kubeconfig",
            disabled=useless,
        )

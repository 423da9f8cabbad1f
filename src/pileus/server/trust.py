"""Whose client certificates count: from files, or from the cluster's settings; followed live."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pileus.kube.decoding import Malformed, decode
from pileus.server.chains import Authorities
from pileus.server.errors import BadCertificate, LookupFailed, ServerError
from pileus.server.options import AuthenticationOptions, RequestHeaderOptions
from pileus.server.request_header import HeaderNames
from pileus.server.review import AuthenticationSettings, ReviewFailed
from pileus.telemetry.log import Log

LOOK_EVERY = 1.0

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class ProxyTrust:
    """Proxies that may speak for others."""

    ca: bytes
    allowed_names: tuple[str, ...] = ()
    """Common names of such proxies; empty: all whom the CA has signed."""
    headers: HeaderNames = field(default_factory=HeaderNames)


@dataclass(frozen=True, slots=True)
class Trust:
    """CA certificates (PEM) for clients, and for proxies that speak for others."""

    client_ca: bytes = b""
    proxies: ProxyTrust | None = None

    @property
    def bundle(self) -> bytes:
        """All CAs together, for the handshake."""
        proxies = self.proxies.ca if self.proxies else b""
        return b"\n".join(ca for ca in (self.client_ca, proxies) if ca)


NOBODY = Trust()
Use = Callable[[Trust], None]


class TrustSource:
    """Tells `use` what is to be trusted, now and whenever it changes."""

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
        """Keep up with files and settings, for ever."""
        async with asyncio.TaskGroup() as group:
            if self._settings:
                group.create_task(self._settings.follow(self.look_up))
            group.create_task(self._look())

    def look_up(self, settings: Mapping[str, str]) -> None:
        """Take the cluster's settings into account at the next refresh."""
        self._looked_up = settings

    def refresh(self) -> None:
        """Use what is to be trusted now; if that is unusable, the old stays. Said once."""
        try:
            self._show()
        except ServerError as error:
            if str(error) != self._complaint:
                log.error("Client CAs not reloaded, the old stay", error=error)
            self._complaint = str(error)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_EVERY)
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
                "extension-apiserver-authentication-reader, or go on without by "
                "--authentication-tolerate-lookup-failure=true"
            ) from error
        log.warning(
            "No authentication settings from the cluster; client certificates do not count yet",
            err=error,
        )


def proxies_from_flags(options: RequestHeaderOptions) -> ProxyTrust:
    """Errors: `BadCertificate`."""
    headers = HeaderNames(
        username=options.username_headers,
        uid=options.uid_headers,
        group=options.group_headers,
        extra_prefix=options.extra_headers_prefix,
    )
    ca = _read_ca("--requestheader-client-ca-file", options.client_ca_file)
    return ProxyTrust(ca, options.allowed_names, headers)


def proxies_from_settings(settings: Mapping[str, str]) -> ProxyTrust | None:
    """The proxies that the cluster's settings name. Errors: `BadCertificate`."""
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
            "No credentials to look up CAs: what they would vouch for does not count",
            flag="--authentication-kubeconfig",
            useless=useless,
        )

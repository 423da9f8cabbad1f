"""TLS contexts from a configuration: made once, and made anew when a file of theirs changes."""

import re
import ssl
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from typing import NoReturn

from pileus.clock import Clock
from pileus.kube.config.errors import InvalidConfiguration
from pileus.kube.config.pem import Pem, Stamp
from pileus.pki import KeyPair
from pileus.telemetry.log import Log

CHECK_EVERY = timedelta(seconds=10)

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)

_log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSettings:
    """What a connection is checked against, and what it shows of itself."""

    authority: Pem | None = None
    """None: the system's authorities."""
    certificate: Pem | None = None
    key: Pem | None = None
    insecure: bool = False

    def check(self) -> None:
        """Refuse settings that contradict each other, as client-go does."""
        if self.insecure and self.authority:
            raise InvalidConfiguration(
                f"insecure-skip-tls-verify with {self.authority.origin}: "
                "remove one of them; with both, the authority would not be used"
            )
        if self.certificate and not self.key:
            raise InvalidConfiguration(f"{self.certificate.origin} needs client-key(-data)")
        if self.key and not self.certificate:
            raise InvalidConfiguration(f"{self.key.origin} needs client-certificate(-data)")

    @property
    def given(self) -> bool:
        """Whether the configuration speaks of TLS at all."""
        return bool(self.authority or self.certificate or self.insecure)

    @property
    def trust(self) -> str:
        """Whom a server must be certified by, for messages."""
        if self.insecure:
            return "anybody (insecure-skip-tls-verify)"
        return self.authority.origin if self.authority else "the system's authorities"

    @property
    def shown(self) -> str:
        """What we prove ourselves with, for messages."""
        return " with ".join(pem.origin for pem in (self.certificate, self.key) if pem)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What the settings' files held when they were last good."""

    authority: bytes | None
    pair: KeyPair | None


class TlsContexts:
    """The context for the next connection."""

    def __init__(self, settings: TlsSettings, clock: Clock) -> None:
        """Errors: `InvalidConfiguration` if the settings, or the files that they name, are bad."""
        settings.check()
        self._settings = settings
        self._clock = clock
        self._checked = clock.now()
        self._stamps = self._look()
        self._issued: KeyPair | None = None
        self._loaded = self._load()
        self._context = self._build(self._loaded)

    def current(self, issued: KeyPair | None = None) -> ssl.SSLContext:
        """Return the same context until a file, or the pair that a plugin issued, is another.

        Files are looked at every ten seconds at most. If one is unreadable or half written, the
        last good context stays. `issued` is a pair that `check_pair` has found good.
        """
        if issued != self._issued:
            self._issued = issued
            self._context = self._build(self._loaded)
        now = self._clock.now()
        if abs(now - self._checked) >= CHECK_EVERY:
            self._checked = now
            self._reload()
        return self._context

    def _reload(self) -> None:
        stamps = self._look()
        if stamps == self._stamps:
            return
        try:
            loaded = self._load()
            self._context = self._build(loaded)
        except InvalidConfiguration as e:
            _log.error("Certificates changed, but cannot be used; the last ones stay", error=e)
            return
        self._loaded = loaded
        self._stamps = stamps
        _log.info("Certificates changed and were loaded", trust=self._settings.trust)

    def _look(self) -> tuple[Stamp | None, ...]:
        settings = self._settings
        return tuple(
            pem.stamp() if pem else None
            for pem in (settings.authority, settings.certificate, settings.key)
        )

    def _load(self) -> _Loaded:
        settings = self._settings
        authority = settings.authority.read() if settings.authority else None
        if settings.certificate and settings.key:
            return _Loaded(authority, KeyPair(settings.certificate.read(), settings.key.read()))
        return _Loaded(authority, None)

    def _build(self, loaded: _Loaded) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if settings.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif loaded.authority is not None:
            _trust(context, loaded.authority, settings.trust)
        else:
            context.load_default_certs()
        if pair := self._issued or loaded.pair:
            _show(context, pair, settings.shown)
        return context


def check_pair(pair: KeyPair, origin: str) -> None:
    """Errors: `InvalidConfiguration` if certificate and key are malformed or no pair."""
    _show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair, origin)


def _trust(context: ssl.SSLContext, authority: bytes, origin: str) -> None:
    certificates = _CERTIFICATE.findall(authority)
    if not certificates:
        raise InvalidConfiguration(f"{origin} holds no PEM certificate")
    try:
        context.load_verify_locations(cadata=b"\n".join(certificates).decode("ascii"))
    except (ssl.SSLError, ValueError) as e:
        text = getattr(e, "reason", None) or "malformed"
        raise InvalidConfiguration(f"{origin} cannot be used: {text}") from None


def _show(context: ssl.SSLContext, pair: KeyPair, origin: str) -> None:
    """Load certificate and key; Python can do that from a file only, so it is a fleeting one."""

    def locked() -> NoReturn:
        raise InvalidConfiguration(f"{origin}: the key is encrypted; give one without a password")

    with tempfile.NamedTemporaryFile(prefix="pileus-", suffix=".pem") as file:  # mode 0600
        file.write(pair.certificate.rstrip() + b"\n" + pair.key)
        file.flush()
        try:
            context.load_cert_chain(file.name, password=locked)
        except (ssl.SSLError, ValueError) as e:
            text = getattr(e, "reason", None) or "malformed"
            raise InvalidConfiguration(f"{origin} cannot be used: {text}") from None

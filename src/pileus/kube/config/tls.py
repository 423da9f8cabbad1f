"""Certificates and keys as a configuration gives them: inline, or in a file that may change."""

import base64
import binascii
import os
import re
import ssl
import tempfile
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.key_pair import KeyPair
from pileus.kube.config.errors import InvalidConfiguration, reason
from pileus.telemetry.log import Log

Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Inline:
    """PEM in the configuration itself."""

    origin: str
    """Where it came from, for messages."""
    content: bytes = field(repr=False)

    def read(self) -> bytes:
        return self.content

    def stamp(self) -> Stamp | None:
        return None


@dataclass(frozen=True, slots=True)
class InFile:
    """PEM in a file that may change at run time."""

    origin: str
    path: Path

    def read(self) -> bytes:
        """Return the content. Errors: `InvalidConfiguration`, naming origin and reason."""
        try:
            return self.path.read_bytes()
        except OSError as e:
            raise InvalidConfiguration(f"cannot read {self.origin}: {reason(e)}") from None

    def stamp(self) -> Stamp | None:
        """What differs once the file (or what a symbolic link names) is another."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


Pem = Inline | InFile


def pem(field_name: str, data: str | None, file: str | None, folder: Path) -> Pem | None:
    """Return `<field_name>-data` if it is there, else the file of `<field_name>`, else None.

    A relative file is one of `folder`, where the configuration lies.
    """
    if data:
        return Inline(f"{field_name}-data", _decode(f"{field_name}-data", data))
    if file:
        path = folder / file
        return InFile(f"{field_name} {path}", path)
    return None


def _decode(name: str, data: str) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidConfiguration(f"{name} is not base64") from None


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
        """Whether the configuration has TLS settings."""
        return bool(self.authority or self.certificate or self.insecure)

    @property
    def trust(self) -> str:
        """The trusted CAs, for messages."""
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
        self._stamps = self._read_stamps()
        self._issued: KeyPair | None = None
        self._loaded = self._load()
        self._context = self._build(self._loaded)

    def current(self, issued: KeyPair | None = None) -> ssl.SSLContext:
        """Return the same context until a file, or the pair that a plugin issued, is another.

        Files are checked every ten seconds at most. If one is unreadable or half written, the
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
        stamps = self._read_stamps()
        if stamps == self._stamps:
            return
        try:
            loaded = self._load()
            self._context = self._build(loaded)
        except InvalidConfiguration as e:
            _log.error("Changed certificates cannot be used, keeping the previous ones", error=e)
            return
        self._loaded = loaded
        self._stamps = stamps
        _log.info("Loaded changed certificates", trust=self._settings.trust)

    def _read_stamps(self) -> tuple[Stamp | None, ...]:
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
        # An intermediate CA in the bundle is an anchor of its own, as in Go.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
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
    """Load certificate and key from a temporary file: Python cannot load them from memory."""

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

"""TLS of the port: serving certificates and trusted client CAs.

Python's `ssl` gives a listener one context. To change certificates and CAs while the server runs,
that context has no key of its own: its SNI callback, which OpenSSL also calls for clients without
a host name, replaces it by the current context in each handshake. Certificate and trusted CAs come
from the current context; whether a client certificate is requested comes from the listener's.

A client certificate that no trusted CA has signed fails the handshake: Python cannot accept it and
check it later. `pileus.server.client_certificates` finds out which CA signed a valid one.
"""

import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from pileus.dataclass import dataclass
from pileus.key_pair import KeyPair
from pileus.server.ciphers import VERSIONS, openssl_ciphers, preferred_curve, tls_problems
from pileus.server.errors import BadCertificate, BadOption
from pileus.server.settings import ServingOptions
from pileus.telemetry.log import Log

log = Log(__name__)


@dataclass(frozen=True, slots=True)
class NamedPair:
    """A key pair for clients that ask for one of `names`; where it came from is for messages."""

    pair: KeyPair
    source: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Current:
    default: ssl.SSLContext
    by_name: Mapping[str, ssl.SSLContext] = field(default_factory=dict[str, ssl.SSLContext])


class Tls:
    """The front context and what is behind it. All methods may be called in any thread."""

    def __init__(self, options: ServingOptions) -> None:
        """Errors: `BadOption`."""
        for problem in tls_problems(options):
            raise BadOption(problem)
        _log_limits(options)
        self._options = options
        self._pairs: tuple[NamedPair, ...] = ()
        self._authorities = b""
        self._current: _Current | None = None
        self.context = self._plain()
        self.context.sni_callback = self._choose

    def use_pairs(self, pairs: Sequence[NamedPair]) -> None:
        """Show these from the next handshake on; the first one to whom no other fits.

        Errors: `BadCertificate`; then everything stays as it was.
        """
        self._current = self._build(pairs, self._authorities)
        self._pairs = tuple(pairs)

    def use_authorities(self, pem: bytes) -> None:
        """Trust client certificates of these CAs from the next handshake on; none: do not ask.

        Errors: `BadCertificate`; then everything stays as it was.
        """
        if self._pairs:
            self._current = self._build(self._pairs, pem)
        else:
            self._trust(self._plain(), pem)
        self._authorities = pem
        self.context.verify_mode = ssl.CERT_OPTIONAL if pem else ssl.CERT_NONE

    def _choose(
        self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, _: ssl.SSLContext
    ) -> int | None:
        current = self._current
        if current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = choose(current.by_name, name) or current.default
        return None

    def _build(self, pairs: Sequence[NamedPair], authorities: bytes) -> _Current:
        built = [(named, self._loaded(named, authorities)) for named in pairs]
        by_name: dict[str, ssl.SSLContext] = {}
        for named, context in built[1:]:
            for name in named.names or names_in(named.pair.certificate):
                by_name.setdefault(name.lower(), context)
        return _Current(built[0][1], by_name)

    def _loaded(self, named: NamedPair, authorities: bytes) -> ssl.SSLContext:
        context = self._plain()
        self._trust(context, authorities)
        with tempfile.TemporaryDirectory(prefix="pileus-") as folder:  # readable by us alone
            certificate, key = Path(folder, "crt"), Path(folder, "key")
            certificate.write_bytes(named.pair.certificate)
            key.write_bytes(named.pair.key)
            try:
                context.load_cert_chain(certificate, key, password="")
            except (ssl.SSLError, ValueError) as error:
                raise BadCertificate(f"{named.source}: no usable key pair: {error}") from error
        return context

    def _plain(self) -> ssl.SSLContext:
        options = self._options
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = VERSIONS[options.min_version]
        # An intermediate CA in the bundle is an anchor of its own, as in Go.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.set_alpn_protocols(["http/1.1"])
        ciphers = openssl_ciphers(options.cipher_suites)
        if ciphers:
            _set_ciphers(context, ciphers)
        elif options.cipher_suites:
            context.minimum_version = ssl.TLSVersion.TLSv1_3
        if curve := preferred_curve(options.curve_preferences):
            context.set_ecdh_curve(curve)
        return context

    @staticmethod
    def _trust(context: ssl.SSLContext, authorities: bytes) -> None:
        if not authorities:
            return
        try:
            context.load_verify_locations(cadata=authorities.decode())
        except (ssl.SSLError, ValueError) as error:
            raise BadCertificate(f"the CA bundle for clients cannot be used: {error}") from error
        context.verify_mode = ssl.CERT_OPTIONAL


def choose(by_name: Mapping[str, ssl.SSLContext], name: str | None) -> ssl.SSLContext | None:
    """Returns the context for a host name, exact or by wildcard."""
    if not name:
        return None
    name = name.lower().rstrip(".")
    _, _, rest = name.partition(".")
    return by_name.get(name) or by_name.get(f"*.{rest}")


def names_in(certificate: bytes) -> tuple[str, ...]:
    """Returns the host names of a certificate; its common name if it has none."""
    from cryptography import x509  # noqa: PLC0415 -- 11 MB, and few have such certificates
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    leaf = x509.load_pem_x509_certificates(certificate)[0]
    try:
        extension = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        common = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return tuple(str(attribute.value) for attribute in common)
    return tuple(extension.value.get_values_for_type(x509.DNSName))


def _log_limits(options: ServingOptions) -> None:
    if options.min_version in {"VersionTLS10", "VersionTLS11"}:
        log.warning("TLS below 1.2 is not served", asked=options.min_version)
    curve = preferred_curve(options.curve_preferences)
    if len(options.curve_preferences) > 1 or (options.curve_preferences and not curve):
        log.warning("Only one preferred curve is supported", used=curve or "OpenSSL's choice")


def _set_ciphers(context: ssl.SSLContext, ciphers: str) -> None:
    try:
        context.set_ciphers(ciphers)
    except ssl.SSLError as error:
        raise BadOption(
            f"--tls-cipher-suites: this OpenSSL ({ssl.OPENSSL_VERSION}) has none of {ciphers}"
        ) from error

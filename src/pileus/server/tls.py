"""TLS of the port: cipher suites and versions, serving certificates, and trusted client CAs.

Python's `ssl` gives a listener one context. To change certificates and CAs while the server runs,
that context has no key of its own: its SNI callback, which OpenSSL also calls for clients without
a host name, replaces it by the current context in each handshake. Certificate and trusted CAs come
from the current context; whether a client certificate is requested comes from the listener's.

A client certificate that no trusted CA has signed fails the handshake: Python cannot accept it and
check it later. `pileus.server.client_certificates` finds out which CA signed a valid one.
"""

import ssl
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.x509.oid import NameOID

from pileus.pki import KeyPair
from pileus.server.errors import BadCertificate, BadOption
from pileus.server.options import ServingOptions
from pileus.settings.go_quote import quote
from pileus.suggest import did_you_mean
from pileus.telemetry.log import Log

log = Log(__name__)


TLS13_SUITES = frozenset({
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
})

SUITES: Mapping[str, str] = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
"""Accepted cipher suites up to TLS 1.2: IANA name to OpenSSL name."""

VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "": ssl.TLSVersion.TLSv1_2,
    # OpenSSL 3 rejects both old versions at its default security level
    "VersionTLS10": ssl.TLSVersion.TLSv1_2,
    "VersionTLS11": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

CURVES: Mapping[int, str] = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}
"""Curves: IANA number to OpenSSL name."""

HYBRID_CURVES = frozenset({4587, 4588, 4589})
"""Post-quantum groups that Go supports and Python's ssl cannot select by name."""

KNOWN_SUITES = tuple(sorted([*SUITES, *TLS13_SUITES]))
KNOWN_VERSIONS = tuple(name for name in VERSIONS if name)
KNOWN_CURVES = tuple(sorted([*CURVES, *HYBRID_CURVES]))
"""Accepted values of the three flags."""


def tls_problems(options: ServingOptions, prefix: str = "") -> Iterator[str]:
    """Yields every unknown value of the TLS flags; `prefix` is that of the flag names."""
    if options.min_version not in VERSIONS:
        yield (
            f"--{prefix}tls-min-version: unknown tls version {quote(options.min_version)}, "
            f"possible are {', '.join(KNOWN_VERSIONS)}"
        )
    for name in options.cipher_suites:
        if name not in KNOWN_SUITES:
            yield (
                f"--{prefix}tls-cipher-suites: Cipher suite {name} not supported or doesn't exist"
                f"{did_you_mean(name, KNOWN_SUITES)}"
            )
    for number in options.curve_preferences:
        if number not in KNOWN_CURVES:
            known = ", ".join(map(str, KNOWN_CURVES))
            yield f"--{prefix}tls-curve-preferences: unknown curve {number}, possible are {known}"


def openssl_ciphers(suites: Sequence[str]) -> str | None:
    """OpenSSL's list for TLS 1.2; None if only suites of TLS 1.3 are wanted."""
    chosen = [SUITES[name] for name in suites if name not in TLS13_SUITES]
    return ":".join(dict.fromkeys(chosen)) or None


def preferred_curve(numbers: Sequence[int]) -> str | None:
    """The curve to use, or None for OpenSSL's own choice.

    Python can fix one curve or none: the first one that it can name is taken.
    """
    return next((CURVES[number] for number in numbers if number in CURVES), None)


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

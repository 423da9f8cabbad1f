"""Flags of the two HTTPS ports; the webhooks' port has the same ones with a prefix."""

from dataclasses import dataclass
from typing import TypeVar

from pileus.server.options import CERTIFICATES, SniPair
from pileus.server.tls import KNOWN_SUITES, KNOWN_VERSIONS
from pileus.settings.flags import Flag, Group, switch
from pileus.settings.kinds import (
    BOOL,
    INT,
    INTS,
    IP,
    STRING,
    STRINGS,
    Kind,
)
from pileus.version import PROGRAM

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingFlags:
    """The flags that both ports have."""

    pair_name: str
    """Of the certificate files that are made; no flag."""
    bind_address: Flag[str]
    secure_port: Flag[int]
    cert_dir: Flag[str]
    tls_cert_file: Flag[str]
    tls_private_key_file: Flag[str]
    tls_cipher_suites: Flag[tuple[str, ...]]
    tls_curve_preferences: Flag[tuple[int, ...]]
    tls_min_version: Flag[str]
    tls_sni_cert_key: Flag[tuple[SniPair, ...]]
    disable_http2_serving: Flag[bool]


_TEXTS = {
    "bind-address": "IP address of --{prefix}secure-port; 0.0.0.0 or :: for all addresses.",
    "cert-dir": (
        "Folder of {pair}.crt and .key, created if absent; empty: a self-signed certificate in "
        "memory."
    ),
    "tls-cert-file": (
        "Certificate of the server, followed by its issuers; reloaded when it changes."
    ),
    "tls-private-key-file": "Private key of --{prefix}tls-cert-file.",
    "tls-cipher-suites": "IANA names of the server's cipher suites; empty: safe ones.",
    "tls-curve-preferences": "Numbers of the server's key exchange groups; empty: safe ones.",
    "tls-min-version": (
        "Minimum TLS version: " + ", ".join(KNOWN_VERSIONS) + "; empty: VersionTLS12."
    ),
    "tls-sni-cert-key": (
        "Further certificate as CERT,KEY[:NAME,...]; without names, those of the certificate "
        "apply. Repeatable."
    ),
    "disable-http2-serving": "Accepted for compatibility: HTTP/2 is not served.",
}
_DETAILS = {
    "cert-dir": "Ignored if --{prefix}tls-cert-file is set.",
    "tls-cipher-suites": "Known: " + ", ".join(KNOWN_SUITES) + ".",
    "tls-curve-preferences": (
        "Known: 23 (P-256), 24 (P-384), 25 (P-521), 29 (X25519); accepted but left to OpenSSL: "
        "4587, 4588, 4589 (hybrids with ML-KEM)."
    ),
    "tls-sni-cert-key": (
        "'*.' in a name stands for one label. "
        "Examples: 'a.crt,a.key' or 'b.crt,b.key:*.b.example,b.example'."
    ),
}
"""What only the reference page says."""


def _declare(prefix: str, port: Flag[int], pair: str) -> ServingFlags:
    def flag(name: str, kind: Kind[T], default: T) -> Flag[T]:
        text = _TEXTS[name].format(prefix=prefix, pair=pair)
        details = _DETAILS.get(name, "").format(prefix=prefix)
        return Flag(prefix + name, kind, default, text, details=details)

    return ServingFlags(
        pair_name=pair,
        bind_address=flag("bind-address", IP, "0.0.0.0"),  # noqa: S104 -- upstream's default
        secure_port=port,
        cert_dir=flag("cert-dir", STRING, ""),
        tls_cert_file=flag("tls-cert-file", STRING, ""),
        tls_private_key_file=flag("tls-private-key-file", STRING, ""),
        tls_cipher_suites=flag("tls-cipher-suites", STRINGS, ()),
        tls_curve_preferences=flag("tls-curve-preferences", INTS, ()),
        tls_min_version=flag("tls-min-version", STRING, ""),
        tls_sni_cert_key=flag("tls-sni-cert-key", CERTIFICATES, ()),
        disable_http2_serving=flag("disable-http2-serving", BOOL, default=False),
    )


def _flags(declared: ServingFlags) -> tuple[Flag[str] | Flag[int] | Flag[bool], ...]:
    names = (name for name in ServingFlags.__slots__ if name != "pair_name")
    return tuple(getattr(declared, name) for name in names)


SECURE = _declare(
    "",
    Flag("secure-port", INT, 10258, "Port of the HTTPS server; 0: not served."),
    PROGRAM,
)
HTTP2_MAX_STREAMS = Flag(
    "http2-max-streams-per-connection",
    INT,
    0,
    "Accepted for compatibility: HTTP/2 is not served.",
)
PERMIT_ADDRESS_SHARING = switch(
    "permit-address-sharing",
    "Open the port with SO_REUSEADDR, so that it can be reused at once after a restart.",
)
PERMIT_PORT_SHARING = switch(
    "permit-port-sharing",
    "Open the port with SO_REUSEPORT, so that several processes can share it.",
)
SECURE_SERVING = Group(
    "Secure serving",
    (*_flags(SECURE), HTTP2_MAX_STREAMS, PERMIT_ADDRESS_SHARING, PERMIT_PORT_SHARING),
)

WEBHOOKS = Flag(
    "webhooks",
    STRINGS,
    (),
    "Webhooks to serve, written like --controllers. Needs the feature gate "
    "CloudControllerManagerWebhook.",
)
WEBHOOK_GROUP = Group("Webhook", (WEBHOOKS,))

WEBHOOK = _declare(
    "webhook-",
    Flag(
        "webhook-secure-port",
        INT,
        10260,
        "Port of the admission webhooks; 0: not served.",
    ),
    f"{PROGRAM}-webhook",
)
WEBHOOK_SERVING = Group("Webhook serving", _flags(WEBHOOK))

"""Flags of the two HTTPS ports; the webhooks' port has the same ones with a prefix."""

from dataclasses import dataclass
from typing import TypeVar

from pileus.app.flags import Flag, Group, switch
from pileus.app.kinds import (
    BOOL,
    CERTIFICATES,
    INT,
    INTS,
    IP,
    STRING,
    STRINGS,
    Kind,
)
from pileus.server.ciphers import KNOWN_SUITES, KNOWN_VERSIONS
from pileus.server.options import SniPair
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
    "bind-address": "Address on which --{prefix}secure-port listens; 0.0.0.0 or :: for all.",
    "cert-dir": (
        "Folder of {pair}.crt and .key, made if absent; empty: a self-signed certificate in "
        "memory. Ignored if --{prefix}tls-cert-file is given."
    ),
    "tls-cert-file": (
        "File of the server's certificate, followed by its issuers. Read again when it changes."
    ),
    "tls-private-key-file": "File of the private key of --{prefix}tls-cert-file.",
    "tls-cipher-suites": (
        "Cipher suites that the server offers, by IANA name; empty: a safe choice.\nKnown: "
        + ", ".join(KNOWN_SUITES)
    ),
    "tls-curve-preferences": (
        "Key exchange groups that the server offers, by number: 23 (P-256), 24 (P-384), "
        "25 (P-521), 29 (X25519); taken but left to OpenSSL: 4587, 4588, 4589 (hybrids with "
        "ML-KEM); empty: a safe choice."
    ),
    "tls-min-version": (
        "Oldest TLS version that the server speaks: " + ", ".join(KNOWN_VERSIONS) + "; empty: 1.2."
    ),
    "tls-sni-cert-key": (
        "A further certificate and its key, for the server names after the colon or else for "
        "those in the certificate; '*.' stands for one label. Repeatable. "
        "Examples: 'a.crt,a.key' or 'b.crt,b.key:*.b.example,b.example'."
    ),
    "disable-http2-serving": "Accepted for compatibility: HTTP/2 is not served anyway.",
}


def _declare(prefix: str, port: Flag[int], pair: str) -> ServingFlags:
    def flag(name: str, kind: Kind[T], default: T) -> Flag[T]:
        text = _TEXTS[name].format(prefix=prefix, pair=pair)
        return Flag(prefix + name, kind, default, text)

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
    Flag("secure-port", INT, 10258, "Port of the HTTPS server; 0: none."),
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
    "Open the port with SO_REUSEADDR: it can be taken again at once after a restart.",
)
PERMIT_PORT_SHARING = switch(
    "permit-port-sharing",
    "Open the port with SO_REUSEPORT: several processes may share it.",
)
SECURE_SERVING = Group(
    "Secure serving",
    (*_flags(SECURE), HTTP2_MAX_STREAMS, PERMIT_ADDRESS_SHARING, PERMIT_PORT_SHARING),
)

WEBHOOKS = Flag(
    "webhooks",
    STRINGS,
    (),
    "Which webhooks are served, in the same notation as --controllers. Needs the gate "
    "CloudControllerManagerWebhook.",
)
WEBHOOK_GROUP = Group("Webhook", (WEBHOOKS,))

WEBHOOK = _declare(
    "webhook-",
    Flag(
        "webhook-secure-port",
        INT,
        10260,
        "Port of the admission webhooks; 0: none.",
    ),
    f"{PROGRAM}-webhook",
)
WEBHOOK_SERVING = Group("Webhook serving", _flags(WEBHOOK))

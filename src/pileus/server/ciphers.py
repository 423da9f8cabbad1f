"""Values of the TLS flags: cipher suites, versions and curves, by the names of Go and OpenSSL."""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pileus.settings.go_quote import quote
from pileus.suggest import did_you_mean

if TYPE_CHECKING:
    from pileus.server.settings import ServingOptions

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


def tls_problems(options: "ServingOptions", prefix: str = "") -> Iterator[str]:
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

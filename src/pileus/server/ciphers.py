"""TLS settings by the names that the flags use, in the words of OpenSSL."""

import ssl
from collections.abc import Mapping, Sequence

from pileus.server.errors import BadOption
from pileus.suggest import did_you_mean

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
"""The suites up to TLS 1.2 that the flag accepts: IANA's names, and OpenSSL's."""

VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "": ssl.TLSVersion.TLSv1_2,
    # OpenSSL 3 refuses both old versions at its default security level; so do we, by a higher floor
    "VersionTLS10": ssl.TLSVersion.TLSv1_2,
    "VersionTLS11": ssl.TLSVersion.TLSv1_2,
    "VersionTLS12": ssl.TLSVersion.TLSv1_2,
    "VersionTLS13": ssl.TLSVersion.TLSv1_3,
}

CURVES: Mapping[int, str] = {23: "prime256v1", 24: "secp384r1", 25: "secp521r1", 29: "X25519"}
"""Curves by their number in IANA's register, as OpenSSL names them."""

HYBRID_CURVES = frozenset({4587, 4588, 4589})
"""Post-quantum groups that Go knows; Python's ssl cannot ask for them by name yet."""


def openssl_ciphers(suites: Sequence[str]) -> str | None:
    """OpenSSL's list for TLS 1.2; None if only suites of TLS 1.3 are wanted.

    Errors: `BadOption` for a name that does not exist.
    """
    for name in suites:
        if name not in SUITES and name not in TLS13_SUITES:
            hint = did_you_mean(name, [*SUITES, *TLS13_SUITES])
            raise BadOption(f'--tls-cipher-suites: there is no cipher suite "{name}"{hint}')
    chosen = [SUITES[name] for name in suites if name in SUITES]
    return ":".join(dict.fromkeys(chosen)) or None


def minimum_version(name: str) -> ssl.TLSVersion:
    """Errors: `BadOption` for a version that does not exist."""
    if name not in VERSIONS:
        hint = did_you_mean(name, [known for known in VERSIONS if known])
        raise BadOption(f'--tls-min-version: there is no TLS version "{name}"{hint}')
    return VERSIONS[name]


def preferred_curve(numbers: Sequence[int]) -> str | None:
    """The curve to use, or None for OpenSSL's own choice.

    Python can fix one curve or none: the first one that it can name is taken.
    Errors: `BadOption` for a number that is no curve.
    """
    for number in numbers:
        if number not in CURVES and number not in HYBRID_CURVES:
            known = ", ".join(str(n) for n in sorted([*CURVES, *HYBRID_CURVES]))
            raise BadOption(
                f"--tls-curve-preferences: there is no curve {number}; known are {known}"
            )
    return next((CURVES[number] for number in numbers if number in CURVES), None)

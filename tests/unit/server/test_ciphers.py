"""Names of the flags become OpenSSL's; wrong ones are refused with a suggestion."""

import ssl

import pytest

from pileus.server.ciphers import (
    CURVES,
    KNOWN_CURVES,
    KNOWN_SUITES,
    SUITES,
    TLS13_SUITES,
    VERSIONS,
    openssl_ciphers,
    preferred_curve,
    tls_problems,
)
from pileus.server.settings import ServingOptions

OUTDATED = ("RC4", "3DES")
"""OpenSSL is mostly built without them."""


@pytest.mark.parametrize(
    "suite", [name for name in SUITES if not any(part in name for part in OUTDATED)]
)
def test_openssl_knows_each_suite_by_our_name_for_it(suite: str):
    name = SUITES[suite]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)

    context.set_ciphers(name)

    assert name in {cipher["name"] for cipher in context.get_ciphers()}


def test_suites_keep_their_order_and_are_named_once():
    wanted = [
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        "TLS_AES_128_GCM_SHA256",
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    ]

    assert openssl_ciphers(wanted) == "ECDHE-RSA-CHACHA20-POLY1305:ECDHE-RSA-AES128-GCM-SHA256"


def test_suites_of_tls_13_alone_leave_nothing_for_tls_12():
    assert openssl_ciphers(sorted(TLS13_SUITES)) is None


@pytest.mark.parametrize("name", ["", "VersionTLS10", "VersionTLS11", "VersionTLS12"])
def test_nothing_older_than_tls_12_is_served(name: str):
    assert VERSIONS[name] is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("number", sorted(CURVES))
def test_openssl_knows_each_curve_by_our_name_for_it(number: int):
    curve = preferred_curve([4588, number])

    assert curve is not None
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(curve)


def test_all_that_does_not_exist_is_told_at_once_by_the_flags_own_names():
    options = ServingOptions(
        min_version="VersionTLS31",
        cipher_suites=("TLS_AES_128_GCM_SHA265", "TLS_RSA_WITH_RC4_128_SHA"),
        curve_preferences=(23, 7),
    )

    version, suite, curve = tls_problems(options, "webhook-")

    assert version == (
        '--webhook-tls-min-version: unknown tls version "VersionTLS31", possible are '
        "VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13"
    )
    assert suite == (
        "--webhook-tls-cipher-suites: Cipher suite TLS_AES_128_GCM_SHA265 not supported or "
        'doesn\'t exist (did you mean "TLS_AES_128_GCM_SHA256"?)'
    )
    assert curve == (
        "--webhook-tls-curve-preferences: unknown curve 7, possible are "
        "23, 24, 25, 29, 4587, 4588, 4589"
    )


def test_nothing_is_wrong_with_all_that_is_known():
    options = ServingOptions(cipher_suites=KNOWN_SUITES, curve_preferences=KNOWN_CURVES)

    assert not list(tls_problems(options))

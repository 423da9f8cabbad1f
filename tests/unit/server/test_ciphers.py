"""Names of the flags become OpenSSL's; wrong ones are refused with a suggestion."""

import ssl

import pytest

from pileus.server.ciphers import (
    CURVES,
    SUITES,
    TLS13_SUITES,
    minimum_version,
    openssl_ciphers,
    preferred_curve,
)
from pileus.server.errors import BadOption

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


def test_an_unknown_suite_is_refused_with_the_one_that_was_meant():
    with pytest.raises(BadOption, match='did you mean "TLS_AES_128_GCM_SHA256"'):
        openssl_ciphers(["TLS_AES_128_GCM_SHA265"])


def test_an_unknown_version_is_refused_with_the_one_that_was_meant():
    with pytest.raises(BadOption, match='did you mean "VersionTLS13"'):
        minimum_version("VersionTLS31")


@pytest.mark.parametrize("name", ["", "VersionTLS10", "VersionTLS11", "VersionTLS12"])
def test_nothing_older_than_tls_12_is_served(name: str):
    assert minimum_version(name) is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("number", sorted(CURVES))
def test_openssl_knows_each_curve_by_our_name_for_it(number: int):
    curve = preferred_curve([4588, number])

    assert curve is not None
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(curve)


def test_an_unknown_curve_is_refused_with_the_known_ones():
    with pytest.raises(BadOption, match="no curve 7; known are 23, 24, 25, 29"):
        preferred_curve([23, 7])

"""Handshakes in memory: which certificate is shown, and whose client certificates pass."""

import ssl

import pytest
from cryptography import x509

from pileus.pki import KeyPair
from pileus.server.errors import BadCertificate, BadOption
from pileus.server.settings import ServingOptions
from pileus.server.tls import NamedPair, Tls, names_in
from tests.unit.server.people import (
    CLIENT_CA,
    JANE,
    MALLORY,
    PROXY,
    PROXY_CA,
    client_context,
    serving_pair,
)

SHOP, DEFAULT = serving_pair("shop.test", "*.shop.test"), serving_pair("localhost")


def shake(tls: Tls, client: ssl.SSLContext, name: str | None = None):
    """Both ends of a whole handshake."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = tls.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for end in (near, far):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                pass
    return near, far


def shown(tls: Tls, name: str | None = None) -> tuple[str, ...]:
    near, _ = shake(tls, client_context(), name)
    leaf = near.getpeercert(binary_form=True)
    assert leaf is not None
    return names_in(ssl.DER_cert_to_PEM_cert(leaf).encode())


def seen(tls: Tls, pair: KeyPair | None) -> str | None:
    _, far = shake(tls, client_context(pair))
    leaf = far.getpeercert(binary_form=True)
    return x509.load_der_x509_certificate(leaf).subject.rfc4514_string() if leaf else None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("shop.test", ("shop.test", "*.shop.test")),
        ("Cart.Shop.test", ("shop.test", "*.shop.test")),
        ("a.cart.shop.test", ("localhost",)),
        ("elsewhere.test", ("localhost",)),
        (None, ("localhost",)),
    ],
)
def test_a_client_sees_the_certificate_for_the_name_it_asks_for(
    name: str | None, expected: tuple[str, ...]
):
    tls = Tls(ServingOptions())

    tls.use_pairs([DEFAULT, SHOP])

    assert shown(tls, name) == expected


def test_a_client_that_prefers_http_2_gets_http_1_1():
    tls = Tls(ServingOptions())
    tls.use_pairs([DEFAULT])
    client = client_context()
    client.set_alpn_protocols(["h2", "http/1.1"])

    near, _ = shake(tls, client)

    assert near.selected_alpn_protocol() == "http/1.1"


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        (ServingOptions(min_version="VersionTLS10"), ["TLS below 1.2 is not served"]),
        (ServingOptions(min_version="VersionTLS11"), ["TLS below 1.2 is not served"]),
        (
            ServingOptions(curve_preferences=(29, 23)),
            ["Only one preferred curve is supported"],
        ),
        (ServingOptions(min_version="VersionTLS12", curve_preferences=(23,)), []),
    ],
)
def test_what_this_port_cannot_serve_as_asked_is_a_warning(
    options: ServingOptions, warned: list[str], caplog: pytest.LogCaptureFixture
):
    Tls(options)

    assert [record.message for record in caplog.records] == warned


def test_given_names_count_instead_of_those_in_the_certificate():
    tls = Tls(ServingOptions())

    tls.use_pairs([DEFAULT, NamedPair(SHOP.pair, "test", ("only.test",))])

    assert shown(tls, "only.test") == ("shop.test", "*.shop.test")
    assert shown(tls, "shop.test") == ("localhost",)


def test_certificates_change_under_a_context_that_stays_the_same():
    tls = Tls(ServingOptions())
    tls.use_pairs([DEFAULT])
    context = tls.context

    tls.use_pairs([SHOP])

    assert tls.context is context
    assert shown(tls) == ("shop.test", "*.shop.test")


def test_a_key_that_does_not_fit_changes_nothing():
    tls = Tls(ServingOptions())
    tls.use_pairs([DEFAULT])
    torn = NamedPair(KeyPair(SHOP.pair.certificate, DEFAULT.pair.key), "new.crt with new.key")

    with pytest.raises(BadCertificate, match=r"new\.crt with new\.key"):
        tls.use_pairs([torn])

    assert shown(tls) == ("localhost",)


def test_without_cas_no_client_certificate_is_asked_for():
    tls = Tls(ServingOptions())

    tls.use_pairs([DEFAULT])

    assert seen(tls, JANE) is None


def test_certificates_of_every_known_ca_pass_and_none_is_needed():
    tls = Tls(ServingOptions())
    tls.use_pairs([DEFAULT])

    tls.use_authorities(CLIENT_CA.certificate + b"\n" + PROXY_CA.certificate)

    assert seen(tls, JANE) == "CN=jane,O=ops,O=dev"
    assert seen(tls, PROXY) == "CN=front-proxy"
    assert seen(tls, None) is None


def test_a_certificate_of_an_unknown_ca_fails_the_handshake():
    tls = Tls(ServingOptions())
    tls.use_pairs([DEFAULT])

    tls.use_authorities(CLIENT_CA.certificate)

    with pytest.raises(ssl.SSLCertVerificationError):
        seen(tls, MALLORY)


def test_cas_change_under_a_running_server():
    tls = Tls(ServingOptions())
    tls.use_authorities(CLIENT_CA.certificate)
    tls.use_pairs([DEFAULT])

    tls.use_authorities(PROXY_CA.certificate)

    assert seen(tls, PROXY) == "CN=front-proxy"
    with pytest.raises(ssl.SSLCertVerificationError):
        seen(tls, JANE)

    tls.use_authorities(b"")

    assert seen(tls, MALLORY) is None


def test_a_broken_ca_bundle_changes_nothing():
    tls = Tls(ServingOptions())
    tls.use_pairs([DEFAULT])
    tls.use_authorities(CLIENT_CA.certificate)

    with pytest.raises(BadCertificate, match="CA bundle"):
        tls.use_authorities(b"what is this")

    assert seen(tls, JANE) is not None


def test_before_there_is_a_certificate_nobody_gets_in():
    with pytest.raises(ssl.SSLError):
        shown(Tls(ServingOptions()))


def test_only_the_wanted_suites_are_offered():
    tls = Tls(ServingOptions(cipher_suites=("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",)))
    tls.use_pairs([DEFAULT])
    client = client_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2

    near, _ = shake(tls, client)

    assert near.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)


@pytest.mark.parametrize(
    "options",
    [
        ServingOptions(min_version="VersionTLS13"),
        ServingOptions(cipher_suites=("TLS_AES_128_GCM_SHA256",)),
    ],
)
def test_tls_12_is_refused_where_only_13_is_wanted(options: ServingOptions):
    tls = Tls(options)
    tls.use_pairs([DEFAULT])
    client = client_context()
    client.maximum_version = ssl.TLSVersion.TLSv1_2

    with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
        shake(tls, client)


def test_suites_that_this_openssl_lacks_are_named():
    with pytest.raises(BadOption, match="has none of RC4-SHA"):
        Tls(ServingOptions(cipher_suites=("TLS_RSA_WITH_RC4_128_SHA",)))

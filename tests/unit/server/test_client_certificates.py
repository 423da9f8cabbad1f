"""Certificates are verified against one CA bundle, and name a user."""

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pileus.pki import Subject
from pileus.server.client_certificates import CREDENTIAL_ID, Authorities, user_of
from pileus.server.errors import BadCertificate
from pileus.server.users import Unauthenticated
from tests.unit.server.people import (
    CLIENT_CA,
    JANE,
    MALLORY,
    OTHER_CA,
    PROXY_CA,
    REAL_NOW,
    der,
    like_jane,
)

BUNDLE = Authorities(PROXY_CA.certificate + CLIENT_CA.certificate)


def test_a_certificate_names_a_user_with_groups():
    user = user_of(BUNDLE.verify([der(JANE)], REAL_NOW))

    assert user is not None
    assert (user.name, user.groups) == ("jane", ("dev", "ops"))
    ((key, (identifier,)),) = user.extra
    assert key == CREDENTIAL_ID
    assert identifier.startswith("X509SHA256=")


@pytest.mark.parametrize("later", [timedelta(days=-2), timedelta(days=5000)])
def test_a_certificate_counts_only_in_its_time(later: timedelta):
    with pytest.raises(Unauthenticated):
        BUNDLE.verify([der(JANE)], REAL_NOW + later)


def test_a_certificate_of_another_ca_does_not_count():
    with pytest.raises(Unauthenticated):
        BUNDLE.verify([der(MALLORY)], REAL_NOW)


def test_a_certificate_whose_issuer_only_has_the_right_name_does_not_count():
    namesake = type(CLIENT_CA)("clients", now=REAL_NOW)
    forged = namesake.issue(Subject(common_name="jane"), now=REAL_NOW)

    with pytest.raises(Unauthenticated):
        BUNDLE.verify([der(forged)], REAL_NOW)


def test_a_client_certificate_is_no_ca_for_others():
    with pytest.raises(Unauthenticated):
        BUNDLE.verify([der(MALLORY), der(JANE)], REAL_NOW)


@pytest.mark.parametrize("chain", [(), (b"what is this",)])
def test_what_is_no_certificate_does_not_count(chain: tuple[bytes, ...]):
    with pytest.raises(Unauthenticated):
        BUNDLE.verify(chain, REAL_NOW)


def test_what_is_no_bundle_is_refused():
    with pytest.raises(BadCertificate, match="not a bundle"):
        Authorities(b"what is this")


def test_the_other_ca_is_another_bundle():
    assert Authorities(OTHER_CA.certificate).verify([der(MALLORY)], REAL_NOW)


NAME = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")])


@pytest.mark.parametrize(
    "uses",
    [
        pytest.param((), id="it does not say"),
        pytest.param((ExtendedKeyUsageOID.CLIENT_AUTH,), id="clients"),
        pytest.param((ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,), id="anything"),
    ],
)
def test_a_certificate_that_may_be_a_clients_counts(uses: tuple[x509.ObjectIdentifier, ...]):
    user = user_of(BUNDLE.verify([like_jane(NAME, *uses)], REAL_NOW))

    assert user is not None
    assert user.name == "jane"


def test_a_certificate_for_servers_alone_does_not_count():
    with pytest.raises(Unauthenticated, match="no extended key usage for clients"):
        BUNDLE.verify([like_jane(NAME, ExtendedKeyUsageOID.SERVER_AUTH)], REAL_NOW)


def test_a_certificate_without_a_common_name_names_nobody():
    masters = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")])

    assert user_of(BUNDLE.verify([like_jane(masters)], REAL_NOW)) is None

"""Certificates are verified against one CA bundle, and name a user."""

from datetime import timedelta

import pytest

from pileus.pki import Subject
from pileus.server.chains import CREDENTIAL_ID, Authorities, user_of
from pileus.server.errors import BadCertificate
from pileus.server.identity import Unauthenticated
from tests.unit.server.people import CLIENT_CA, JANE, MALLORY, OTHER_CA, PROXY_CA, REAL_NOW, der

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

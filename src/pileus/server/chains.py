"""Which CA stands behind a client's certificate, and whom it names."""

from collections.abc import Sequence
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import (
    ExtensionPolicy,
    PolicyBuilder,
    Store,
    VerificationError,
)

from pileus.server.errors import BadCertificate
from pileus.server.identity import Unauthenticated, User

CREDENTIAL_ID = "authentication.kubernetes.io/credential-id"


class Authorities:
    """A bundle of CA certificates."""

    def __init__(self, pem: bytes) -> None:
        """Errors: `BadCertificate` if there is no certificate in it, or a broken one."""
        try:
            self._store = Store(x509.load_pem_x509_certificates(pem))
        except ValueError as error:
            raise BadCertificate(f"not a bundle of CA certificates: {error}") from error

    def verify(self, chain: Sequence[bytes], now: datetime) -> x509.Certificate:
        """Return the first certificate of the chain (DER) if a CA of ours stands behind it.

        Errors: `Unauthenticated`.
        """
        try:
            leaf, *others = [x509.load_der_x509_certificate(der) for der in chain]
            verifier = (
                PolicyBuilder()
                .store(self._store)
                .time(now)
                # Client certificates of clusters have no subject alternative names.
                .extension_policies(
                    ca_policy=ExtensionPolicy.webpki_defaults_ca(),
                    ee_policy=ExtensionPolicy.permit_all(),
                )
                .build_client_verifier()
            )
            verifier.verify(leaf, others)
        except (VerificationError, ValueError) as error:
            raise Unauthenticated(f"client certificate: {error}") from error
        if not _is_for_clients(leaf):
            raise Unauthenticated("client certificate: its extended key usage is not for clients")
        return leaf


def common_name(leaf: x509.Certificate) -> str:
    """The subject's (last) common name; "" if it has none."""
    names = leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[-1].value) if names else ""


def user_of(leaf: x509.Certificate) -> User | None:
    """The user that a verified certificate names: its common name, with its organizations."""
    name = common_name(leaf)
    if not name:
        return None
    organizations = leaf.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    identifier = f"X509SHA256={leaf.fingerprint(hashes.SHA256()).hex()}"
    return User(
        name,
        groups=tuple(str(organization.value) for organization in organizations),
        extra=((CREDENTIAL_ID, (identifier,)),),
    )


def _is_for_clients(leaf: x509.Certificate) -> bool:
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    allowed = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    return bool(allowed & set(usage))

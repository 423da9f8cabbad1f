"""Which CA signed a client certificate. Imported when the first client shows one."""

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

from pileus.server.users import Leaf, Unauthenticated


def verified(authorities: bytes, chain: Sequence[bytes], now: datetime) -> Leaf:
    """Returns the first certificate of the chain (DER) if one of the CAs (PEM) signed it.

    Raises `Unauthenticated` if none did.
    """
    try:
        store = Store(x509.load_pem_x509_certificates(authorities))
        leaf, *others = [x509.load_der_x509_certificate(der) for der in chain]
        verifier = (
            PolicyBuilder()
            .store(store)
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
        raise Unauthenticated("client certificate: no extended key usage for clients")
    common_names = _texts(leaf, NameOID.COMMON_NAME)
    return Leaf(
        common_name=common_names[-1] if common_names else "",
        organizations=_texts(leaf, NameOID.ORGANIZATION_NAME),
        fingerprint=leaf.fingerprint(hashes.SHA256()).hex(),
        expires=leaf.not_valid_after_utc,
    )


def _texts(leaf: x509.Certificate, attribute: x509.ObjectIdentifier) -> tuple[str, ...]:
    return tuple(str(one.value) for one in leaf.subject.get_attributes_for_oid(attribute))


def _is_for_clients(leaf: x509.Certificate) -> bool:
    try:
        usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    allowed = {ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE}
    return bool(allowed & set(usage))

"""Certificates made on the spot: for our own HTTPS port, the embedded API server, and tests.

Everything is PEM in memory; who wants files writes them. Keys are P-256: quick to make.

The library that creates certificates costs 11 MB of memory. The manager needs one certificate, and
has it created by a process of its own: `python -m pileus.pki`.
"""

import json
import sys
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from pileus.key_pair import KeyPair, Subject

YEAR = timedelta(days=365)
SKEW = timedelta(hours=1)


class Authority:
    """A certificate authority with its key at hand."""

    def __init__(self, name: str, *, now: datetime, lifetime: timedelta = 10 * YEAR) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _distinguished(Subject(common_name=name))
        self._lifetime = lifetime
        builder = _builder(self._name, self._key, now, lifetime).issuer_name(self._name)
        usage = _usage(sign_certificates=True)
        certificate = (
            builder
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def pair(self) -> KeyPair:
        """Returns certificate and key, to be stored."""
        return KeyPair(self.certificate, _pem(self._key))

    def issue(
        self, subject: Subject, *, now: datetime, lifetime: timedelta | None = None
    ) -> KeyPair:
        """Return a certificate for both server and client use, and its key (PKCS#8)."""
        return _issued(self._key, self._name, subject, now, lifetime or self._lifetime)


@dataclass(frozen=True, slots=True)
class StoredAuthority:
    """A certificate authority that was stored as a pair."""

    pair: KeyPair

    def issue(self, subject: Subject, *, now: datetime, lifetime: timedelta) -> KeyPair:
        """Returns a pair as `Authority.issue` does. Raises ValueError if the pair is damaged."""
        issuer = x509.load_pem_x509_certificate(self.pair.certificate)
        key = serialization.load_pem_private_key(self.pair.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (
            key.public_key() != issuer.public_key()
        ):
            raise ValueError("the key of the authority does not belong to its certificate")
        return _issued(key, issuer.subject, subject, now, lifetime)


def _issued(
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    subject: Subject,
    now: datetime,
    lifetime: timedelta,
) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    builder = _builder(_distinguished(subject), key, now, lifetime).issuer_name(issuer)
    builder = (
        builder
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(sign_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([
                ExtendedKeyUsageOID.SERVER_AUTH,
                ExtendedKeyUsageOID.CLIENT_AUTH,
            ]),
            critical=False,
        )
        .add_extension(identifier, critical=False)
    )
    if subject.names:
        names = x509.SubjectAlternativeName([_general(n) for n in subject.names])
        builder = builder.add_extension(names, critical=False)
    certificate = builder.sign(signer, hashes.SHA256())
    return KeyPair(certificate.public_bytes(serialization.Encoding.PEM), _pem(key))


def self_signed(subject: Subject, *, now: datetime, lifetime: timedelta = YEAR) -> KeyPair:
    """Return a serving certificate with its (forgotten) authority behind it in the chain."""
    authority = Authority(f"{subject.common_name}-ca@{int(now.timestamp())}", now=now)
    pair = authority.issue(subject, now=now, lifetime=lifetime)
    return KeyPair(pair.certificate + authority.certificate, pair.key)


def signing_key() -> tuple[bytes, bytes]:
    """Return a private and a public key (PEM), as service-account tokens are signed with."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return _pem(key), public


def _builder(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    return (
        x509
        .CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + lifetime)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _distinguished(subject: Subject) -> x509.Name:
    organizations = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, o) for o in subject.organizations
    ]
    common_name = x509.NameAttribute(NameOID.COMMON_NAME, subject.common_name)
    return x509.Name([*organizations, common_name])


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def main() -> None:
    """Read a subject and a time from stdin; write a self-signed pair to stdout, both as JSON."""
    asked = json.load(sys.stdin)
    subject = Subject(common_name=asked["common_name"], names=tuple(asked["names"]))
    pair = self_signed(subject, now=datetime.fromisoformat(asked["now"]))
    json.dump({"certificate": pair.certificate.decode(), "key": pair.key.decode()}, sys.stdout)


if __name__ == "__main__":
    main()

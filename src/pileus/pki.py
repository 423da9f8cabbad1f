"""Certificates made on the spot: for our own HTTPS port, the embedded API server, and tests.

Everything is PEM in memory; who wants files writes them. Keys are P-256: quick to make.
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

YEAR = timedelta(days=365)
SKEW = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class KeyPair:
    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Whom a certificate is for; names that parse as an IP become IP names."""

    common_name: str
    organizations: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


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
        self._identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(
            self._key.public_key()
        )

    def issue(
        self, subject: Subject, *, now: datetime, lifetime: timedelta | None = None
    ) -> KeyPair:
        """Return a certificate for both server and client use, and its key (PKCS#8)."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = _distinguished(subject)
        builder = _builder(name, key, now, lifetime or self._lifetime).issuer_name(self._name)
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
            .add_extension(self._identifier, critical=False)
        )
        if subject.names:
            names = x509.SubjectAlternativeName([_general(n) for n in subject.names])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
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

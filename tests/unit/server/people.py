"""CAs and certificates for the tests beside this file, made once."""

import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from pileus.pki import Authority, KeyPair, Subject, self_signed
from pileus.server.tls import NamedPair

NOW = datetime(2026, 11, 16, tzinfo=UTC)


class FixedClock:
    def __init__(self, now: datetime = NOW) -> None:
        self.moment = now

    def now(self) -> datetime:
        return self.moment


REAL_NOW = datetime.now(UTC)
CLIENT_CA = Authority("clients", now=REAL_NOW)
PROXY_CA = Authority("proxies", now=REAL_NOW)
OTHER_CA = Authority("others", now=REAL_NOW)
JANE = CLIENT_CA.issue(Subject(common_name="jane", organizations=("dev", "ops")), now=REAL_NOW)
ADMIN = CLIENT_CA.issue(
    Subject(common_name="admin", organizations=("system:masters",)), now=REAL_NOW
)
PROXY = PROXY_CA.issue(Subject(common_name="front-proxy"), now=REAL_NOW)
MALLORY = OTHER_CA.issue(
    Subject(common_name="mallory", organizations=("system:masters",)), now=REAL_NOW
)


def behind_an_intermediate(subject: Subject) -> KeyPair:
    """A certificate of a CA that CLIENT_CA has signed, with that CA's own behind it."""
    between = Authority("between", now=REAL_NOW)
    ca = x509.load_pem_x509_certificate(between.certificate)
    signed = _signed_anew(ca, ca.subject, [each.value for each in ca.extensions])
    pair = between.issue(subject, now=REAL_NOW)
    return KeyPair(pair.certificate + signed, pair.key)


def like_jane(subject: x509.Name, *uses: x509.ObjectIdentifier) -> bytes:
    """A certificate (DER) of CLIENT_CA for those uses; without any it does not speak of them."""
    jane = x509.load_pem_x509_certificate(JANE.certificate)
    usage = [x509.ExtendedKeyUsage(uses)] if uses else []
    return ssl.PEM_cert_to_DER_cert(_signed_anew(jane, subject, usage).decode())


def _signed_anew(
    old: x509.Certificate, subject: x509.Name, extensions: Sequence[x509.ExtensionType]
) -> bytes:
    root = x509.load_pem_x509_certificate(CLIENT_CA.certificate)
    builder = (
        x509
        .CertificateBuilder()
        .subject_name(subject)
        .issuer_name(root.subject)
        .public_key(old.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(old.not_valid_before_utc)
        .not_valid_after(old.not_valid_after_utc)
    )
    for extension in extensions:
        critical = isinstance(extension, x509.BasicConstraints | x509.KeyUsage)
        builder = builder.add_extension(extension, critical=critical)
    issuer = root.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer)
    builder = builder.add_extension(identifier, critical=False)
    signed = builder.sign(CLIENT_CA._key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def der(pair: KeyPair) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pair.certificate.decode())


def serving_pair(*names: str) -> NamedPair:
    return NamedPair(self_signed(Subject(common_name=names[0], names=names), now=REAL_NOW), "test")


def client_context(pair: KeyPair | None = None) -> ssl.SSLContext:
    """A client that looks at no server certificate, with one of its own if given."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if pair:
        with tempfile.TemporaryDirectory() as folder:
            certificate, key = Path(folder, "crt"), Path(folder, "key")
            certificate.write_bytes(pair.certificate)
            key.write_bytes(pair.key)
            context.load_cert_chain(certificate, key)
    return context

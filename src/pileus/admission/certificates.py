"""The managed certificates of the webhook port: what is stored, and the steps of their rotation.

The leader writes a Secret; all replicas serve with the pair in it. A new authority is announced
before it signs, and the old one is trusted until no replica serves with it any more:

    create ──▶ renew the serving pair in time ──▶ announce ──▶ promote ──▶ retire
                                                 │            │           │
                     caBundle:   old             old+new      new+old     new
                     served:     old             old          new         new

`due` is pure. `performed` creates keys.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from cryptography import x509

from pileus.admission.names import NAME
from pileus.pki import SKEW, YEAR, Authority, KeyPair, StoredAuthority, Subject

AUTHORITY_LIFETIME = 2 * YEAR
AUTHORITY_RESERVE = YEAR / 2
"""How long before its end an authority is replaced."""
SERVING_LIFETIME = timedelta(days=90)
SERVING_RESERVE = timedelta(days=30)
OVERLAP = timedelta(minutes=10)
"""Between two stages of a rotation. All API servers know a new caBundle, and all replicas serve
with a new pair, long before that."""
LOCAL = ("localhost", "127.0.0.1")

CA, CA_KEY = "ca.crt", "ca.key"
NEXT_CA, NEXT_KEY = "next-ca.crt", "next-ca.key"
PREVIOUS_CA = "previous-ca.crt"
SERVING, SERVING_KEY = "tls.crt", "tls.key"
KEYS = (CA, CA_KEY, NEXT_CA, NEXT_KEY, PREVIOUS_CA, SERVING, SERVING_KEY)
"""The keys of the Secret that are ours."""


class Damaged(ValueError):
    """The Secret does not have what a manager writes into it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """The content of the Secret."""

    signer: KeyPair
    """The authority that signs."""
    serving: KeyPair
    upcoming: KeyPair | None = None
    """The next authority: trusted, but it does not sign yet."""
    previous: bytes = b""
    """The certificate of the last authority: still trusted, but it does not sign any more."""

    @property
    def is_rotating(self) -> bool:
        return self.upcoming is not None or bool(self.previous)

    @property
    def bundle(self) -> bytes:
        """Returns the authorities to trust, for `caBundle`."""
        upcoming = self.upcoming.certificate if self.upcoming else b""
        return self.signer.certificate + upcoming + self.previous

    def data(self) -> dict[str, bytes | None]:
        """Returns the data of the Secret; None: the key is removed."""
        upcoming = self.upcoming
        return {
            CA: self.signer.certificate,
            CA_KEY: self.signer.key,
            NEXT_CA: upcoming.certificate if upcoming else None,
            NEXT_KEY: upcoming.key if upcoming else None,
            PREVIOUS_CA: self.previous or None,
            SERVING: self.serving.certificate,
            SERVING_KEY: self.serving.key,
        }

    @classmethod
    def of(cls, data: Mapping[str, bytes]) -> "Stored":
        """Returns what the data of a Secret mean. Raises Damaged."""
        missing = [key for key in (CA, CA_KEY, SERVING, SERVING_KEY) if not data.get(key)]
        if missing:
            raise Damaged(f"it lacks {', '.join(missing)}")
        upcoming = KeyPair(data.get(NEXT_CA, b""), data.get(NEXT_KEY, b""))
        stored = cls(
            signer=KeyPair(data[CA], data[CA_KEY]),
            serving=KeyPair(data[SERVING], data[SERVING_KEY]),
            upcoming=upcoming if upcoming.certificate and upcoming.key else None,
            previous=data.get(PREVIOUS_CA, b""),
        )
        try:
            for each in (data[CA], data[SERVING], upcoming.certificate, stored.previous):
                if each:
                    x509.load_pem_x509_certificates(each)
        except ValueError as error:
            raise Damaged(f"a certificate in it cannot be read: {error}") from error
        return stored


class Step(Enum):
    """What to do with the certificates; the value is the text for plans and events."""

    CREATE = "create the authority and the certificate of the webhook port"
    RENEW = "renew the certificate of the webhook port"
    ANNOUNCE = "announce the next authority of the webhook port"
    PROMOTE = "sign with the next authority of the webhook port"
    RETIRE = "stop trusting the previous authority of the webhook port"


def due(
    stored: Stored | None, hosts: Iterable[str], bundles: Iterable[bytes], now: datetime
) -> Step | None:
    """Returns the next step; None if there is nothing to do now.

    `hosts` are the names at which API servers reach the port, `bundles` the authorities that they
    trust, one per webhook: a new authority signs only when all of them trust it.
    """
    if stored is None or _certificate(stored.signer.certificate).not_valid_after_utc <= now:
        return Step.CREATE
    upcoming, signer = stored.upcoming, _certificate(stored.signer.certificate)
    if upcoming is not None:
        known = all(upcoming.certificate in bundle for bundle in bundles)
        waited = now - _begin(_certificate(upcoming.certificate)) >= OVERLAP
        if known and waited:
            return Step.PROMOTE
    serving = _certificate(stored.serving.certificate)
    lacks = not set(hosts) <= _names(serving)
    if lacks or serving.not_valid_after_utc - now < SERVING_RESERVE:
        return Step.RENEW
    if upcoming is None and signer.not_valid_after_utc - now < AUTHORITY_RESERVE:
        return Step.ANNOUNCE
    if stored.previous and now - _begin(serving) >= OVERLAP:
        return Step.RETIRE
    return None


def performed(step: Step, stored: Stored | None, hosts: Iterable[str], now: datetime) -> Stored:
    """Returns what the Secret contains after the step. Raises Damaged."""
    if stored is None or step is Step.CREATE:
        signer = _authority(now)
        return Stored(signer=signer, serving=_served(signer, hosts, now))
    match step:
        case Step.ANNOUNCE:
            return replace(stored, upcoming=_authority(now))
        case Step.PROMOTE if stored.upcoming is not None:
            return Stored(
                signer=stored.upcoming,
                serving=_served(stored.upcoming, hosts, now),
                previous=stored.signer.certificate,
            )
        case Step.RETIRE:
            return replace(stored, previous=b"")
        case _:
            return replace(stored, serving=_served(stored.signer, hosts, now))


def expiry(stored: Stored) -> datetime:
    """Returns when the serving certificate expires."""
    return _certificate(stored.serving.certificate).not_valid_after_utc


def _authority(now: datetime) -> KeyPair:
    name = f"{NAME}-ca@{int(now.timestamp())}"
    return Authority(name, now=now, lifetime=AUTHORITY_LIFETIME).pair


def _served(signer: KeyPair, hosts: Iterable[str], now: datetime) -> KeyPair:
    subject = Subject(common_name=NAME, names=tuple(sorted({*LOCAL, *hosts})))
    try:
        return StoredAuthority(signer).issue(subject, now=now, lifetime=SERVING_LIFETIME)
    except ValueError as error:
        raise Damaged(str(error)) from error


def _certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def _begin(certificate: x509.Certificate) -> datetime:
    return certificate.not_valid_before_utc + SKEW


def _names(certificate: x509.Certificate) -> set[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(each) for each in found.get_values_for_type(x509.IPAddress)}
    return {*found.get_values_for_type(x509.DNSName), *addresses}

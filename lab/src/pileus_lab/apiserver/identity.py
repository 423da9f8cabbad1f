"""Authentication: client certificates, bearer tokens, service-account tokens (JWT, ES256)."""

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import cast

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from pileus_lab.apiserver.tree import Obj, branch, text, texts

ISSUER = "https://kubernetes.default.svc"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ACCOUNT_PREFIX = "system:serviceaccount:"
_HALF = 32


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, list[str]] = field(default_factory=dict[str, list[str]])

    def described(self) -> Obj:
        """Returns the form that reviews show."""
        info: Obj = {"username": self.name, "groups": list(self.groups)}
        if self.uid:
            info["uid"] = self.uid
        if self.extra:
            info["extra"] = dict(self.extra)
        return info


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """Returns the user with the group of authenticated users."""
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


def service_account(namespace: str, name: str, uid: str = "", extra: Obj | None = None) -> User:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)
    known = {k: [str(v)] for k, v in (extra or {}).items()}
    return User(f"{ACCOUNT_PREFIX}{namespace}:{name}", groups, uid, known)


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a service-account token."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...]
    token_id: str
    bound: Obj


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRequest:
    """What a token is requested for."""

    audiences: list[str]
    lifetime: timedelta
    bound: Obj
    """The object with which the token becomes invalid, by kind."""
    token_id: str


class TokenSigner:
    """Issues and verifies service-account tokens."""

    def __init__(self, private_key: bytes) -> None:
        key = serialization.load_pem_private_key(private_key, password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise TypeError("a P-256 key is needed to sign service-account tokens")
        self._key = key
        public = key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        self._key_id = _base64(sha256(public).digest())

    def issue(self, account: Obj, request: TokenRequest, now: datetime) -> str:
        """Returns a token for the ServiceAccount."""
        meta = branch(account, "metadata")
        issued = int(now.timestamp())
        identity: Obj = {"name": text(meta, "name"), "uid": text(meta, "uid")}
        payload: Obj = {
            "aud": request.audiences,
            "exp": issued + int(request.lifetime.total_seconds()),
            "iat": issued,
            "iss": ISSUER,
            "jti": request.token_id,
            "kubernetes.io": {
                "namespace": text(meta, "namespace"),
                "serviceaccount": identity,
                **request.bound,
            },
            "nbf": issued,
            "sub": f"{ACCOUNT_PREFIX}{text(meta, 'namespace')}:{text(meta, 'name')}",
        }
        header: Obj = {"alg": "ES256", "kid": self._key_id}
        signed = f"{_encoded(header)}.{_encoded(payload)}"
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(_HALF, "big") + s.to_bytes(_HALF, "big")
        return f"{signed}.{_base64(signature)}"

    def read(self, token: str, now: datetime) -> Claims | None:
        """Returns the claims of the token; None if it is not ours or not valid now."""
        signed, _, signature = token.rpartition(".")
        payload = self._payload(signed, signature)
        if payload is None or text(payload, "iss") != ISSUER:
            return None
        moment = now.timestamp()
        start, end = payload.get("nbf"), payload.get("exp")
        if not isinstance(start, int) or not isinstance(end, int) or not start - 1 <= moment < end:
            return None
        private = branch(payload, "kubernetes.io")
        return Claims(
            namespace=text(private, "namespace"),
            name=text(private, "serviceaccount", "name"),
            uid=text(private, "serviceaccount", "uid"),
            audiences=tuple(texts(payload, "aud")),
            token_id=text(payload, "jti"),
            bound={k: v for k, v in private.items() if k in {"pod", "secret", "node"}},
        )

    def _payload(self, signed: str, signature: str) -> Obj | None:
        try:
            raw = _bytes(signature)
            half = len(raw) // 2
            numbers = int.from_bytes(raw[:half], "big"), int.from_bytes(raw[half:], "big")
            encoded = encode_dss_signature(*numbers)
            self._key.public_key().verify(encoded, signed.encode(), ec.ECDSA(hashes.SHA256()))
            return msgspec.json.decode(_bytes(signed.partition(".")[2]), type=dict[str, object])
        except (ValueError, InvalidSignature, msgspec.DecodeError):
            return None


class StaticTokens:
    """Static tokens, compared in constant time."""

    def __init__(self, users: Mapping[str, User]) -> None:
        self._users = [(token.encode(), user) for token, user in users.items()]

    def find(self, token: str) -> User | None:
        given = token.encode(errors="surrogateescape")
        matches = [user for known, user in self._users if hmac.compare_digest(known, given)]
        return matches[0] if matches else None


def _encoded(value: Obj) -> str:
    return _base64(msgspec.json.encode(value))


def _base64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _bytes(written: str) -> bytes:
    return base64.urlsafe_b64decode(written + "=" * (-len(written) % 4))


def subject_of(certificate: Mapping[str, object]) -> User | None:
    """Returns the user of a verified client certificate, as `ssl.getpeercert()` shows it."""
    subject = cast("tuple[tuple[tuple[str, str], ...], ...]", certificate.get("subject", ()))
    pairs = [pair for part in subject for pair in part]
    name = next((value for key, value in pairs if key == "commonName"), "")
    groups = tuple(value for key, value in pairs if key == "organizationName")
    return authenticated(User(name, groups)) if name else None

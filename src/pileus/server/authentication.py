"""Authentication of requests: proxy headers, client certificate, token; otherwise anonymous."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import Awaitable, Callable, Sequence

from pileus.clock import Clock
from pileus.dataclass import dataclass
from pileus.server.client_certificates import (
    NO_TRUST,
    Authorities,
    ProxyTrust,
    Trust,
    user_of,
)
from pileus.server.reviews import Meter, ReviewCache, ReviewFailed, TokenReviews, persistently
from pileus.server.users import (
    ANONYMOUS,
    Headers,
    Unauthenticated,
    User,
    authenticated,
    is_text,
    user_in,
)
from pileus.telemetry.metrics import Metrics

THROUGH_PROXY = "X-Pileus-Authorization"
"""Like `Authorization`, for callers behind the proxy of the API server: it removes that header."""
_KNOWN_USERS = frozenset({
    "admin",
    "client",
    "kube_proxy",
    "kubelet",
    "system:serviceaccount:kube-system:default",
})


@dataclass(frozen=True, slots=True)
class Proof:
    """The credentials of a request."""

    headers: Headers
    chain: Sequence[bytes] = ()
    """The client's certificates (DER), its own first."""


@dataclass(frozen=True, slots=True)
class _Trusted:
    clients: Authorities | None = None
    proxies: Authorities | None = None
    rules: ProxyTrust | None = None


class Authenticator:
    """Authenticates requests. Invalid credentials are rejected unless others are valid."""

    def __init__(
        self, clock: Clock, metrics: Metrics, tokens: "CachedTokens | None" = None
    ) -> None:
        self._clock = clock
        self._metrics = metrics
        self._tokens = tokens
        self._trusted = _Trusted()
        self.trust(NO_TRUST)

    def trust(self, trust: Trust) -> None:
        """Trust these CAs from now on. Raises `BadCertificate`."""
        proxies = trust.proxies
        self._trusted = _Trusted(
            Authorities(trust.client_ca) if trust.client_ca else None,
            Authorities(proxies.ca) if proxies else None,
            proxies,
        )

    async def authenticate(self, proof: Proof) -> User:
        """Returns the user; anonymous without any credentials. Raises `Unauthenticated`."""
        loop = asyncio.get_running_loop()
        start, result = loop.time(), "error"
        try:
            user = await self._user(proof)
            result = "success"
        finally:
            self._metrics.authentications.labels(result).inc()
            self._metrics.authentication_duration.labels(result).observe(loop.time() - start)
        self._metrics.authenticated_requests.labels(_compressed(user.name)).inc()
        return user

    async def _user(self, proof: Proof) -> User:
        refusals: list[str] = []
        for way in (self._by_proxy, self._by_certificate, self._by_token):
            try:
                user = await way(proof)
            except Unauthenticated as error:
                refusals.append(str(error))
            else:
                if user is not None:
                    return authenticated(user)
        if refusals:
            raise Unauthenticated("; ".join(refusals))
        return ANONYMOUS

    async def _by_proxy(self, proof: Proof) -> User | None:
        trusted = self._trusted
        if not proof.chain or trusted.proxies is None or trusted.rules is None:
            return None
        name = trusted.proxies.verify(proof.chain, self._clock.now()).common_name
        allowed = trusted.rules.allowed_names
        if allowed and name not in allowed:
            raise Unauthenticated(f"proxy {name!r} is not among the allowed names")
        user = user_in(proof.headers, trusted.rules.headers)
        if user is not None and not _is_readable(user):
            raise Unauthenticated(f"the headers of proxy {name!r} are not UTF-8")
        return user

    async def _by_certificate(self, proof: Proof) -> User | None:
        clients = self._trusted.clients
        if not proof.chain or clients is None:
            return None
        now = self._clock.now()
        leaf = clients.verify(proof.chain, now)
        left = (leaf.expires - now).total_seconds()
        self._metrics.client_certificate_lifetime.observe(left)
        return user_of(leaf)

    async def _by_token(self, proof: Proof) -> User | None:
        given = proof.headers.get("Authorization", "") or proof.headers.get(THROUGH_PROXY, "")
        token = bearer_token(given)
        if not token or self._tokens is None:
            return None
        if not is_text(token):
            raise Unauthenticated("the bearer token is not UTF-8")
        return await self._tokens.user(token)


class CachedTokens:
    """Token reviews by the API server, with a cache."""

    def __init__(self, reviews: TokenReviews, metrics: Metrics, *, lifetime: float) -> None:
        self._reviews = reviews
        self._metrics = metrics
        self._meter = Meter(metrics.token_reviews, metrics.token_review_duration)
        self._cache: ReviewCache[bytes, User | None] = ReviewCache(lambda _: lifetime)
        self._key = secrets.token_bytes(32)

    async def user(self, token: str) -> User:
        """Returns the user of the token. Raises `Unauthenticated`, also without an answer."""
        # Tokens themselves are not kept in memory.
        key = hmac.digest(self._key, token.encode(), hashlib.sha256)
        status = "hit" if self._cache.known(key) else "miss"
        self._metrics.token_cache_requests.labels(status).inc()
        try:
            user = await self._cache.get(key, self._asking(token))
        except ReviewFailed as error:
            raise Unauthenticated(f"token review failed: {error}") from error
        if user is None:
            raise Unauthenticated("the token is invalid")
        return user

    def _asking(self, token: str) -> Callable[[], Awaitable[User | None]]:
        return lambda: persistently(lambda: self._reviews.review(token), self._meter)


def bearer_token(authorization: str) -> str:
    """Returns the token in an Authorization header; "" if it has another scheme."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.split(" ", 1)[0] if scheme.lower() == "bearer" else ""


def _is_readable(user: User) -> bool:
    extra = (text for key, values in user.extra for text in (key, *values))
    return all(map(is_text, (user.name, user.uid, *user.groups, *extra)))


def _compressed(username: str) -> str:
    """Returns the value of the label `username`, limited to the values of the Go framework."""
    if username in _KNOWN_USERS:
        return username
    return "email_id" if "@" in username else "other"

"""What one may see: a few always, everything for masters, the rest by asking the API server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pileus.server.cache import ReviewCache
from pileus.server.errors import BadOption
from pileus.server.identity import MASTERS, User
from pileus.server.options import AuthorizationOptions
from pileus.server.review import AccessReviews, Meter, Verdict, persistently
from pileus.telemetry.metrics import Metrics

LONGEST_REMEMBERED = 10_000
"""Characters of a question above which its answer is not kept: questions come from outside."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whether this user may do that with this path."""

    user: User
    verb: str
    path: str

    @property
    def forbidden(self) -> str:
        """How Kubernetes says no to it."""
        return f'forbidden: User "{self.user.name}" cannot {self.verb} path "{self.path}"'


def always_allowed(path: str, allowed: Sequence[str]) -> bool:
    """Whether a path is free for all: listed as it is, or by a prefix that ends in `*`."""
    path = path.removeprefix("/")
    return any(_fits(path, pattern.removeprefix("/")) for pattern in allowed)


def _fits(path: str, pattern: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


class Authorizer:
    def __init__(
        self, options: AuthorizationOptions, reviews: AccessReviews | None, metrics: Metrics
    ) -> None:
        """Errors: `BadOption`."""
        if misread := options.misread_paths():
            raise BadOption(
                f"--authorization-always-allow-paths: {misread[0]}: a * may stand at the end only"
            )
        self._allowed = options.always_allow_paths
        self._reviews = reviews
        self._metrics = metrics
        self._meter = Meter(metrics.access_reviews, metrics.access_review_duration)
        self._cache: ReviewCache[Question, Verdict] = ReviewCache(
            lambda verdict: options.authorized_ttl if verdict.allowed else options.unauthorized_ttl
        )

    async def decide(self, question: Question) -> Verdict:
        """Errors: `ReviewFailed` if the API server gave no answer; then nothing is allowed."""
        loop = asyncio.get_running_loop()
        start, result = loop.time(), "error"
        try:
            verdict = await self._verdict(question)
            result = "allowed" if verdict.allowed else "denied"
        finally:
            self._metrics.authorizations.labels(result).inc()
            self._metrics.authorization_duration.labels(result).observe(loop.time() - start)
        return verdict

    async def _verdict(self, question: Question) -> Verdict:
        if MASTERS in question.user.groups or always_allowed(question.path, self._allowed):
            return Verdict(allowed=True)
        if self._reviews is None:
            return Verdict(allowed=False)
        if len(repr(question)) > LONGEST_REMEMBERED:
            return await self._ask(self._reviews, question)
        reviews = self._reviews
        return await self._cache.get(question, lambda: self._ask(reviews, question))

    async def _ask(self, reviews: AccessReviews, question: Question) -> Verdict:
        user, verb, path = question.user, question.verb, question.path
        return await persistently(lambda: reviews.review(user, verb, path), self._meter)

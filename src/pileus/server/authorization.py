"""Authorization of requests: always allowed paths, `system:masters`, then access reviews."""

import asyncio
from collections.abc import Sequence

from pileus.dataclass import dataclass
from pileus.server.errors import BadOption
from pileus.server.reviews import AccessReviews, Meter, ReviewCache, Verdict, persistently
from pileus.server.settings import AuthorizationOptions
from pileus.server.users import MASTERS, User
from pileus.telemetry.metrics import Metrics

LONGEST_REMEMBERED = 10_000
"""Characters of a question above which its answer is not cached: clients choose its length."""


@dataclass(frozen=True, slots=True)
class Question:
    """Whether a user may use a verb on a path."""

    user: User
    verb: str
    path: str

    @property
    def forbidden(self) -> str:
        """The message of Kubernetes if it is denied."""
        return f'forbidden: User "{self.user.name}" cannot {self.verb} path "{self.path}"'


def always_allowed(path: str, allowed: Sequence[str]) -> bool:
    """Returns whether a path needs no authorization: listed, or matched by a prefix with `*`."""
    path = path.removeprefix("/")
    return any(_fits(path, pattern.removeprefix("/")) for pattern in allowed)


def _fits(path: str, pattern: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


class Authorizer:
    def __init__(
        self, options: AuthorizationOptions, reviews: AccessReviews | None, metrics: Metrics
    ) -> None:
        """Raises `BadOption` if `--authorization-always-allow-paths` is invalid."""
        if misread := options.misread_paths():
            raise BadOption(
                f"--authorization-always-allow-paths: {misread[0]}: a * is allowed at the end only"
            )
        self._allowed = options.always_allow_paths
        self._reviews = reviews
        self._metrics = metrics
        self._meter = Meter(metrics.access_reviews, metrics.access_review_duration)
        self._cache: ReviewCache[Question, Verdict] = ReviewCache(
            lambda verdict: options.authorized_ttl if verdict.allowed else options.unauthorized_ttl
        )

    async def decide(self, question: Question) -> Verdict:
        """Raises `ReviewFailed` if the API server gives no answer; the request is then denied."""
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

"""The API server as the one who knows tokens, rights and CAs: adapters on a `Client`.

The client must be one that may write at any time (no fence): stand-by replicas are asked too.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

from pileus.kube.client import Client, Selector
from pileus.kube.errors import (
    ApiError,
    InternalError,
    KubeError,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unreachable,
)
from pileus.kube.model.authentication_v1 import TOKEN_REVIEWS, TokenReview, TokenReviewSpec
from pileus.kube.model.authorization_v1 import (
    SUBJECT_ACCESS_REVIEWS,
    NonResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
)
from pileus.kube.model.core_v1 import CONFIG_MAPS
from pileus.server.identity import User
from pileus.server.review import Delegates, ReviewFailed, Verdict
from pileus.telemetry.log import Log

NAMESPACE = "kube-system"
NAME = "extension-apiserver-authentication"
PAUSE = 5.0
"""Seconds between two watches of the settings, so that an outage is no busy loop."""

PASSING = (
    InternalError,
    ServerTimeout,
    ServiceUnavailable,
    Timeout,
    TooManyRequests,
    Unreachable,
)

R = TypeVar("R")

log = Log(__name__)


def delegates_of(authentication: Client | None, authorization: Client | None) -> Delegates:
    """What can be asked with these clients; each may be missing."""
    return Delegates(
        tokens=ClusterTokenReviews(authentication) if authentication else None,
        access=ClusterAccessReviews(authorization) if authorization else None,
        settings=ClusterSettings(authentication) if authentication else None,
    )


class ClusterTokenReviews:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def review(self, token: str) -> User | None:
        body = TokenReview(spec=TokenReviewSpec(token=token))
        status = (await _answer(self._client.create(TOKEN_REVIEWS, body))).status
        if status is None or not status.authenticated or status.user is None:
            if status is not None and status.error:
                raise ReviewFailed(status.error, code=201)
            return None
        user = status.user
        return User(
            user.username,
            uid=user.uid or "",
            groups=user.groups or (),
            extra=tuple(sorted((user.extra or {}).items())),
        )


class ClusterAccessReviews:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def review(self, user: User, verb: str, path: str) -> Verdict:
        spec = SubjectAccessReviewSpec(
            user=user.name,
            uid=user.uid or None,
            groups=user.groups,
            extra=dict(user.extra) or None,
            non_resource_attributes=NonResourceAttributes(path=path, verb=verb),
        )
        body = SubjectAccessReview(spec=spec)
        status = (await _answer(self._client.create(SUBJECT_ACCESS_REVIEWS, body))).status
        if status is None:
            raise ReviewFailed("the API server's SubjectAccessReview has no status", code=201)
        return Verdict(bool(status.allowed) and not status.denied, status.reason or "")


class ClusterSettings:
    def __init__(self, client: Client) -> None:
        self._client = client

    async def read(self) -> Mapping[str, str]:
        found = await _answer(self._client.get(CONFIG_MAPS, NAME, namespace=NAMESPACE))
        return found.data or {}

    async def follow(self, use: Callable[[Mapping[str, str]], None]) -> None:
        while True:
            try:
                await self._watch(use)
            except KubeError as error:
                log.info("Watch of the authentication settings ended", v=2, err=error)
            await asyncio.sleep(PAUSE)

    async def _watch(self, use: Callable[[Mapping[str, str]], None]) -> None:
        only = Selector(fields=f"metadata.name={NAME}")
        watch = self._client.watch(CONFIG_MAPS, namespace=NAMESPACE, selector=only)
        async with aclosing(watch) as events:
            async for event in events:
                # A deleted one changes nothing: whom we trusted, we trust until told otherwise.
                if event.type in {"ADDED", "MODIFIED"}:
                    use(event.object.data or {})


async def _answer(asked: Awaitable[R]) -> R:
    try:
        return await asked
    except KubeError as error:
        code = error.status if isinstance(error, ApiError) else 0
        passing = isinstance(error, PASSING)
        raise ReviewFailed(str(error), code=code, passing=passing) from error

"""An identity per controller (`--use-service-account-credentials`): tokens of service accounts."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from pileus.clock import Clock
from pileus.kube.access import Access, Credentials
from pileus.kube.config.credentials import Issued, Renewing, bearer
from pileus.kube.errors import AlreadyExists, CredentialsError, Forbidden, KubeError, NotFound
from pileus.kube.model.authentication_v1 import SERVICE_ACCOUNT_TOKENS
from pileus.kube.model.core_v1 import SERVICE_ACCOUNTS
from pileus.kube.model.meta import Resource, T
from pileus.telemetry.log import Log

NAMESPACE = "kube-system"
LIFE = timedelta(hours=1)
SHORTEST_LIFE = timedelta(minutes=10)
LEFT_AT_RENEWAL = 0.2
TRIES = 4
FIRST_PAUSE = 0.5

_log = Log(__name__)


class Api(Protocol):
    """What is needed of `pileus.kube.client.Client`."""

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T: ...

    async def create(
        self,
        resource: Resource[T],
        body: T | Mapping[str, object],
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> T: ...


class MissingAccount(KubeError):
    """The service account does not exist, and the manager may not create it."""


def service_account_access(access: Access, api: Api, identity: str, clock: Clock) -> Access:
    """Return the access of service account kube-system/`identity` to the same server.

    `api` uses `access`, whose identity requests the tokens. Server, trust and proxy stay;
    client certificate, token and impersonation do not.
    """
    tokens = ServiceAccountCredentials(access.anonymous, api, identity, clock)
    refused = (
        f"the API server does not accept the token of service account kube-system/{identity}: "
        f"check that it exists: kubectl --namespace=kube-system get serviceaccount {identity}"
    )
    return replace(rebind(access, tokens), refused=refused)


def rebind(access: Access, credentials: Credentials) -> Access:
    """Return the access to the same server with another identity."""
    return replace(access, credentials=credentials)


class ServiceAccountCredentials:
    """Tokens of one hour, renewed when a fifth of it is left.

    A missing account is created if the manager has the right to, which `pileus manifests` grants. A
    renewal that fails is tried again while the last token is still valid.
    """

    def __init__(
        self, anonymous: Credentials | None, api: Api, identity: str, clock: Clock
    ) -> None:
        self._anonymous = anonymous
        self._api = api
        self._identity = identity
        self._clock = clock
        self._token = Renewing(self._fetch, clock)

    async def headers(self) -> Mapping[str, str]:
        return {"Authorization": await self._token.value()}

    def tls(self) -> ssl.SSLContext | None:
        return self._anonymous.tls() if self._anonymous else None

    def rejected(self) -> None:
        self._token.reject()

    async def _fetch(self) -> Issued[str]:
        pause = FIRST_PAUSE
        for _ in range(TRIES - 1):
            try:
                return await self._request()
            except KubeError as e:
                _log.info("No token yet, retrying", v=3, account=self._identity, err=e)
            await asyncio.sleep(pause)
            pause *= 2
        try:
            return await self._request()
        except KubeError as e:
            raise CredentialsError(self._failure(e)) from e

    async def _request(self) -> Issued[str]:
        try:
            return await self._issue()
        except NotFound:
            await self._create_account()
        return await self._issue()

    async def _issue(self) -> Issued[str]:
        at = self._clock.now()
        made = await self._api.create(
            SERVICE_ACCOUNT_TOKENS,
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"expirationSeconds": int(LIFE.total_seconds())},
            },
            namespace=NAMESPACE,
            name=self._identity,
            subresource="token",
        )
        status = made.status
        if status is None or status.expiration_timestamp is None:
            raise CredentialsError("the API server answered without a token")
        header = bearer(status.token, "API server's answer")
        expires = status.expiration_timestamp
        return Issued(header, at, renewal(at, expires), expires)

    async def _create_account(self) -> None:
        """Create the missing account. Raises `MissingAccount` if the manager has no right to."""
        body = {"metadata": {"name": self._identity, "namespace": NAMESPACE}}
        try:
            await self._api.create(SERVICE_ACCOUNTS, body, namespace=NAMESPACE)
        except AlreadyExists:
            return
        except Forbidden as error:
            raise MissingAccount("the service account does not exist") from error
        _log.info("Created service account", account=self._identity, namespace=NAMESPACE)

    def _failure(self, error: KubeError) -> str:
        message = f"no token for service account {NAMESPACE}/{self._identity}: {error}"
        if isinstance(error, MissingAccount):
            create = f"kubectl --namespace={NAMESPACE} create serviceaccount {self._identity}"
            return f"{message}. Fix: {create} (if it lacks rights as well: pileus doctor)"
        if isinstance(error, Forbidden):
            return f"{message}. Fix: pileus doctor (it prints the command that restores the right)"
        return message


def renewal(at: datetime, expires: datetime) -> datetime:
    """Return when to look for the next token: with a fifth of its life left.

    Lives below ten minutes count as ten minutes; but each token serves half of its life, lest
    one be requested for every request.
    """
    life = expires - at
    early = expires - LEFT_AT_RENEWAL * max(life, SHORTEST_LIFE)
    return max(early, at + life / 2)

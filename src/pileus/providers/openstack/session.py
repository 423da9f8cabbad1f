"""The token of this process: requested, renewed, and replaced when its credentials change.

Concurrent requests share one renewal. Credentials are read again when their files change; new ones
are used once Keystone accepts them for the same project, until then the old ones stay in use.
"""

import asyncio
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from functools import partial

from pileus.cloud.errors import CloudError, Misconfigured, NotFound, Rejected, Unauthorized
from pileus.cloud.http import Answer
from pileus.cloud.interface import ProviderConfig
from pileus.cloud.threads import in_thread
from pileus.providers.openstack.api import Service
from pileus.providers.openstack.config import Auth
from pileus.providers.openstack.connections import Connections
from pileus.providers.openstack.errors import NotOfService, TokenRefused
from pileus.providers.openstack.identity import (
    Token,
    identity_of,
    is_used_as_is,
    keystone_url,
    token_of,
    token_request,
)
from pileus.providers.openstack.load import Loaded, load_again
from pileus.telemetry.log import Log

log = Log(__name__)

FILE_CHECK = 10.0
"""Seconds between two checks of the files. They are made before a request, not in the idle."""
REFUSED_FOR = 30.0
"""Seconds for which refused credentials are not tried again: Keystone may lock the user."""


class Session:
    """The token for all requests of one process."""

    def __init__(
        self,
        given: ProviderConfig,
        loaded: Loaded,
        connections: Connections,
        now: Callable[[], float] | None = None,
    ) -> None:
        """`now` is the time of the event loop, unless a test passes another one."""
        self._now = now or asyncio.get_running_loop().time
        self._given = given
        self._loaded = loaded
        self._connections = connections
        self._token: Token | None = None
        self._project = ""
        self._lock = asyncio.Lock()
        self._attempts = 0
        self._failure: CloudError | None = None
        self._failed_until = 0.0
        self._check_at = self._now() + FILE_CHECK
        self._reported = ""

    @property
    def auth(self) -> Auth:
        return self._loaded.auth

    async def token(self) -> Token:
        """Returns a token that is valid for some time. Raises `CloudError` if there is none."""
        await self._check_files()
        token, now = self._token, self._now()
        if token is None or now >= token.expires_at:
            return await self.renewed(token)
        if now < token.renew_at or now < self._failed_until:
            return token
        try:
            return await self.renewed(token)
        except CloudError as error:
            log.warning("Token cannot be renewed yet", error=str(error))
            return token

    async def renewed(self, old: Token | None) -> Token:
        """Returns a token other than `old`. Raises `CloudError`, the same to all who wait."""
        attempt = self._attempts
        async with self._lock:
            if self._token is not None and self._token is not old:
                return self._token
            failure = self._failure
            if failure and (self._attempts != attempt or self._now() < self._failed_until):
                raise copy(failure)
            return await self._attempt()

    def region(self, token: Token) -> str:
        """Returns the region in use. Raises `Misconfigured` if it is wrong or not clear."""
        return token.catalogue.region(self._loaded.auth.region)

    def services(self, token: Token) -> frozenset[Service]:
        """Returns the services that the catalogue has in the region."""
        catalogue, region = token.catalogue, self.region(token)
        return frozenset(each for each in Service if catalogue.has(each, self._interface, region))

    def url(self, token: Token, service: Service) -> str:
        """Returns the URL of a service. Raises `Unsupported` if the cloud does not have it."""
        return token.catalogue.url(service, self._interface, self._loaded.auth.region)

    @property
    def _interface(self) -> str:
        return self._loaded.auth.os_endpoint_type.removesuffix("URL") or "public"

    async def _attempt(self) -> Token:
        try:
            token = await self._authenticated()
        except CloudError as error:
            self._attempts += 1
            self._failure = error
            self._failed_until = self._now() + (REFUSED_FOR if isinstance(error, Rejected) else 0)
            raise
        self._attempts += 1
        self._use(token)
        return token

    async def _authenticated(self) -> Token:
        try:
            return await self._request(self._loaded)
        except Unauthorized:
            changed = await self._changed()
            if changed is None:
                raise
            return await self._switched(changed)

    def _use(self, token: Token) -> None:
        self._token, self._project = token, token.project_id
        self._failure, self._failed_until = None, 0.0

    async def _request(self, loaded: Loaded) -> Token:
        auth = loaded.auth
        try:
            answer = await self._answer(loaded, auth)
        except TokenRefused as error:
            raise Unauthorized(
                f"Keystone refuses {identity_of(auth)}: {error}. "
                "Fix: correct the credentials in [Global] of cloud.conf"
            ) from error
        except (NotFound, NotOfService) as error:
            raise Misconfigured(
                f'[Global] auth-url: "{auth.auth_url}" is not Keystone v3: {error}'
            ) from error
        known = auth.token if is_used_as_is(auth) else ""
        token = token_of(answer, self._now(), known)
        if self._project and token.project_id != self._project:
            raise Misconfigured(
                f"the credentials are for project {token.project_id}, but this manager was "
                f"started for project {self._project}. Fix: restart it to change the project"
            )
        return token

    async def _answer(self, loaded: Loaded, auth: Auth) -> Answer:
        async with self._connections.client(keystone_url(auth.auth_url), loaded) as http:
            if not is_used_as_is(auth):
                return await http.request("POST", "/auth/tokens", json=token_request(auth))
            headers = {"X-Auth-Token": auth.token, "X-Subject-Token": auth.token}
            return await http.request("GET", "/auth/tokens", headers=headers)

    async def _check_files(self) -> None:
        if self._now() < self._check_at:
            return
        self._check_at = self._now() + FILE_CHECK
        changed = await self._changed()
        if changed is None:
            return
        async with self._lock:
            try:
                self._use(await self._switched(changed))
            except CloudError as error:
                self._check_at = self._now() + REFUSED_FOR
                self._report(str(error))

    async def _changed(self) -> Loaded | None:
        """Returns the configuration if its files have changed and can be read."""
        loaded = self._loaded
        if not await in_thread(loaded.has_changed):
            self._reported = ""
            return None
        try:
            return await in_thread(partial(load_again, self._given))
        except CloudError as error:
            self._report(str(error))
            return None

    async def _switched(self, changed: Loaded) -> Token:
        """Returns a token with the new credentials, and uses them from now on."""
        if changed.auth.region != self._loaded.auth.region:
            raise Misconfigured(
                f'[Global] region: changed to "{changed.auth.region}". Fix: restart the manager'
            )
        token = await self._request(changed)
        for warning in changed.warnings:
            log.warning("Configuration of OpenStack", warning=warning)
        if replace(changed.config, auth=self._loaded.auth) != self._loaded.config:
            log.warning("Settings outside of [Global] changed, they are used after a restart")
        log.info("Using changed credentials", identity=identity_of(changed.auth))
        self._loaded = changed
        self._connections.use(changed)
        self._reported = ""
        return token

    def _report(self, problem: str) -> None:
        if problem != self._reported:
            log.error("Changed credentials cannot be used, keeping the old ones", problem=problem)
        self._reported = problem

"""With `--use-service-account-credentials` controllers use tokens of accounts of their own."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.fix import fix_in
from pileus.kube.access import Access
from pileus.kube.config.credentials import ConfiguredCredentials, Fixed
from pileus.kube.config.service_account import renewal, service_account_access
from pileus.kube.errors import (
    AlreadyExists,
    ApiError,
    CredentialsError,
    Forbidden,
    InternalError,
    NotFound,
    Status,
)
from pileus.kube.model.authentication_v1 import TokenRequest, TokenRequestStatus
from pileus.kube.model.meta import Resource, T
from tests.unit.kube.config.stage import NOON, HandClock, Stage, authorization

MAIN = Access("https://a", ConfiguredCredentials(Fixed("Bearer main"), None))


def refused(kind: type[ApiError]) -> ApiError:
    return kind("POST /x", 500, Status(message="no"))


@dataclass
class FakeApi:
    """An API server that knows service accounts and their tokens."""

    clock: HandClock
    existing: set[str] = field(default_factory=set[str])
    calls: list[str] = field(default_factory=list[str])
    failures: dict[str, list[ApiError]] = field(default_factory=dict[str, list[ApiError]])
    life: timedelta = timedelta(hours=1)
    tokens: int = 0

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T:
        assert namespace == ("kube-system" if resource.namespaced else "")
        self._note(f"get {resource.plural}/{name}")
        if f"{resource.plural}/{name}" not in self.existing:
            raise refused(NotFound)
        return resource.type()

    async def create(
        self,
        resource: Resource[T],
        body: T | Mapping[str, object],
        *,
        namespace: str = "",
        name: str = "",
        subresource: str = "",
    ) -> T:
        await asyncio.sleep(0.01)
        if subresource == "token":
            self._note(f"token {namespace}/{name}")
            return cast("T", self._token(cast("Mapping[str, object]", body), name))
        metadata = cast("Mapping[str, Mapping[str, str]]", body)["metadata"]
        self._note(f"create {resource.plural}/{metadata['name']}")
        if f"{resource.plural}/{metadata['name']}" in self.existing:
            raise refused(AlreadyExists)
        self.existing.add(f"{resource.plural}/{metadata['name']}")
        return resource.type()

    def _token(self, body: Mapping[str, object], name: str) -> TokenRequest:
        assert body["apiVersion"] == "authentication.k8s.io/v1"
        assert body["spec"] == {"expirationSeconds": 3600}
        if f"serviceaccounts/{name}" not in self.existing:
            raise refused(NotFound)
        self.tokens += 1
        expires = self.clock.now() + self.life
        status = TokenRequestStatus(token=f"{name}-{self.tokens}", expiration_timestamp=expires)
        return TokenRequest(status=status)

    def _note(self, call: str) -> None:
        self.calls.append(call)
        if failures := self.failures.get(call):
            raise failures.pop(0)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def api(clock: HandClock) -> FakeApi:
    return FakeApi(clock)


@pytest.fixture
def access(api: FakeApi, clock: HandClock) -> Access:
    return service_account_access(MAIN, api, "node-controller", clock)


async def test_an_account_that_exists_costs_one_request(access: Access, api: FakeApi) -> None:
    api.existing.add("serviceaccounts/node-controller")

    assert await authorization(access) == "Bearer node-controller-1"
    assert api.calls == ["token kube-system/node-controller"]


async def test_a_missing_account_is_created_where_the_manager_may(
    access: Access, api: FakeApi
) -> None:
    assert await authorization(access) == "Bearer node-controller-1"
    assert api.existing == {"serviceaccounts/node-controller"}


async def test_a_missing_account_that_the_manager_may_not_create_names_the_command(
    access: Access, api: FakeApi
) -> None:
    api.failures["create serviceaccounts/node-controller"] = [refused(Forbidden)] * 4

    with pytest.raises(CredentialsError) as failed:
        await authorization(access)

    message = str(failed.value)
    assert (
        "service account kube-system/node-controller: the service account does not exist" in message
    )
    assert fix_in(message) == (
        "kubectl --namespace=kube-system create serviceaccount node-controller"
    )


async def test_a_missing_right_to_create_tokens_names_the_doctor(
    access: Access, api: FakeApi
) -> None:
    api.failures["token kube-system/node-controller"] = [refused(Forbidden)] * 4

    with pytest.raises(CredentialsError) as failed:
        await authorization(access)

    assert fix_in(str(failed.value)) == "pileus doctor"


async def test_an_account_that_another_process_created_meanwhile_is_used(
    access: Access, api: FakeApi
) -> None:
    api.existing.add("serviceaccounts/node-controller")
    api.failures["token kube-system/node-controller"] = [refused(NotFound)]

    assert await authorization(access) == "Bearer node-controller-1"


async def test_a_token_is_renewed_when_a_fifth_of_its_life_is_left(
    access: Access, clock: HandClock
) -> None:
    await authorization(access)

    clock.forward(0.8 * 3600 - 1)
    before = await authorization(access)
    clock.forward(1)

    assert before == "Bearer node-controller-1"
    assert await authorization(access) == "Bearer node-controller-2"


async def test_three_failures_are_survived_after_growing_pauses(
    access: Access, api: FakeApi
) -> None:
    api.failures["token kube-system/node-controller"] = [refused(InternalError)] * 3
    start = asyncio.get_running_loop().time()

    assert await authorization(access) == "Bearer node-controller-1"
    assert asyncio.get_running_loop().time() - start == pytest.approx(3.5, abs=0.1)


async def test_the_fourth_failure_is_told_with_the_account(access: Access, api: FakeApi) -> None:
    api.failures["token kube-system/node-controller"] = [refused(Forbidden)] * 4

    with pytest.raises(CredentialsError, match="service account kube-system/node-controller: "):
        await authorization(access)

    assert api.calls.count("token kube-system/node-controller") == 4


async def test_a_rejected_token_is_replaced_and_a_deleted_account_made_again(
    access: Access, api: FakeApi, clock: HandClock
) -> None:
    await authorization(access)
    api.existing.remove("serviceaccounts/node-controller")
    clock.forward(60)

    access.credentials.rejected()

    assert await authorization(access) == "Bearer node-controller-2"
    assert "serviceaccounts/node-controller" in api.existing


async def test_fifty_requests_at_once_need_one_token(access: Access, api: FakeApi) -> None:
    async with asyncio.TaskGroup() as tasks:
        for _ in range(50):
            tasks.create_task(authorization(access))

    assert api.tokens == 1


async def test_server_and_trust_stay_but_not_the_main_identity(
    stage: Stage, api: FakeApi, clock: HandClock
) -> None:
    cluster = {"server": "https://10.0.0.1", "proxy-url": "http://p:1", "tls-server-name": "n"}
    stage.write(cluster, {"token": "main", "as": "joe"})
    main = stage.load()

    access = service_account_access(main, api, "route-controller", clock)

    assert (access.server, access.proxy, access.server_name) == (main.server, "http://p:1", "n")
    assert dict(await access.credentials.headers()) == {
        "Authorization": "Bearer route-controller-1"
    }
    assert access.credentials.tls() is not None
    assert access.credentials.tls() is not main.credentials.tls()


LIVES = st.timedeltas(timedelta(seconds=1), timedelta(days=1))


@given(LIVES)
def test_every_token_is_renewed_before_its_end_but_serves_half_its_life(life: timedelta) -> None:
    expires = NOON + life

    assert NOON + life / 2 <= renewal(NOON, expires) < expires


@pytest.mark.parametrize(
    ("life", "after"),
    [
        (timedelta(hours=1), timedelta(minutes=48)),
        (timedelta(minutes=10), timedelta(minutes=8)),
        (timedelta(minutes=5), timedelta(minutes=3)),
        (timedelta(minutes=2), timedelta(minutes=1)),
    ],
)
def test_renewal_comes_as_in_the_go_framework(life: timedelta, after: timedelta) -> None:
    assert _seconds(renewal(NOON, NOON + life)) == pytest.approx(after.total_seconds())


def _seconds(moment: datetime) -> float:
    return (moment - NOON).total_seconds()


def test_a_token_is_not_shown() -> None:
    assert "hush" not in repr(TokenRequest(status=TokenRequestStatus(token="hush")))

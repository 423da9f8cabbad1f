"""Failures of a ported load balancer: events, retries and calls as in the Go framework."""

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from pileus.classic.errors import DiskNotFound, InstanceNotFound, RetryError, Unimplemented
from pileus.cloud.errors import NotFound
from pileus.kube.model.core_v1 import LoadBalancerIngress, LoadBalancerStatus
from tests.unit.classic.world import Account, World

SYNC = "Error syncing load balancer: "
ENSURE = f"{SYNC}failed to ensure load balancer: "
UPDATE = (
    "Error updating load balancer with new hosts [n1 n2] "
    "[node names limited, total number of nodes: 2], error: "
)
NOT_FOUND = InstanceNotFound("instance not found")


class TimedAccount(Account):
    """Also notes when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[tuple[str, float]] = []

    def called(self, method: str) -> None:
        self.times.append((method, asyncio.get_running_loop().time()))
        super().called(method)

    def gaps(self, method: str) -> list[float]:
        times = [time for name, time in self.times if name == method]
        return [later - sooner for sooner, later in pairwise(times)]


@asynccontextmanager
async def served(**settings: Any):
    """A manager with one node and one Service that has its load balancer."""
    world = World()
    world.account = account = TimedAccount()
    async with world.managed(**settings):
        await world.add_node("n1")
        await world.add()
        await asyncio.sleep(10)
        world.events.told.clear()
        account.calls.clear()
        account.times.clear()
        yield world, account


@pytest.mark.parametrize(
    "error", [NOT_FOUND, DiskNotFound(), NotFound("404"), Unimplemented()], ids=str
)
async def test_whatever_ensure_raises_is_a_failure_with_an_event_at_once_and_go_s_back_off(
    error: Exception,
):
    world = World()
    world.account = account = TimedAccount()
    account.errors["ensure"] = error
    async with world.managed():
        await world.add_node("n1")
        await world.add()
        await asyncio.sleep(2)
        assert world.events.messages("SyncLoadBalancerFailed") == [f"{ENSURE}{error}"]
        await asyncio.sleep(200)

    first, second, third, *_ = account.gaps("ensure")
    assert 5 <= first < 6
    assert 10 <= second < 12
    assert 20 <= third < 23


async def test_another_text_of_a_failure_is_another_event_and_the_same_one_is_not_repeated():
    world = World()
    world.account = account = TimedAccount()
    texts = [f"quota of {number}" for number in (1, 1, 1, 2, 2, 3)]
    async with world.managed():
        await world.add_node("n1")
        await world.add()
        for text in texts:
            account.errors["ensure"] = ValueError(text)
            await asyncio.sleep(310)
        account.errors["ensure"] = RetryError("still building", 20)
        await asyncio.sleep(310)
        account.errors["ensure"] = RetryError("still booting", 20)
        await asyncio.sleep(100)

    expected = ("quota of 1", "quota of 2", "quota of 3", "still building", "still booting")
    told = world.events.messages("SyncLoadBalancerFailed")
    assert told == [f"{ENSURE}{text}" for text in expected]


async def test_an_instance_that_is_not_found_fails_a_deletion_at_once_in_go_s_words():
    async with served() as (world, account):
        account.errors["delete"] = NOT_FOUND
        await world.delete()
        await asyncio.sleep(2)
        expected = f"{SYNC}failed to delete load balancer: instance not found"
        assert world.events.messages("SyncLoadBalancerFailed") == [expected]
        await asyncio.sleep(40)
        first, second, *_ = account.gaps("delete")
        assert 5 <= first < 6
        assert 10 <= second < 12

        del account.errors["delete"]
        await asyncio.sleep(300)
        assert await world.services() == {}


async def test_an_instance_that_is_not_found_before_a_deletion_is_reported_in_go_s_words():
    async with served() as (world, account):
        account.errors["get"] = NOT_FOUND
        await world.delete()
        await asyncio.sleep(2)

        before = "failed to check if load balancer exists before cleanup"
        expected = f"{SYNC}{before}: instance not found"
        assert world.events.messages("SyncLoadBalancerFailed") == [expected]
        assert account.calls == ["get"]


@pytest.mark.parametrize(
    "error",
    [NOT_FOUND, RetryError("quota refills", 20), ValueError("no")],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_update_raises_is_an_event_and_the_load_balancer_is_ensured_at_once(
    error: Exception,
):
    async with served() as (world, account):
        account.errors["update"] = error
        await world.add_node("n2")
        await asyncio.sleep(4)

        assert account.calls == ["update", "get", "ensure"]
        assert world.events.messages("UpdateLoadBalancerFailed") == [f"{UPDATE}{error}"]
        reasons = [reason for reason in world.events.reasons("web") if "Failed" not in reason]
        assert reasons == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


async def test_an_update_whose_failure_cannot_be_looked_into_is_reported_with_its_own_error():
    async with served() as (world, account):
        account.errors |= {"update": ValueError("no"), "get": OSError("down")}
        await world.add_node("n2")
        await asyncio.sleep(4)

        assert world.events.messages("UpdateLoadBalancerFailed") == [f"{UPDATE}no"]


async def test_a_failed_update_of_a_load_balancer_that_is_gone_is_not_announced_as_updated():
    async with served() as (world, account):
        account.errors["update"] = NOT_FOUND
        account.built.clear()
        await world.add_node("n2")
        await asyncio.sleep(10)

        assert account.calls == ["update", "get", "ensure"]
        assert world.events.reasons("web") == ["EnsuringLoadBalancer", "EnsuredLoadBalancer"]


async def test_no_status_is_reported_at_once_in_go_s_words():
    world = World()
    world.account.status = None  # type: ignore[assignment]
    async with world.managed():
        await world.add_node("n1")
        await world.add()
        await asyncio.sleep(2)

        (told,) = world.events.messages("SyncLoadBalancerFailed")
        assert told == f"{SYNC}service status returned by EnsureLoadBalancer is nil"


async def test_a_service_whose_ensure_fails_gets_its_nodes_when_they_change():
    async with served() as (world, account):
        account.errors["ensure"] = ValueError("no quota")
        await world.change(spec={"ports": [{"port": 81}]})
        await asyncio.sleep(100)
        assert set(account.calls) == {"ensure"}
        account.calls.clear()
        await world.add_node("n2")
        await asyncio.sleep(4)

        assert account.calls[0] == "update"
        assert account.nodes == ["n1", "n2"]
        assert world.events.messages("UpdatedLoadBalancer")


async def test_a_service_that_never_had_a_load_balancer_is_tried_with_its_new_nodes_at_once():
    world = World()
    world.account.errors["ensure"] = ValueError("no quota")
    async with world.managed():
        await world.add_node("n1")
        await world.add()
        await asyncio.sleep(100)
        world.account.calls.clear()
        world.account.errors.clear()
        await world.add_node("n2")
        await asyncio.sleep(4)

        assert world.account.calls == ["ensure"]
        assert world.account.nodes == ["n1", "n2"]
        assert await world.ingress()


async def test_a_failing_service_whose_update_fails_too_is_not_tried_all_the_time():
    async with served() as (world, account):
        account.errors |= {"ensure": ValueError("no quota"), "update": ValueError("no members")}
        await world.change(spec={"ports": [{"port": 81}]})
        await asyncio.sleep(100)
        account.calls.clear()
        await world.add_node("n2")
        await asyncio.sleep(4)

        assert account.calls == ["update", "get", "ensure"]
        await asyncio.sleep(300)
        assert account.calls.count("update") == 1
        assert 3 <= account.calls.count("ensure") <= 8


async def test_addresses_that_swap_places_are_published_in_their_new_order():
    first = LoadBalancerIngress(ip="203.0.113.7", ip_mode="VIP")
    second = LoadBalancerIngress(ip="203.0.113.8", ip_mode="VIP")
    world = World()
    world.account.status = LoadBalancerStatus(ingress=(first, second))
    async with world.managed():
        await world.add_node("n1")
        await world.add()
        await asyncio.sleep(10)
        world.account.status = LoadBalancerStatus(ingress=(second, first))
        await world.change(spec={"ports": [{"port": 81}]})
        await asyncio.sleep(10)

        assert [each["ip"] for each in await world.ingress()] == ["203.0.113.8", "203.0.113.7"]
        world.wire.writes.clear()
        await asyncio.sleep(900)
        assert world.wire.written() == []

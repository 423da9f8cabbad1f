import asyncio
from collections.abc import Mapping, Sequence

import pytest

from pileus.cloud.abilities import Limits
from pileus.cloud.errors import (
    CloudError,
    Conflict,
    NotFound,
    QuotaExceeded,
    Rejected,
    Throttled,
    Unauthorized,
    Unavailable,
)
from pileus.cloud.middleware.budget import Budget
from pileus.cloud.middleware.faults import Delay, Rule
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.cloud.model import Route
from pileus.cloud.permission import check_permission, pass_on
from pileus.fence import Fenced, Open
from tests.unit.cloud.fakes import (
    ROUTE,
    Change,
    FakeBalancers,
    FakeInstances,
    FakeRoutes,
    Seen,
    cloud_of,
    equipped,
    node,
)

FIND = {"provider": "fake", "capability": "instances", "method": "find"}


async def test_a_thousand_look_ups_cost_the_budget_and_the_measures_two_calls(metrics):
    equipment = Equipment(budget=Budget(Limits(per_second=1, burst=2), metrics))
    instances = FakeInstances()

    async with stacked(
        cloud_of(instances), metrics=metrics, fence=Open(), equipment=equipment
    ) as cloud:
        assert cloud.instances
        async with asyncio.TaskGroup() as group:
            for i in range(1000):
                group.create_task(cloud.instances.find([node(f"n{i}")], fresh=True))

    read = metrics.registry.value
    assert read("pileus_cloud_calls_total", {**FIND, "result": "success"}) == 2
    assert read("pileus_cloud_call_items_total", FIND) == 1000
    assert asyncio.get_running_loop().time() < 1


class ClosesLater:
    def check(self) -> None:
        if asyncio.get_running_loop().time() > 1:
            raise Fenced("the lease is too old")


async def test_a_write_that_waited_for_the_budget_asks_the_fence_when_it_leaves(metrics):
    balancers = FakeBalancers(Seen)
    equipment = Equipment(budget=Budget(Limits(per_second=0.1, burst=1), metrics))

    async with stacked(
        cloud_of(balancers=balancers), metrics=metrics, fence=ClosesLater(), equipment=equipment
    ) as cloud:
        assert cloud.balancers
        await cloud.balancers.apply(Change(), Seen())
        with pytest.raises(Fenced):
            await cloud.balancers.apply(Change(), Seen())

    assert len(balancers.applied) == 1


async def test_a_provider_that_hangs_or_errs_is_counted_as_unavailable(metrics):
    hang = Rule(where="*", fault=Delay(1e6), times=1)

    async with stacked(
        cloud_of(FakeInstances(lambda nodes: vars(object)["no_such_field"])),
        metrics=metrics,
        fence=Open(),
        equipment=Equipment(faults=(hang,)),
    ) as cloud:
        assert cloud.instances
        for text in ("did not answer instances.find in 60 s", "KeyError"):
            with pytest.raises(Unavailable, match=text):
                await cloud.instances.find([node("a")], fresh=True)

    read = metrics.registry.value
    assert read("pileus_cloud_calls_total", {**FIND, "result": "Unavailable"}) == 2


class SlowRoutes(FakeRoutes):
    """Makes a request for each route, as most clouds' are made."""

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        for route in routes:
            check_permission()
            self.written.append(route)
            await asyncio.sleep(2)
        return {}


async def test_a_call_of_many_requests_ends_when_the_lease_is_lost_in_the_midst_of_it(metrics):
    routes = SlowRoutes()

    async with stacked(
        cloud_of(routes=routes), metrics=metrics, fence=ClosesLater(), equipment=Equipment()
    ) as cloud:
        assert cloud.routes
        with pytest.raises(Unavailable, match="request not sent: the lease is too old"):
            await cloud.routes.create("blue", [ROUTE, ROUTE])

    assert len(routes.written) == 1


class PagedRoutes(FakeRoutes):
    """Makes a request for each of three pages, a second each; changes are throttled."""

    pages = 0

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        for _ in range(3):
            check_permission()
            self.pages += 1
            await asyncio.sleep(1)
        return ()

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        await asyncio.sleep(1.5)
        raise Throttled("slow down", retry_after=10)


async def test_a_call_of_many_requests_ends_when_another_one_is_told_to_wait(metrics):
    routes = PagedRoutes()

    async with stacked(
        cloud_of(routes=routes), metrics=metrics, fence=Open(), equipment=Equipment()
    ) as cloud:
        assert cloud.routes
        results = await asyncio.gather(
            cloud.routes.list_routes("blue"),
            cloud.routes.create("blue", [ROUTE]),
            return_exceptions=True,
        )

        assert [type(one) for one in results] == [Throttled, Throttled]
        assert routes.pages == 2
        assert asyncio.get_running_loop().time() == 2
        assert await cloud.routes.list_routes("blue") == ()
        assert asyncio.get_running_loop().time() == 11.5 + 3


class RoutesAtOnce(FakeRoutes):
    """Two requests at once: one is told to wait, and the other wants to make a second one."""

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        pass_on(Throttled("slow down", retry_after=10))
        await asyncio.to_thread(check_permission)
        return ()


@pytest.mark.real_time
async def test_what_one_request_is_told_holds_for_others_of_its_call_even_in_threads(metrics):
    async with stacked(
        cloud_of(routes=RoutesAtOnce()), metrics=metrics, fence=Open(), equipment=Equipment()
    ) as cloud:
        assert cloud.routes
        with pytest.raises(Throttled, match="asked for a pause, which lasts for another 10 s"):
            await cloud.routes.list_routes("blue")


def test_outside_of_a_call_everything_is_permitted_and_nobody_listens():
    pass_on(Throttled("slow down", retry_after=10))
    check_permission()


def failing(metrics) -> float | None:
    return metrics.registry.value("pileus_cloud_failing_seconds", {"provider": "fake"})


async def test_a_cloud_that_stops_answering_is_counted_and_logged_until_it_answers(metrics, caplog):
    errors: list[CloudError] = [Unauthorized("expired"), Unavailable("down"), Throttled("busy")]

    def answer(_: object) -> Mapping[str, object]:
        if errors:
            raise errors.pop()
        return {}

    instances = equipped(cloud_of(FakeInstances(answer)), metrics).instances
    assert instances
    for _ in range(3):
        with pytest.raises(CloudError):
            await instances.find([node("a")], fresh=True)
        await asyncio.sleep(40)
    assert failing(metrics) == 120
    logged = [record.message for record in caplog.records]
    assert len([each for each in logged if "All calls to the cloud fail" in each]) == 1

    await instances.find([node("a")], fresh=True)

    assert failing(metrics) == 0


@pytest.mark.parametrize("error", [NotFound("x"), Rejected("x"), Conflict("x"), QuotaExceeded("x")])
async def test_an_error_about_one_request_is_an_answer(metrics, error: CloudError):
    def refuse(_: object) -> Mapping[str, object]:
        raise error

    instances = equipped(cloud_of(FakeInstances(refuse)), metrics).instances
    assert instances
    with pytest.raises(type(error)):
        await instances.find([node("a")], fresh=True)
    await asyncio.sleep(100)

    assert failing(metrics) == 0

"""The laws for `Routes`."""

import asyncio

from pileus.cloud.interface import Routes
from pileus.cloud.model import NodeName, Route
from pileus.testing.conformance.harness import RoutesHarness, run

CLUSTER = "blue"
ONE = Route(destination="10.1.0.0/24", target=NodeName("n1"))
TWO = Route(destination="10.2.0.0/24", target=NodeName("n2"))
FOREIGN = "10.9.0.0/24"


class RoutesLaws:
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def make(self) -> RoutesHarness:
        """A new cloud without routes."""
        raise NotImplementedError

    def test_what_was_created_is_listed_once_however_often_it_was_created(self) -> None:
        run(created_once(self.make()), self.new_loop)

    def test_what_was_deleted_is_gone_and_may_be_deleted_again(self) -> None:
        run(deleted_twice(self.make()), self.new_loop)

    def test_a_partial_failure_names_which(self) -> None:
        run(failure_names_which(self.make()), self.new_loop)

    def test_routes_of_others_stay(self) -> None:
        run(foreign_stay(self.make()), self.new_loop)


async def _pairs(routes: Routes) -> list[tuple[str, NodeName | None]]:
    return sorted((route.destination, route.target) for route in await routes.list_routes(CLUSTER))


async def created_once(harness: RoutesHarness) -> None:
    async with harness.connect() as routes:
        for _ in range(2):
            assert await routes.create(CLUSTER, [ONE, TWO]) == {}

        assert await _pairs(routes) == [(ONE.destination, "n1"), (TWO.destination, "n2")]
        said = {route.cluster for route in await routes.list_routes(CLUSTER)}
        assert said <= {None, CLUSTER}, f"routes of {CLUSTER} say that they are those of {said}"


async def deleted_twice(harness: RoutesHarness) -> None:
    async with harness.connect() as routes:
        await routes.create(CLUSTER, [ONE, TWO])
        listed = [r for r in await routes.list_routes(CLUSTER) if r.destination == ONE.destination]
        for _ in range(2):
            assert await routes.delete(CLUSTER, listed) == {}

        assert await _pairs(routes) == [(TWO.destination, "n2")]


async def failure_names_which(harness: RoutesHarness) -> None:
    harness.reject(ONE.destination)

    async with harness.connect() as routes:
        errors = await routes.create(CLUSTER, [ONE, TWO])

        assert set(errors) == {ONE}, f"errors named {sorted(r.destination for r in errors)}"
        assert await _pairs(routes) == [(TWO.destination, "n2")]


async def foreign_stay(harness: RoutesHarness) -> None:
    harness.add_foreign(FOREIGN)

    async with harness.connect() as routes:
        await routes.create(CLUSTER, [ONE])
        await routes.delete(
            CLUSTER, [r for r in await routes.list_routes(CLUSTER) if r.target == "n1"]
        )

        assert [destination for destination, _ in await _pairs(routes)] == [FOREIGN]
        said = {route.cluster for route in await routes.list_routes(CLUSTER)}
        assert CLUSTER not in said, "another's route says that it is ours"

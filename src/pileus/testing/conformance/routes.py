"""The laws for `Routes`. A provider that raises `Unsupported` from `create` keeps all of them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

from pileus.cloud.errors import Unsupported
from pileus.cloud.interface import Routes
from pileus.cloud.model import NodeName, Route
from pileus.testing.conformance.harness import LoopFactory, RoutesHarness, run

CLUSTER = "blue"
ONE = Route(destination="10.1.0.0/24", target=NodeName("n1"))
TWO = Route(destination="10.2.0.0/24", target=NodeName("n2"))
FOREIGN = "10.9.0.0/24"


class RoutesLaws:
    def new_loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.new_event_loop()

    def make(self) -> RoutesHarness:
        """Returns a new cloud without routes."""
        raise NotImplementedError

    def test_creating_a_route_is_idempotent(self) -> None:
        _hold(created_once, self.make(), self.new_loop)

    def test_deleting_a_route_is_idempotent(self) -> None:
        _hold(deleted_twice, self.make(), self.new_loop)

    def test_a_partial_failure_names_the_routes_that_failed(self) -> None:
        _hold(failure_names_which, self.make(), self.new_loop)

    def test_routes_of_others_are_not_touched(self) -> None:
        _hold(foreign_stay, self.make(), self.new_loop)

    def test_routes_say_for_which_cluster_they_are_if_the_provider_declares_it(self) -> None:
        _hold(marks_are_as_declared, self.make(), self.new_loop)

    def test_a_route_that_is_missing_in_one_table_is_seen_and_completed(self) -> None:
        _hold(partial_is_completed, self.make(), self.new_loop)


Law = Callable[[RoutesHarness], Coroutine[Any, Any, None]]


def _hold(law: Law, harness: RoutesHarness, loop_factory: LoopFactory) -> None:
    try:
        run(law(harness), loop_factory)
    except Unsupported:
        assert run(_listed(harness), loop_factory) == [], "refused, but a route was created"


async def _listed(harness: RoutesHarness) -> list[Route]:
    async with harness.connect() as routes:
        return [each for each in await routes.list_routes(CLUSTER) if each.cluster == CLUSTER]


def given(harness: RoutesHarness, *routes: Route) -> list[Route]:
    """Returns the routes as the core asks for them: with provider IDs and addresses."""
    nodes = [harness.node(each.target or "") for each in routes]
    return [
        replace(each, provider_id=node.provider_id, addresses=node.addresses)
        for each, node in zip(routes, nodes, strict=True)
    ]


async def _pairs(harness: RoutesHarness, routes: Routes) -> list[tuple[str, str | None]]:
    """Returns destination and node of each route, found by provider ID as the core does."""
    names = {harness.node(name).provider_id: name for name in ("n1", "n2")}
    found = await routes.list_routes(CLUSTER)
    return sorted(
        (
            each.destination,
            each.target or (names.get(each.provider_id) if each.provider_id else None),
        )
        for each in found
    )


def _to(routes: Sequence[Route], destination: str) -> list[Route]:
    return [each for each in routes if each.destination == destination]


async def created_once(harness: RoutesHarness) -> None:
    async with harness.connect() as routes:
        for _ in range(2):
            assert await routes.create(CLUSTER, given(harness, ONE, TWO)) == {}

        found = await _pairs(harness, routes)
        assert found == [(ONE.destination, "n1"), (TWO.destination, "n2")]
        said = {route.cluster for route in await routes.list_routes(CLUSTER)}
        assert said <= {None, CLUSTER}, f"routes of {CLUSTER} have Route.cluster {said}"


async def deleted_twice(harness: RoutesHarness) -> None:
    async with harness.connect() as routes:
        await routes.create(CLUSTER, given(harness, ONE, TWO))
        listed = _to(await routes.list_routes(CLUSTER), ONE.destination)
        for _ in range(2):
            assert await routes.delete(CLUSTER, listed) == {}

        assert await _pairs(harness, routes) == [(TWO.destination, "n2")]


async def failure_names_which(harness: RoutesHarness) -> None:
    one, two = given(harness, ONE, TWO)
    harness.reject(ONE.destination)

    async with harness.connect() as routes:
        errors = await routes.create(CLUSTER, [one, two])

        assert set(errors) == {one}, f"errors named {sorted(r.destination for r in errors)}"
        assert await _pairs(harness, routes) == [(TWO.destination, "n2")]


async def foreign_stay(harness: RoutesHarness) -> None:
    harness.add_foreign(FOREIGN)

    async with harness.connect() as routes:
        await routes.create(CLUSTER, given(harness, ONE))
        await routes.delete(CLUSTER, _to(await routes.list_routes(CLUSTER), ONE.destination))

        left = [destination for destination, _ in await _pairs(harness, routes)]
        assert left == [FOREIGN]
        said = {route.cluster for route in await routes.list_routes(CLUSTER)}
        assert CLUSTER not in said, "the route of another has the mark of this cluster"


async def marks_are_as_declared(harness: RoutesHarness) -> None:
    harness.add_foreign(FOREIGN)

    async with harness.connect() as routes:
        await routes.create(CLUSTER, given(harness, ONE))
        listed = await routes.list_routes(CLUSTER)

    if not harness.abilities.marks_routes:
        return
    unmarked = sorted(route.destination for route in listed if route.cluster is None)
    assert not unmarked, (
        f"abilities.marks_routes is declared, but Route.cluster of {unmarked} is None. Read the "
        "mark, or declare marks_routes=False"
    )
    (ours,) = _to(listed, ONE.destination)
    assert ours.cluster == CLUSTER, f"a route of {CLUSTER} has Route.cluster {ours.cluster!r}"


async def partial_is_completed(harness: RoutesHarness) -> None:
    async with harness.connect() as routes:
        await routes.create(CLUSTER, given(harness, ONE))
        (whole,) = _to(await routes.list_routes(CLUSTER), ONE.destination)
        assert not whole.missing_in, f"a route that was created is missing in {whole.missing_in}"
        if not harness.remove_from_one_table(ONE.destination):
            return
        (partial,) = _to(await routes.list_routes(CLUSTER), ONE.destination)
        assert partial.missing_in, "a route that is missing in one table is listed as complete"
        assert await routes.create(CLUSTER, given(harness, ONE)) == {}
        (again,) = _to(await routes.list_routes(CLUSTER), ONE.destination)
        assert not again.missing_in, "creating the route again did not complete it"

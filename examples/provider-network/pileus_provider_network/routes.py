"""Routes: one entry in every table, to an instance. Tables know neither nodes nor clusters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pileus.cloud.errors import CloudError, Rejected, Throttled, errors_of
from pileus.cloud.model import Route
from pileus_provider_network.client import Client
from pileus_provider_network.instances import PREFIX, provider_id
from pileus_provider_network.model import CreateRoute, DeleteRoute, DescribeTables, Operation


@dataclass(frozen=True, slots=True)
class NetworkRoutes:
    client: Client

    async def list_routes(self, cluster: str) -> Sequence[Route]:
        del cluster  # tables do not say for whom a route was created
        tables: Mapping[str, frozenset[tuple[str, str]]] = await self.client.send(DescribeTables())
        machines = {one.id for one in await self.client.machines()}
        entries = sorted({entry for table in tables.values() for entry in table})
        return [
            Route(
                destination=destination,
                target=None,
                provider_id=provider_id(machine),
                blackhole=machine not in machines,
                missing_in=frozenset(
                    name for name, table in tables.items() if (destination, machine) not in table
                ),
            )
            for destination, machine in entries
        ]

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        del cluster
        tables = tuple(await self.client.send(DescribeTables()))
        machines = {one.id for one in await self.client.machines()}

        async def create(route: Route) -> None:
            machine = _machine(route)
            if machine not in machines:
                raise Rejected(f"node {route.target} has no instance (ID {machine or 'unknown'})")
            await self._in_all(tables, lambda table: CreateRoute(table, route.destination, machine))

        return await errors_of(routes, create)

    async def delete(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        del cluster
        tables = tuple(await self.client.send(DescribeTables()))

        async def delete(route: Route) -> None:
            machine = _machine(route)
            await self._in_all(tables, lambda table: DeleteRoute(table, route.destination, machine))

        return await errors_of(routes, delete)

    async def _in_all(self, tables: Sequence[str], request: Callable[[str], Operation]) -> None:
        """One table that fails keeps no other from its route. Raises the last error."""
        failed: CloudError | None = None
        for table in tables:
            try:
                await self.client.send(request(table))
            except Throttled:
                raise
            except CloudError as error:
                failed = error
        if failed is not None:
            raise failed


def _machine(route: Route) -> str:
    return route.provider_id.removeprefix(PREFIX)

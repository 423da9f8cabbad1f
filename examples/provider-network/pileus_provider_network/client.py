"""The one place where requests leave: pages are read to the end, or not at all."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pileus.cloud.permission import check_permission
from pileus_provider_network.model import (
    DescribeBalancers,
    DescribeInstances,
    DescribeTargetGroups,
    LoadBalancer,
    Machine,
    Operation,
    Page,
    TargetGroup,
)


class Api(Protocol):
    """One call is one request: by HTTP in production, by the model in tests and simulations."""

    async def call(self, operation: Any) -> Any:  # noqa: ANN401 -- each operation has its answer
        """Raises `CloudError`."""
        ...


@dataclass(frozen=True, slots=True)
class Client:
    api: Api

    async def send(self, operation: Operation) -> Any:  # noqa: ANN401 -- see `Api`
        """Send one request, if this process may still write and the cloud wants no silence."""
        check_permission()
        return await self.api.call(operation)

    async def machines(self) -> tuple[Machine, ...]:
        return await self._all(DescribeInstances)

    async def balancers(self) -> tuple[LoadBalancer, ...]:
        return await self._all(DescribeBalancers)

    async def groups(self) -> tuple[TargetGroup, ...]:
        return await self._all(DescribeTargetGroups)

    async def _all(self, request: Callable[[str], Operation]) -> tuple[Any, ...]:
        """Returns every item. Raises `CloudError` if one page cannot be read."""
        page: Page[Any] = await self.send(request(""))
        found = page.items
        while page.next:
            page = await self.send(request(page.next))
            found += page.items
        return found

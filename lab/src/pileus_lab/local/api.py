"""The seam between a local cloud and who uses it: one call, in this process or over a socket."""

from dataclasses import dataclass
from typing import Protocol

from pileus.cloud.permission import check_permission
from pileus_lab.local.model.operation import A, Operation


class Api(Protocol):
    async def call(self, operation: Operation[A]) -> A:
        """Carry out one operation. Errors: `CloudError`."""
        ...


@dataclass(frozen=True, slots=True)
class Permitted:
    """The way that all requests of the provider go: none leaves without permission."""

    api: Api

    async def call(self, operation: Operation[A]) -> A:
        """Errors: those of the call, and of `check_permission`."""
        check_permission()
        return await self.api.call(operation)

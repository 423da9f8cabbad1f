"""The seam between a local cloud and who uses it: one call, in this process or over a socket."""

from typing import Protocol

from pileus.providers.local.model.operation import A, Operation


class Api(Protocol):
    async def call(self, operation: Operation[A]) -> A:
        """Carry out one operation. Errors: `CloudError`."""
        ...

"""The API of a local cloud as its users see it: one call, in this process or over a socket."""

from dataclasses import dataclass
from typing import Protocol

from pileus.cloud.model import NodeRef
from pileus.cloud.permission import check_permission
from pileus_lab.local.model.state import A, Operation


class Api(Protocol):
    async def call(self, operation: Operation[A]) -> A:
        """Performs one operation. Raises `CloudError`."""
        ...


@dataclass(frozen=True, slots=True)
class Permitted:
    """The API as the provider calls it: every request needs permission."""

    api: Api

    async def call(self, operation: Operation[A]) -> A:
        """Raises what the call or `check_permission` raises."""
        check_permission()
        return await self.api.call(operation)


SCHEME = "local"


def provider_id(instance: str) -> str:
    return f"{SCHEME}://{instance}"


def instance_id(text: str) -> str | None:
    """Returns the instance ID in a provider ID, or None if the provider ID is not of this cloud."""
    scheme, separator, instance = text.partition("://")
    return instance if separator and scheme == SCHEME and instance else None


def owns(node: NodeRef) -> bool | None:
    return instance_id(node.provider_id) is not None if node.provider_id else None

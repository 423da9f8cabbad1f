"""Look up the instances of nodes in the cloud, and check what the provider returns."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar, cast

from pileus.cloud.abilities import LONGEST_LOOKUP
from pileus.cloud.errors import CloudError, Unavailable
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent, Failure, Instance, NodeName, NodeRef
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import reference

T = TypeVar("T")

DEADLINE = LONGEST_LOOKUP
"""Seconds for one lookup, including the wait for the provider's call budget.

Longer than the deadline of the call itself, whose error says more."""

CHUNK = 500
"""The largest number of nodes in one lookup."""

Answer = Instance | Absent | CloudError
"""The instance of one node, that it has none, or why this is not known."""


async def look_up(
    instances: Instances, nodes: Sequence[Node], *, fresh: bool, deadline: float = DEADLINE
) -> Mapping[str, Answer]:
    """Look up all `nodes` in one call. Returns the answers by name.

    Guarantees: every node has an answer, whatever the provider raises or returns.
    """
    found = await _find(instances, [reference(node) for node in nodes], fresh, deadline)
    if isinstance(found, CloudError):
        return {node.metadata.name: found for node in nodes}
    return {node.metadata.name: _answer(found.get(NodeName(node.metadata.name))) for node in nodes}


def bug(what: str) -> CloudError:
    """Returns the error of a provider that violates its contract."""
    return CloudError(f"the provider {what}; this is a bug in it, report it to its authors")


async def _find(
    instances: Instances,
    refs: Sequence[NodeRef],
    fresh: bool,  # noqa: FBT001 -- private
    deadline: float,
) -> Mapping[NodeName, object] | CloudError:
    try:
        async with asyncio.timeout(deadline):
            return _mapping(await instances.find(refs, fresh=fresh))
    except CloudError as error:
        return error
    except TimeoutError:
        return Unavailable(f"the cloud did not answer within {deadline:g} s")
    except Exception as error:  # noqa: BLE001 -- a bug of the provider must affect only these nodes
        return bug(f"raised {type(error).__name__}: {error}")


def _mapping(found: object) -> Mapping[NodeName, object] | CloudError:
    if not isinstance(found, Mapping):
        return bug(f"returned {_kind(found)} for a mapping")
    return cast("Mapping[NodeName, object]", found)


def _answer(found: object) -> Answer:
    match found:
        case Instance() | Absent():
            return found
        case Failure(CloudError() as error):
            return error
        case None:
            return Unavailable("the cloud did not say whether it has an instance for this node")
        case _:
            return bug(f"returned {_kind(found)} for an instance")


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Returns the list in parts of at most `size` items, as one call can carry them."""
    for start in range(0, len(items), size):
        yield items[start : start + size]

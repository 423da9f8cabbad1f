"""Ask the cloud about nodes, and take nothing that a provider returns on trust."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import cast

from pileus.cloud.errors import CloudError, NotFound, Unavailable
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent, Failure, Instance, NodeName, NodeRef
from pileus.controllers.node.facts import Facts, examine
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import reference

DEADLINE = 240.0
"""Seconds for one look-up, waiting for the provider's call budget included.

Longer than the deadline of the call itself, which tells more."""

Answer = Facts | CloudError


async def look_up(
    instances: Instances, nodes: Sequence[Node], *, deadline: float = DEADLINE
) -> Mapping[str, Answer]:
    """Ask once about all `nodes`: for each name, what is known, or why nothing is.

    Guarantees: every node has an answer; whatever the provider raises or returns becomes one.
    """
    found = await _find(instances, [reference(node) for node in nodes], deadline)
    if isinstance(found, CloudError):
        return {node.metadata.name: found for node in nodes}
    return {node.metadata.name: _answer(found.get(_name(node))) for node in nodes}


async def _find(
    instances: Instances, refs: Sequence[NodeRef], deadline: float
) -> Mapping[NodeName, object] | CloudError:
    try:
        async with asyncio.timeout(deadline):
            # Positive answers may come from a provider's cache: absence concludes nothing here.
            return _mapping(await instances.find(refs, fresh=False))
    except CloudError as error:
        return error
    except TimeoutError:
        return Unavailable(f"the cloud did not answer within {deadline:g} s")
    except Exception as error:  # noqa: BLE001 -- foreign code: its bug must harm only these nodes
        return _bug(f"raised {type(error).__name__}: {error}")


def _mapping(found: object) -> Mapping[NodeName, object] | CloudError:
    if not isinstance(found, Mapping):
        return _bug(f"returned {_kind(found)} for a mapping")
    return cast("Mapping[NodeName, object]", found)


def _answer(found: object) -> Answer:
    match found:
        case Instance():
            return _examined(found)
        case Absent(evidence):
            return NotFound(f"the cloud has no machine for this node: {evidence}")
        case Failure(CloudError() as error):
            return error
        case None:
            return Unavailable("the cloud did not say whether it has a machine for this node")
        case _:
            return _bug(f"returned {_kind(found)} for an instance")


def _examined(instance: Instance) -> Answer:
    try:
        return examine(instance)
    except CloudError as error:
        return error
    except (TypeError, ValueError, AttributeError) as error:
        return _bug(f"returned an instance with fields of wrong types: {error}")


def _bug(what: str) -> CloudError:
    return CloudError(f"the provider {what}; this is a bug in it, report it to its authors")


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _name(node: Node) -> NodeName:
    return NodeName(node.metadata.name)

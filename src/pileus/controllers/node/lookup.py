"""What the cloud says of nodes, examined: facts to write down, or why there are none."""

from collections.abc import Mapping, Sequence
from typing import assert_never

from pileus.cloud.errors import CloudError, NotFound
from pileus.cloud.interface import Instances
from pileus.cloud.model import Absent, Instance
from pileus.controllers.node.facts import Facts, examine
from pileus.kube.model.core_v1 import Node
from pileus.objects import lookups

Answer = Facts | CloudError


async def look_up(
    instances: Instances, nodes: Sequence[Node], *, deadline: float = lookups.DEADLINE
) -> Mapping[str, Answer]:
    """Ask once about all `nodes`: for each name, what is known, or why nothing is.

    Guarantees: every node has an answer; whatever the provider raises or returns becomes one.
    """
    # Positive answers may come from a provider's cache: absence concludes nothing here.
    found = await lookups.look_up(instances, nodes, fresh=False, deadline=deadline)
    return {name: _answer(answer) for name, answer in found.items()}


def _answer(found: lookups.Answer) -> Answer:
    match found:
        case Instance():
            return _examined(found)
        case Absent(evidence):
            return NotFound(f"the cloud has no machine for this node: {evidence}")
        case CloudError():
            return found
        case _:
            assert_never(found)


def _examined(instance: Instance) -> Answer:
    try:
        return examine(instance)
    except CloudError as error:
        return error
    except (TypeError, ValueError, AttributeError) as error:
        return lookups.bug(f"returned an instance with fields of wrong types: {error}")

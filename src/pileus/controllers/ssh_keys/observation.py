"""Which keys the nodes have: what the cloud says, or, where it cannot tell, what we gave them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pileus.cloud.errors import CloudError, Unsupported
from pileus.cloud.interface import SshKeys
from pileus.cloud.model import Failure, NodeKeys, NodeName, SshKey
from pileus.kube.model.core_v1 import Node
from pileus.objects.nodes import reference
from pileus.runtime.memory import PerObject


@dataclass(frozen=True, slots=True)
class Look:
    keys: Mapping[NodeName, NodeKeys]
    """Nodes about which nothing is known are missing."""
    failures: Mapping[NodeName, CloudError] = field(default_factory=dict[NodeName, CloudError])
    blind: str = ""
    """Why the cloud cannot tell; then the keys are those of our memory."""


class Looks:
    """Asks the cloud. Remembers what was given only for a cloud that cannot be asked.

    That memory ends with the process: its successor adds all keys once more, which harms nothing.
    """

    def __init__(self, keys: SshKeys) -> None:
        self._keys = keys
        self._given = PerObject[str, frozenset[SshKey]]("nodes/ssh-keys", ends_with_object=True)
        """By the nodes' UIDs."""

    async def of(self, cluster: str, nodes: Mapping[NodeName, Node]) -> Look:
        """Errors: `CloudError`, if the cloud could tell but does not at the moment."""
        try:
            answer = await self._keys.list_keys(cluster, [*map(reference, nodes.values())])
        except Unsupported as error:
            return self._remembered(nodes, str(error))
        seen = {name: each for name, each in answer.items() if isinstance(each, NodeKeys)}
        failures = {name: each.error for name, each in answer.items() if isinstance(each, Failure)}
        return Look(seen, failures)

    def note(self, nodes: Iterable[Node], keys: Iterable[SshKey]) -> None:
        """The nodes were given the keys."""
        given = frozenset(keys)
        for node in nodes:
            uid = node.metadata.uid
            self._given[uid] = self._given.get(uid, frozenset()) | given

    def _remembered(self, nodes: Mapping[NodeName, Node], why: str) -> Look:
        self._given.keep({node.metadata.uid for node in nodes.values()})
        seen = {
            name: NodeKeys(others=self._given.get(node.metadata.uid, frozenset()))
            for name, node in nodes.items()
        }
        return Look(seen, blind=why)

"""SSH keys of the local cloud: kept once, for all instances, with the owner in the comment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pileus.cloud.errors import CloudError, NotFound
from pileus.cloud.model import Failure, NodeKeys, NodeName, NodeRef, SshKey
from pileus_lab.local.api import Api
from pileus_lab.local.capabilities import machine_of, whole
from pileus_lab.local.model.account import AddKey, ListKeys, RemoveKey
from pileus_lab.local.model.machines import ListMachines
from pileus_lab.local.model.records import Key


@dataclass(frozen=True, slots=True)
class LocalSshKeys:
    api: Api

    async def list_keys(
        self, cluster: str, nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, NodeKeys | Failure]:
        keys = whole(await self.api.call(ListKeys()), "keys")
        ours = {_plain(key) for key in keys if _comment(key) == mark(cluster)}
        found = NodeKeys(frozenset(ours), frozenset({_plain(key) for key in keys} - ours))
        absent = await self._absent(nodes)
        return {
            node.name: Failure(absent[node.name]) if node.name in absent else found
            for node in nodes
        }

    async def add(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        for key in keys:
            text = f"{key.public_key} {mark(cluster)}"
            await self.api.call(AddKey(user=key.user, public_key=text))
        return await self._absent(nodes)

    async def remove(
        self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]
    ) -> Mapping[NodeName, CloudError]:
        for key in keys:
            await self.api.call(
                RemoveKey(user=key.user, public_key=key.public_key, only_comment=mark(cluster))
            )
        return await self._absent(nodes)

    async def _absent(self, nodes: Sequence[NodeRef]) -> dict[NodeName, CloudError]:
        machines = whole(await self.api.call(ListMachines(fresh=True)), "instances")
        return {
            node.name: NotFound(f"the local cloud has no instance for node {node.name}")
            for node in nodes
            if machine_of(node, machines) is None
        }


def mark(cluster: str) -> str:
    """The comment of keys that were added for the cluster."""
    return f"pileus:{cluster}"


def _plain(key: Key) -> SshKey:
    return SshKey(key.user, " ".join(key.public_key.split()[:2]))


def _comment(key: Key) -> str:
    return " ".join(key.public_key.split()[2:])

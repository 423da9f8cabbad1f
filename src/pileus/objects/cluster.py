"""The nodes of a real cluster, for one controller: an informer's view, and a client to write."""

from collections.abc import Callable
from typing import Generic, TypeVar

from pileus.kube.client import Client, Listed, Preconditions
from pileus.kube.errors import Invalid
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.patch import Patch
from pileus.kube.store import NamespacedName, Store
from pileus.objects.writer import NodeReplaced
from pileus.objects.written import Written

Write = TypeVar("Write")


class ClusterNodes(Generic[Write]):
    """Shows what was written here even before the watch brings it.

    `render` makes of a write the patch that brings it about, and the subresource it goes to.
    """

    def __init__(
        self,
        client: Client,
        store: Store[Node],
        render: Callable[[Node, Write], tuple[Patch, str]],
    ) -> None:
        self._client = client
        self._store = store
        self._render = render
        self._written = Written[str, Node]()

    def node(self, name: str) -> Node | None:
        return self._written.newest(name, self._store.get(NamespacedName("", name)))

    def nodes(self) -> tuple[Node, ...]:
        found = (self._written.newest(each.metadata.name, each) for each in self._store.list())
        return tuple(each for each in found if each is not None)

    async def read(self, name: str) -> Node:
        return self._written.note(name, await self._client.get(NODES, name))

    async def fresh(self) -> Listed[Node]:
        """All nodes as the API server has them now, those that do not decode by name."""
        return await self._client.list(NODES)

    async def write(self, node: Node, write: Write) -> Node:
        patch, subresource = self._render(node, write)
        name = node.metadata.name
        try:
            written = await self._client.patch(NODES, name, patch, subresource=subresource)
        except Invalid as error:
            if error.is_about_uid:
                raise NodeReplaced(f"node {name} was registered anew meanwhile") from error
            raise
        return self._written.note(name, written)

    async def delete(self, node: Node) -> None:
        """Delete this very version of the node. Errors: `Conflict`, if it has changed since."""
        version = Preconditions(node.metadata.uid, node.metadata.resource_version)
        await self._client.delete(NODES, node.metadata.name, preconditions=version)

"""The nodes of a real cluster, for one controller: an informer's view, and a client to write."""

from collections.abc import Callable
from typing import Generic, TypeVar

from pileus.kube.client import Client, Listed, Preconditions
from pileus.kube.errors import Invalid
from pileus.kube.informer import Handler
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.patch import Patch
from pileus.kube.store import NamespacedName, Store
from pileus.objects.writer import NodeReplaced
from pileus.objects.written import WithoutEchoes, Written

Write = TypeVar("Write")


def _unchanged(node: Node, _: object) -> Node:
    return node


class ClusterNodes(Generic[Write]):
    """Shows what was written here even before the watch brings it.

    `render` makes of a write the patch that brings it about, and the subresource it goes to.
    `expected` returns the node as a write leaves it; it may be left out by a controller whose
    handler looks at nothing that the controller writes.
    """

    def __init__(
        self,
        client: Client,
        store: Store[Node],
        render: Callable[[Node, Write], tuple[Patch, str]],
        expected: Callable[[Node, Write], Node] = _unchanged,
    ) -> None:
        self._client = client
        self._store = store
        self._render = render
        self._expected = expected
        self._written = Written[str, Node](self._seen)

    def node(self, name: str) -> Node | None:
        return self._written.newest(name, self._seen(name))

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
        request = self._client.patch(NODES, name, patch, subresource=subresource)
        try:
            return await self._written.write(
                name, request, lambda before: self._expected(before, write)
            )
        except Invalid as error:
            if error.is_about_uid:
                raise NodeReplaced(f"node {name} was registered again meanwhile") from error
            raise

    def without_echoes(self, handler: Handler[Node]) -> Handler[Node]:
        """The handler, told of everything that the watch brings except for our own writes."""
        return WithoutEchoes(handler, self._written, lambda node: node.metadata.name)

    async def delete(self, node: Node) -> None:
        """Delete this very version of the node. Errors: `Conflict`, if it has changed since."""
        version = Preconditions(node.metadata.uid, node.metadata.resource_version)
        await self._client.delete(NODES, node.metadata.name, preconditions=version)

    def _seen(self, name: str) -> Node | None:
        return self._store.get(NamespacedName("", name))

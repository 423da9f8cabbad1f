"""The nodes of a real cluster, for this controller: an informer's view, and a client to write."""

from pileus.controllers.node.patches import patch_of
from pileus.controllers.node.plan import Write
from pileus.controllers.node.writer import NodeReplaced
from pileus.kube.client import Client
from pileus.kube.errors import Invalid
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.store import NamespacedName, Store
from pileus.objects.written import Written


class ClusterNodes:
    """Shows what was written here even before the watch brings it."""

    def __init__(self, client: Client, store: Store[Node]) -> None:
        self._client = client
        self._store = store
        self._written = Written[str, Node]()

    def node(self, name: str) -> Node | None:
        return self._written.newest(name, self._store.get(NamespacedName("", name)))

    def nodes(self) -> tuple[Node, ...]:
        found = (self._written.newest(each.metadata.name, each) for each in self._store.list())
        return tuple(each for each in found if each is not None)

    async def read(self, name: str) -> Node:
        return self._written.note(name, await self._client.get(NODES, name))

    async def write(self, node: Node, write: Write) -> Node:
        patch, subresource = patch_of(node, write)
        name = node.metadata.name
        try:
            written = await self._client.patch(NODES, name, patch, subresource=subresource)
        except Invalid as error:
            if _is_about_uid(error):
                raise NodeReplaced(f"node {name} was registered anew meanwhile") from error
            raise
        return self._written.note(name, written)


def _is_about_uid(error: Invalid) -> bool:
    """Patches name the object by its UID; to another one this looks like changing its UID."""
    return any(cause.field == "metadata.uid" for cause in error.details.causes or ())

"""The nodes of a real cluster, for this controller: an informer's view, and a client to write."""

import asyncio
from typing import NamedTuple

from pileus.controllers.node.patches import patch_of
from pileus.controllers.node.plan import Write
from pileus.controllers.node.writer import NodeReplaced
from pileus.kube.client import Client
from pileus.kube.errors import Invalid
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.store import NamespacedName, Store

CATCH_UP = 30.0
"""Seconds in which a watch brings us what we have written ourselves, or else is not waited for."""


class _Written(NamedTuple):
    node: Node
    until: float


class ClusterNodes:
    """Shows what was written here even before the watch brings it.

    Without that, a pass that comes right after another would see the old state and write again.
    """

    def __init__(self, client: Client, store: Store[Node]) -> None:
        self._client = client
        self._store = store
        self._written: dict[str, _Written] = {}

    def node(self, name: str) -> Node | None:
        return self._newest(name, self._store.get(NamespacedName("", name)))

    def nodes(self) -> tuple[Node, ...]:
        found = (self._newest(each.metadata.name, each) for each in self._store.list())
        return tuple(each for each in found if each is not None)

    async def read(self, name: str) -> Node:
        return self._note(await self._client.get(NODES, name))

    async def write(self, node: Node, write: Write) -> Node:
        patch, subresource = patch_of(node, write)
        name = node.metadata.name
        try:
            written = await self._client.patch(NODES, name, patch, subresource=subresource)
        except Invalid as error:
            if _is_about_uid(error):
                raise NodeReplaced(f"node {name} was registered anew meanwhile") from error
            raise
        return self._note(written)

    def _note(self, node: Node) -> Node:
        until = asyncio.get_running_loop().time() + CATCH_UP
        self._written[node.metadata.name] = _Written(node, until)
        return node

    def _newest(self, name: str, seen: Node | None) -> Node | None:
        written = self._written.get(name)
        if written is None:
            return seen
        late = asyncio.get_running_loop().time() > written.until
        if seen is None or late or not _is_older(seen, written.node):
            del self._written[name]
            return seen
        return written.node


def _is_about_uid(error: Invalid) -> bool:
    """Patches name the object by its UID; to another one this looks like changing its UID."""
    return any(cause.field == "metadata.uid" for cause in error.details.causes or ())


def _is_older(seen: Node, written: Node) -> bool:
    """Whether both are one object, of which `written` is the later version."""
    if seen.metadata.uid != written.metadata.uid:
        return False
    before, after = seen.metadata.resource_version, written.metadata.resource_version
    return before.isdecimal() and after.isdecimal() and int(before) < int(after)

"""The nodes of the cluster as one controller reads and writes them.

`ClusterNodes` reads from the informer's store and writes with a client. `NodeWriter` repeats a
decision from a fresh node after each conflict.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from pileus.kube.client import Client, Listed, Preconditions
from pileus.kube.errors import Conflict, Invalid, KubeError
from pileus.kube.informer import Handler
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.patch import Patch
from pileus.kube.store import Index, NamespacedName, Store
from pileus.objects.nodes import provider_id_of
from pileus.objects.own_writes import OwnWrites, WithoutEchoes

TRIES = 8
FIRST_PAUSE = 0.05
"""Seconds before the first retry after a conflict; doubled each time, plus up to as much."""

MACHINE = "machine"


def _machine(node: Node) -> tuple[str, ...]:
    return (node.spec.provider_id,) if node.spec and node.spec.provider_id else ()


MACHINE_INDEX: Mapping[str, Index[Node]] = {MACHINE: _machine}
"""The index of a store with which `ClusterNodes.of_machine` finds nodes by provider ID."""

Write = TypeVar("Write")
Write_contra = TypeVar("Write_contra", contravariant=True)


class Nodes(Protocol[Write_contra]):
    """The nodes of a cluster: a local view, and the API server behind it.

    `Write_contra` is what a controller writes; each controller has its own type.
    """

    def node(self, name: str) -> Node | None:
        """Returns the node from the local view; None if there is none."""
        ...

    def nodes(self) -> tuple[Node, ...]: ...
    def of_machine(self, provider_id: str) -> Sequence[Node]:
        """Returns the nodes with this provider ID from the local view."""
        ...

    async def read(self, name: str) -> Node:
        """Returns the node from the API server."""
        ...

    async def write(self, node: Node, write: Write_contra) -> Node:
        """Change the node. Returns the node after the change.

        Raises `Conflict` if the write requires the newest version and `node` is older,
        `NodeReplaced`, or another `KubeError`.
        """
        ...


class NodeReplaced(KubeError):
    """The node was deleted and registered again: the decision was about the old one."""


class Brought(NamedTuple):
    """A node in the desired state, and whether a write of this process was needed."""

    node: Node
    written: bool


def _unchanged(node: Node, _: object) -> Node:
    return node


class ClusterNodes(Generic[Write]):
    """Reads from the informer's store, and shows own writes before the watch delivers them.

    `render` returns the patch of a write and its subresource. `expected` returns the node after a
    write; a controller whose handler reads nothing that the controller writes may omit it.
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
        self._written = OwnWrites[str, Node](self._seen)

    def node(self, name: str) -> Node | None:
        return self._written.newest(name, self._seen(name))

    def nodes(self) -> tuple[Node, ...]:
        found = (self._written.newest(each.metadata.name, each) for each in self._store.list())
        return tuple(each for each in found if each is not None)

    def of_machine(self, provider_id: str) -> Sequence[Node]:
        """The store needs `MACHINE_INDEX`."""
        seen = self._store.by_index(MACHINE, provider_id)
        names = {each.metadata.name for each in seen}
        for name, written in self._written.shown():
            if written.spec is not None and written.spec.provider_id == provider_id:
                names.add(name)
        found = (self.node(each) for each in names)
        return [each for each in found if each and provider_id_of(each) == provider_id]

    async def read(self, name: str) -> Node:
        return self._written.note(name, await self._client.get(NODES, name))

    async def fresh(self) -> Listed[Node]:
        """Lists all nodes from the API server; nodes that cannot be decoded are listed apart."""
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
        """Returns a handler that is called for all changes except for own writes."""
        return WithoutEchoes(handler, self._written, lambda node: node.metadata.name)

    async def delete(self, node: Node) -> None:
        """Delete this version of the node. Raises `Conflict` if it has changed since."""
        version = Preconditions(node.metadata.uid, node.metadata.resource_version)
        await self._client.delete(NODES, node.metadata.name, preconditions=version)

    def _seen(self, name: str) -> Node | None:
        return self._store.get(NamespacedName("", name))


class NodeWriter(Generic[Write]):
    """Writes a decision about a node, and repeats it after conflicts."""

    def __init__(self, nodes: Nodes[Write], rng: random.Random) -> None:
        self._nodes = nodes
        self._random = rng

    async def bring(self, node: Node, decide: Callable[[Node], Write | None]) -> Brought:
        """Write what `decide` returns for the node; after a conflict decide again for a fresh node.

        Makes no request if `decide` returns None. At most one write takes effect. Raises `Conflict`
        if others keep writing, `NodeReplaced`, or another `KubeError`.
        """
        pause = FIRST_PAUSE
        for _ in range(TRIES - 1):
            try:
                return await self._write(node, decide)
            except Conflict:
                await asyncio.sleep(pause * (1 + self._random.random()))
                node = await self._newest(node)
                pause *= 2
        return await self._write(node, decide)

    async def _write(self, node: Node, decide: Callable[[Node], Write | None]) -> Brought:
        write = decide(node)
        if write is None:
            return Brought(node, written=False)
        return Brought(await self._nodes.write(node, write), written=True)

    async def _newest(self, node: Node) -> Node:
        newest = await self._nodes.read(node.metadata.name)
        if newest.metadata.uid != node.metadata.uid:
            raise NodeReplaced(f"node {node.metadata.name} was registered again meanwhile")
        return newest

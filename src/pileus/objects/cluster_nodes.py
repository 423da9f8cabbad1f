"""The nodes of the cluster as one controller reads and writes them.

`ClusterNodes` reads from the informer's store and writes with a client. `NodeWriter` repeats a
decision from a fresh node after each conflict.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from pileus.kube.client import Client, Listed, Preconditions
from pileus.kube.errors import Conflict, Invalid, KubeError
from pileus.kube.informer import Handler
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.patch import Patch
from pileus.kube.store import NamespacedName, Store
from pileus.objects.own_writes import OwnWrites, WithoutEchoes

TRIES = 8
FIRST_PAUSE = 0.05
"""Seconds before the first new try after a conflict; doubled each time, plus up to as much."""

Write = TypeVar("Write")
Write_contra = TypeVar("Write_contra", contravariant=True)


class Nodes(Protocol[Write_contra]):
    """The nodes of a cluster: a local view, and the API server behind it.

    `Write_contra` is what a controller may want to write; each has its own.
    """

    def node(self, name: str) -> Node | None:
        """The node as last seen; None if there is none."""
        ...

    def nodes(self) -> tuple[Node, ...]: ...
    async def read(self, name: str) -> Node:
        """The node as it is now."""
        ...

    async def write(self, node: Node, write: Write_contra) -> Node:
        """Change the node; the answer is the node as it is then.

        Errors: `Conflict`, if it must be made from the newest version and `node` is not that;
        `NodeReplaced`; else what the API server says.
        """
        ...


class NodeReplaced(KubeError):
    """The node was deleted and registered anew: what was decided was about the old one."""


class Brought(NamedTuple):
    """A node where a decision wants it, and whether that took a write of ours."""

    node: Node
    written: bool


class NodeInformer(Protocol):
    @property
    def store(self) -> Store[Node]: ...
    async def wait_synced(self) -> None: ...
    def subscribe(self, handler: Handler[Node]) -> None: ...


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
        self._written = OwnWrites[str, Node](self._seen)

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


class NodeWriter(Generic[Write]):
    def __init__(self, nodes: Nodes[Write], rng: random.Random) -> None:
        self._nodes = nodes
        self._random = rng

    async def bring(self, node: Node, decide: Callable[[Node], Write | None]) -> Brought:
        """Decide from the node's state and write it, from a fresh state after each conflict.

        Makes no request if nothing is to do. At most one write takes effect.
        Errors: `Conflict`, if others keep writing; `NodeReplaced`; else what the API server says.
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
            raise NodeReplaced(f"node {node.metadata.name} was registered anew meanwhile")
        return newest

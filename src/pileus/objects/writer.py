"""Bring one node to where a decision wants it, also when others write to it at the same time."""

import asyncio
import random
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from pileus.kube.errors import Conflict, KubeError
from pileus.kube.model.core_v1 import Node

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

"""Turns concurrent look-ups of nodes into few: a thousand callers, a handful of calls.

A caller's nodes wait a moment for others, then travel together. While calls are under way, those
who come later gather for the next. Fresh and cached look-ups never share a call.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Cloud, Instances
from pileus.cloud.model import Found, NodeName, NodeRef

Nodes = Mapping[NodeName, NodeRef]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    window: float = 0.02
    """Seconds that the first waits for others."""
    size: int = 500
    """Nodes in one call, at most."""
    at_once: int = 2
    """Calls under way at the same time."""


@asynccontextmanager
async def batched(cloud: Cloud, batches: Batches) -> AsyncGenerator[Cloud]:
    """The cloud with look-ups gathered, for as long as the block lasts.

    Guarantees: an answer or error reaches exactly those who asked for its nodes; who is cancelled
    cancels nobody else; who still waits at the end of the block gets `Unavailable`.
    """
    if cloud.instances is None:
        yield cloud
        return
    gathering = _Gathering(cloud.instances, batches)
    raised: Exception | None = None
    async with asyncio.TaskGroup() as group:
        runner = group.create_task(gathering.run())
        try:
            yield replace(cloud, instances=gathering)
        except Exception as error:  # noqa: BLE001 -- raised below, without the group's wrapping
            raised = error
        finally:
            gathering.close()
            runner.cancel()
    if raised is not None:
        raise raised


@dataclass(eq=False, slots=True)
class _Ask:
    """One caller, until all of its nodes are answered or one call failed."""

    nodes: Nodes
    fresh: bool
    done: asyncio.Future[None]
    waiting_for: set[NodeName]
    answer: dict[NodeName, Found] = field(default_factory=dict[NodeName, Found])
    error: Exception | None = None

    def is_in(self, batch: Nodes) -> bool:
        return any(batch.get(name) == self.nodes[name] for name in self.waiting_for)

    def hear(self, batch: Nodes, found: Mapping[NodeName, Found]) -> None:
        for name in [n for n in self.waiting_for if batch.get(n) == self.nodes[n]]:
            self.waiting_for.remove(name)
            if name in found:
                self.answer[name] = found[name]
        if not self.waiting_for:
            self._finish()

    def fail(self, error: Exception) -> None:
        self.error = error
        self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)


class _Gathering:
    def __init__(self, inner: Instances, batches: Batches) -> None:
        self._inner = inner
        self._batches = batches
        self._gathered: list[_Ask] = []
        self._open: set[_Ask] = set()
        self._came = asyncio.Event()
        self._slots = asyncio.Semaphore(batches.at_once)
        self._is_closed = False

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        if self._is_closed:
            raise _abandoned()
        by_name = {node.name: node for node in nodes}
        if not by_name:
            return {}
        ask = _Ask(by_name, fresh, asyncio.get_running_loop().create_future(), set(by_name))
        self._gathered.append(ask)
        self._open.add(ask)
        self._came.set()
        try:
            await ask.done
        finally:
            self._open.discard(ask)
        if ask.error is not None:
            # Shared with others who asked: without their frames.
            raise ask.error.with_traceback(None)
        return ask.answer

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._came.wait()
                await asyncio.sleep(self._batches.window)
                await self._send(group)

    def close(self) -> None:
        self._is_closed = True
        for ask in self._open:
            ask.fail(_abandoned())

    async def _send(self, group: asyncio.TaskGroup) -> None:
        """Wait until a call may leave, and let everyone come along who came meanwhile."""
        await self._slots.acquire()
        self._slots.release()
        self._came.clear()
        asks, self._gathered = [a for a in self._gathered if not a.done.done()], []
        for fresh in (False, True):
            alike = [ask for ask in asks if ask.fresh is fresh]
            for batch in pack(_nodes_of(alike), self._batches.size):
                passengers = [ask for ask in alike if ask.is_in(batch)]
                await self._slots.acquire()
                group.create_task(self._travel(batch, passengers, fresh=fresh))

    async def _travel(self, batch: Nodes, passengers: Sequence[_Ask], *, fresh: bool) -> None:
        try:
            found = await self._inner.find(tuple(batch.values()), fresh=fresh)
        except Exception as error:  # noqa: BLE001 -- it belongs to those who asked, not to this task
            for ask in passengers:
                ask.fail(error)
        else:
            for ask in passengers:
                ask.hear(batch, found)
        finally:
            self._slots.release()


def _nodes_of(asks: Sequence[_Ask]) -> tuple[NodeRef, ...]:
    return tuple(dict.fromkeys(node for ask in asks for node in ask.nodes.values()))


def pack(nodes: Sequence[NodeRef], size: int) -> Iterator[Nodes]:
    """Part nodes into batches; two versions of one node never share a batch.

    Answers are keyed by name, so that nobody could tell whose answer it is otherwise.
    """
    left = list(nodes)
    while left:
        batch: dict[NodeName, NodeRef] = {}
        later: list[NodeRef] = []
        for node in left:
            if len(batch) < size and node.name not in batch:
                batch[node.name] = node
            else:
                later.append(node)
        yield batch
        left = later


def _abandoned() -> Unavailable:
    return Unavailable("the look-up was abandoned: the manager is stopping")

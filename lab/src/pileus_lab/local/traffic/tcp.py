"""A balancer's TCP listener: takes connections, finds each a member, and carries the bytes."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pileus_lab.local.model.records import ProxyHeader
from pileus_lab.local.traffic import header
from pileus_lab.local.traffic.choice import Turns, is_allowed
from pileus_lab.local.traffic.listening import server_at
from pileus_lab.local.traffic.wanted import Backend, Front
from pileus_lab.local.traffic.wires import Wires, bound, dialled

CHUNK = 64 * 1024
DIAL_TIMEOUT = 2.0

Usable = Callable[[Front], Sequence[Backend]]
"""The members of a listener that are healthy, as known now."""


@dataclass(frozen=True, slots=True)
class Streams:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class TcpFront:
    """One open listener.

    A member that is taken away gets no new connection; the old ones may go on until they have
    drained.
    """

    def __init__(
        self, front: Front, usable: Usable, wires: Wires, tasks: asyncio.TaskGroup
    ) -> None:
        self._front = front
        self._usable = usable
        self._wires = wires
        self._tasks = tasks
        self._turns = Turns()
        self._is_retired = False
        self._server: asyncio.Server | None = None
        self._carried: dict[asyncio.Task[None], Backend] = {}

    async def open(self) -> None:
        """Errors: `OSError` if the address and port cannot be had."""
        place = self._front.place
        self._server = await server_at(bound(place), self._connected, longest_line=CHUNK)
        await self._server.start_serving()

    def update(self, front: Front) -> None:
        self._front = front
        if any(backend not in front.backends for backend in self._carried.values()):
            loop = asyncio.get_running_loop()
            loop.call_later(front.traffic.drain_seconds, self._end_removed)

    def retire(self) -> None:
        """Take no more connections; those that there are drain."""
        self._stop_listening()
        self.update(replace(self._front, backends=()))

    def cut(self) -> None:
        """End everything at once."""
        self._stop_listening()
        for task in self._carried:
            task.cancel()

    def _stop_listening(self) -> None:
        self._is_retired = True
        if self._server:
            self._server.close()

    def _end_removed(self) -> None:
        for task, backend in self._carried.items():
            if backend not in self._front.backends:  # it may have come back meanwhile
                task.cancel()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_retired:  # accepted just before
            writer.transport.abort()
            return
        self._tasks.create_task(self._serve(Streams(reader, writer)))

    async def _serve(self, client: Streams) -> None:
        try:
            peer: str = client.writer.get_extra_info("peername")[0]
            if is_allowed(peer, self._front.traffic.sources):
                await self._balance(client, peer)
        except OSError:
            pass  # either side went away
        finally:
            client.writer.transport.abort()

    async def _balance(self, client: Streams, peer: str) -> None:
        now = asyncio.get_running_loop().time()
        sticky = self._front.traffic.sticky_seconds
        for backend in self._turns.order(self._usable(self._front), peer, now=now, sticky=sticky):
            try:
                async with asyncio.timeout(DIAL_TIMEOUT):
                    member = Streams(*await dialled(self._wires, backend.address, backend.port))
            except (OSError, TimeoutError):
                continue
            self._turns.keep(peer, backend, now=now, sticky=sticky)
            await self._carry(client, member, backend)
            return

    async def _carry(self, client: Streams, member: Streams, backend: Backend) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 -- a coroutine runs in a task
        self._carried[task] = backend
        try:
            member.writer.write(self._header(client))
            async with asyncio.TaskGroup() as both:
                both.create_task(_pump(client.reader, member.writer))
                both.create_task(_pump(member.reader, client.writer))
            client.writer.close()
            with contextlib.suppress(OSError):
                await client.writer.wait_closed()
        except* OSError:
            pass
        finally:
            del self._carried[task]
            member.writer.transport.abort()

    def _header(self, client: Streams) -> bytes:
        version = self._front.traffic.proxy
        if version is ProxyHeader.NONE:
            return b""
        peer, own = (client.writer.get_extra_info(name) for name in ("peername", "sockname"))
        return header.encode(version, header.Peers(peer[:2], own[:2]))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry bytes until one side has said all; then tell the other side so."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()

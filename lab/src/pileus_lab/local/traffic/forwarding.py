"""TCP and UDP listeners of a balancer: each connection or client is forwarded to one member."""

import asyncio
import contextlib
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address, ip_network

from pileus_lab.local.model.records import ProxyHeader
from pileus_lab.local.traffic import proxy_protocol
from pileus_lab.local.traffic.desired import Backend, Front
from pileus_lab.local.traffic.sockets import Wires, bound, dialled, server_at


def is_allowed(client: str, sources: Sequence[str]) -> bool:
    """Whether a client may connect; without ranges, all may."""
    address = ip_address(client)
    return not sources or any(
        address in network
        for network in map(ip_network, sources)
        if network.version == address.version
    )


@dataclass(slots=True)
class Turns:
    """Selects members for one listener: in turn, or by affinity."""

    _given: int = 0
    _kept: dict[str, tuple[str, float]] = field(default_factory=dict[str, tuple[str, float]])
    """By client: its last member and when the affinity expires."""

    def order(
        self, backends: Sequence[Backend], client: str, *, now: float, sticky: int | None
    ) -> list[Backend]:
        """Returns the members to try, best first. A client without affinity gets the next one."""
        name, until = self._kept.get(client, ("", 0.0))
        if sticky is not None and until > now and any(one.name == name for one in backends):
            return sorted(backends, key=lambda one: one.name != name)
        if not backends:
            return []
        first = self._given % len(backends)
        self._given += 1
        return [*backends[first:], *backends[:first]]

    def keep(self, client: str, backend: Backend, *, now: float, sticky: int | None) -> None:
        """Records which member served a client."""
        if sticky is None:
            self._kept.clear()
            return
        self._kept = {one: kept for one, kept in self._kept.items() if kept[1] > now}
        self._kept[client] = (backend.name, now + sticky)


CHUNK = 64 * 1024
DIAL_TIMEOUT = 2.0

Usable = Callable[[Front], Sequence[Backend]]
"""The members of a listener that are healthy."""


@dataclass(frozen=True, slots=True)
class Streams:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class TcpFront:
    """One open TCP listener.

    A removed member gets no new connections; existing ones may drain.
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
        """Raises `OSError` if address and port are not available."""
        place = self._front.place
        self._server = await server_at(bound(place), self._connected, longest_line=CHUNK)
        await self._server.start_serving()

    def update(self, front: Front) -> None:
        self._front = front
        if any(backend not in front.backends for backend in self._carried.values()):
            loop = asyncio.get_running_loop()
            loop.call_later(front.traffic.drain_seconds, self._end_removed)

    def retire(self) -> None:
        """Accepts no more connections; existing ones drain."""
        self._stop_listening()
        self.update(replace(self._front, backends=()))

    def cut(self) -> None:
        """Closes everything at once."""
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
        return proxy_protocol.encode(version, proxy_protocol.Peers(peer[:2], own[:2]))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies bytes until one side closes, then closes the other side for writing."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


LARGEST = 65535
IDLE = 60.0
"""Seconds without a datagram after which a client is forgotten."""

Client = tuple[str, int]


@dataclass(slots=True)
class _Flow:
    """The flow of one client to its member."""

    backend: Backend
    socket: socket.socket
    used_at: float


class UdpFront(asyncio.DatagramProtocol):
    """One open UDP listener. Flows to a removed member drain as TCP connections do."""

    def __init__(self, front: Front, usable: Usable, wires: Wires) -> None:
        self._front = front
        self._usable = usable
        self._wires = wires
        self._turns = Turns()
        self._flows: dict[Client, _Flow] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Raises `OSError` if address and port are not available."""
        place = self._front.place
        self._transport, _ = await self._loop.create_datagram_endpoint(
            lambda: self, local_addr=(place.address, place.port)
        )

    def update(self, front: Front) -> None:
        self._front = front
        for client, flow in self._flows.items():
            if flow.backend not in front.backends:
                self._loop.call_later(front.traffic.drain_seconds, self._end_removed, client, flow)

    def retire(self) -> None:
        """Same as `cut`: without the socket no answer could be sent."""
        self.cut()

    def cut(self) -> None:
        """Closes everything at once."""
        for client, flow in list(self._flows.items()):
            self._end(client, flow)
        if self._transport:
            self._transport.close()

    def datagram_received(self, data: bytes, addr: Client) -> None:
        client = addr[:2]
        if not is_allowed(client[0], self._front.traffic.sources):
            return
        self._forget_idle()
        flow = self._flows.get(client) or self._begin(client)
        if flow is None:
            return
        flow.used_at = self._loop.time()
        try:
            flow.socket.send(data)
        except BlockingIOError:
            pass  # full; datagrams may get lost
        except OSError:
            self._end(client, flow)

    def _begin(self, client: Client) -> _Flow | None:
        now, sticky = self._loop.time(), self._front.traffic.sticky_seconds
        usable = self._usable(self._front)
        order = self._turns.order(usable, client[0], now=now, sticky=sticky)
        if not order:
            return None
        backend = order[0]
        self._turns.keep(client[0], backend, now=now, sticky=sticky)
        upstream = self._wires.towards_instances(socket.SOCK_DGRAM)
        try:
            upstream.connect((backend.address, backend.port))
        except OSError:  # no route leads there
            upstream.close()
            return None
        flow = _Flow(backend, upstream, now)
        self._flows[client] = flow
        self._loop.add_reader(upstream.fileno(), self._answer, client, flow)
        return flow

    def _answer(self, client: Client, flow: _Flow) -> None:
        try:
            data = flow.socket.recv(LARGEST)
        except BlockingIOError:
            return
        except OSError:
            self._end(client, flow)  # no listener; the next datagram is sent to another member
            return
        if self._transport:
            with contextlib.suppress(OSError):
                self._transport.sendto(data, client)

    def _forget_idle(self) -> None:
        limit = self._loop.time() - IDLE
        for client, flow in [item for item in self._flows.items() if item[1].used_at < limit]:
            self._end(client, flow)

    def _end_removed(self, client: Client, flow: _Flow) -> None:
        if flow.backend not in self._front.backends:  # it may have come back meanwhile
            self._end(client, flow)

    def _end(self, client: Client, flow: _Flow) -> None:
        if self._flows.get(client) is flow:
            del self._flows[client]
            self._loop.remove_reader(flow.socket.fileno())
            flow.socket.close()

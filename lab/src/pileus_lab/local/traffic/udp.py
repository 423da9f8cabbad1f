"""A balancer's UDP listener: a client's datagrams go to one member, whose answers come back."""

import asyncio
import contextlib
import socket
from dataclasses import dataclass

from pileus_lab.local.traffic.choice import Turns, is_allowed
from pileus_lab.local.traffic.tcp import Usable
from pileus_lab.local.traffic.wanted import Backend, Front
from pileus_lab.local.traffic.wires import Wires

LARGEST = 65535
IDLE = 60.0
"""Seconds without a datagram after which a client is forgotten."""

Client = tuple[str, int]


@dataclass(slots=True)
class _Flow:
    """One client's way to its member."""

    backend: Backend
    socket: socket.socket
    used_at: float


class UdpFront(asyncio.DatagramProtocol):
    """One open listener. Flows to a member that is taken away drain as TCP connections do."""

    def __init__(self, front: Front, usable: Usable, wires: Wires) -> None:
        self._front = front
        self._usable = usable
        self._wires = wires
        self._turns = Turns()
        self._flows: dict[Client, _Flow] = {}
        self._transport: asyncio.DatagramTransport | None = None
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Errors: `OSError` if the address and port cannot be had."""
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
        """As `cut`: without the socket no answer could get out."""
        self.cut()

    def cut(self) -> None:
        """End everything at once."""
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
            self._end(client, flow)  # nobody is there; the next datagram finds another member
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

"""Health checks: whether each member of each balancer can take traffic, checked periodically."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from pileus.cloud.balancer import Transport
from pileus_lab.local.model.records import Port, Probe
from pileus_lab.local.traffic.desired import Backend, Front
from pileus_lab.local.traffic.sockets import Wires, dialled

AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class Checking:
    """How members are checked."""

    interval: float = 1.0
    timeout: float = 1.0
    fall: int = 2
    """Consecutive failures after which a member gets no traffic."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A member to check."""

    balancer: str
    member: str
    address: str
    ports: tuple[Port, ...]
    probe: Probe | None


@dataclass(frozen=True, slots=True)
class _Finding:
    failures: int
    problem: str


def subjects(fronts: Sequence[Front]) -> tuple[Subject, ...]:
    """Each member once, with all ports that lead to it."""
    ports: dict[tuple[str, str, str, Probe | None], dict[tuple[int, Transport], Port]] = {}
    for front in fronts:
        for backend in front.backends:
            key = (front.balancer, backend.name, backend.address, front.traffic.probe)
            ports.setdefault(key, {})[front.port.key] = front.port
    return tuple(Subject(*key[:3], tuple(found.values()), key[3]) for key, found in ports.items())


class Checks:
    """The known health of members; `round` checks all of them once."""

    def __init__(self, settings: Checking, wires: Wires) -> None:
        self.settings = settings
        self._wires = wires
        self._found: dict[tuple[str, str], _Finding] = {}

    def problems(self) -> Mapping[tuple[str, str], str]:
        """Problem by balancer and member; empty: healthy."""
        return {key: found.problem for key, found in self._found.items()}

    def usable(self, front: Front) -> Sequence[Backend]:
        """Members not known to be unhealthy: one that was not checked yet may be tried."""
        down = self.settings.fall
        return [
            backend
            for backend in front.backends
            if (found := self._found.get((front.balancer, backend.name))) is None
            or found.failures < down
        ]

    async def round(self, asked: Sequence[Subject]) -> None:
        limit = asyncio.Semaphore(AT_ONCE)
        keys = {(one.balancer, one.member) for one in asked}
        self._found = {key: found for key, found in self._found.items() if key in keys}
        async with asyncio.TaskGroup() as group:
            for subject in asked:
                group.create_task(self._check(subject, limit))

    async def _check(self, subject: Subject, limit: asyncio.Semaphore) -> None:
        async with limit:
            problem = await problem_of(subject, self._wires, self.settings.timeout)
        key = (subject.balancer, subject.member)
        before = self._found.get(key)
        failures = (before.failures if before else self.settings.fall - 1) + 1 if problem else 0
        self._found[key] = _Finding(failures, problem)


async def problem_of(subject: Subject, wires: Wires, timeout: float) -> str:
    """Returns why the member cannot take traffic; empty if it can."""
    try:
        async with asyncio.timeout(timeout):
            if subject.probe:
                return await _probe(wires, subject.address, subject.probe)
            for port in subject.ports:
                await _reach(wires, subject.address, port)
    except TimeoutError:
        return "does not answer in time"
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""


async def _reach(wires: Wires, address: str, port: Port) -> None:
    if port.transport is Transport.TCP:
        _, writer = await dialled(wires, address, port.node_port)
        writer.transport.abort()
        return
    with wires.towards_instances(socket.SOCK_DGRAM) as datagrams:
        # A closed port is reported by ICMP, at the next use of the socket.
        datagrams.connect((address, port.node_port))
        datagrams.send(b"")
        await asyncio.sleep(0.01)
        datagrams.send(b"")


async def _probe(wires: Wires, address: str, probe: Probe) -> str:
    reader, writer = await dialled(wires, address, probe.node_port)
    try:
        writer.write(
            f"GET {probe.path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n".encode()
        )
        words = (await reader.readline()).split()
    finally:
        writer.transport.abort()
    status = words[1].decode("latin-1") if len(words) > 1 else "nothing"
    return "" if status == str(HTTPStatus.OK.value) else f"{probe.path} answers {status}"

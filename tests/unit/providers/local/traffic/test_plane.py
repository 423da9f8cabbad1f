"""Real sockets on loopback addresses: what clients of balancers see."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from pileus.clock import SystemClock
from pileus.cloud.balancer import Transport
from pileus_lab.local.cloud import LocalCloud
from pileus_lab.local.model.balancers import (
    AddMembers,
    CreateBalancer,
    DeleteBalancer,
    ListHealth,
    RemoveMembers,
    RemovePort,
    SetTraffic,
)
from pileus_lab.local.model.machines import (
    CreateMachine,
    DeleteMachine,
    FailPorts,
    StartMachine,
    StopMachine,
)
from pileus_lab.local.model.records import (
    Balancer,
    Member,
    Port,
    Probe,
    ProxyHeader,
    Traffic,
)
from pileus_lab.local.model.state import Settings
from pileus_lab.local.traffic.data_plane import carrying
from pileus_lab.local.traffic.health_checks import Checking
from tests.unit.providers.local.clouds import local_cloud

pytestmark = pytest.mark.real_time

PATIENCE = 20.0
HTTP, ECHO, HEALTHZ = 30080, 30053, 31000
TCP = Port(port=8080, node_port=HTTP)
UDP = Port(port=8053, node_port=ECHO, transport=Transport.UDP)


def settings(**changes: object) -> Settings:
    """Addresses that no other test process uses at the same time."""
    second, third = 100 + os.getpid() % 100, os.getpid() // 100 % 250
    pools = {
        "internal_pool": f"127.{second}.{third}.0/25",
        "balancer_pool": f"127.{second}.{third}.128/25",
    }
    return Settings(**{**pools, **changes})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Bed:
    """A cloud with three instances and one balancer, on real sockets."""

    cloud: LocalCloud
    balancer: Balancer

    @property
    def address(self) -> str:
        return self.cloud.state.balancers[self.balancer.id].addresses[0]

    @asynccontextmanager
    async def connected(self, address: str = "", client: str = "") -> AsyncGenerator["Connection"]:
        local = (client, 0) if client else None
        streams = await asyncio.open_connection(address or self.address, 8080, local_addr=local)
        try:
            yield Connection(*streams)
        finally:
            streams[1].transport.abort()

    async def get(self, path: str = "/", *, client: str = "") -> list[str]:
        """The lines of an answer; none if the connection was refused or cut."""
        try:
            async with self.connected(client=client) as connection:
                return await connection.get(path)
        except (OSError, asyncio.IncompleteReadError):
            return []

    async def served_by(self, times: int = 6, *, client: str = "") -> Counter[str]:
        answers = [await self.get(client=client) for _ in range(times)]
        return Counter(lines[0] if lines else "nobody" for lines in answers)

    async def becomes(self, names: set[str]) -> None:
        """Wait until exactly these answer."""
        async with asyncio.timeout(PATIENCE):
            while set(await self.served_by()) != names:
                await asyncio.sleep(0.02)

    async def says(self, holds: Callable[[dict[str, str]], bool]) -> None:
        """Wait until the health of the members is like that."""
        async with asyncio.timeout(PATIENCE):
            while not holds(await self.problems()):
                await asyncio.sleep(0.02)

    async def problems(self) -> dict[str, str]:
        health = await self.cloud.operate(ListHealth())
        return {one.member: one.problem for one in health.items}


@dataclass
class Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def get(self, path: str = "/") -> list[str]:
        self.writer.write(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
        answer = (await asyncio.wait_for(self.reader.read(), PATIENCE)).decode()
        head, _, body = answer.partition("\r\n\r\n")
        return body.splitlines() if head.startswith("HTTP/1.1 200") else []

    async def say(self, word: str) -> str:
        """What comes back for a line; nothing if the connection is cut."""
        try:
            self.writer.write(f"{word}\n".encode())
            return (await asyncio.wait_for(self.reader.readline(), PATIENCE)).decode().strip()
        except ConnectionError:
            return ""


@asynccontextmanager
async def bed(*, traffic: Traffic | None = None, families: tuple[str, ...] = ("IPv4",), **changes):
    cloud = local_cloud(SystemClock(), settings=settings(**changes))
    for name in ("a", "b", "c"):
        await cloud.call(CreateMachine(name=name))
    async with carrying(cloud, Checking(interval=0.05, timeout=5.0)):
        balancer = await cloud.call(
            CreateBalancer(
                name="web",
                ports=(TCP, UDP),
                members=tuple(Member(name=name) for name in ("a", "b", "c")),
                traffic=traffic or Traffic(),
                families=families,
            )
        )
        bed = Bed(cloud, balancer)
        await until(lambda: reachable(bed.address, 8080))
        yield bed


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


def reachable(address: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.settimeout(1)
        return probe.connect_ex((address, port)) == 0


async def datagram(address: str, client: socket.socket, word: bytes = b"hello") -> bytes:
    """The answer to a datagram that is sent again while none comes."""
    loop = asyncio.get_running_loop()
    for _ in range(40):
        await loop.sock_sendto(client, word, (address, 8053))
        try:
            return await asyncio.wait_for(loop.sock_recv(client, 1000), 0.5)
        except TimeoutError:
            continue
    raise TimeoutError


def udp_client() -> socket.socket:
    client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    client.setblocking(False)
    client.bind(("127.0.0.1", 0))
    return client


async def test_three_instances_answer_in_turn():
    async with bed() as it:
        await it.becomes({"a", "b", "c"})

        assert await it.served_by(9) == {"a": 3, "b": 3, "c": 3}


async def test_datagrams_of_three_clients_reach_three_instances_and_come_back():
    async with bed() as it:
        clients = [udp_client() for _ in range(3)]
        answers = [await datagram(it.address, client) for client in clients]
        again = [await datagram(it.address, client) for client in clients]
        for client in clients:
            client.close()

    assert sorted(answers) == [b"a hello", b"b hello", b"c hello"]
    assert again == answers


async def test_a_stopped_instance_is_taken_out_and_comes_back():
    async with bed() as it:
        await it.cloud.call(StopMachine(machine="b"))
        await it.becomes({"a", "c"})
        await it.says(lambda problems: problems["b"] == "Connection refused")

        await it.cloud.call(StartMachine(machine="b"))
        await it.becomes({"a", "b", "c"})
        await it.says(lambda problems: problems["b"] == "")


async def test_no_request_fails_while_an_instance_goes():
    async with bed() as it:
        await it.becomes({"a", "b", "c"})
        await it.cloud.call(DeleteMachine(machine="b"))

        served = await it.served_by(20)

        assert served["nobody"] == 0


async def test_an_instance_that_is_still_booting_does_not_answer_yet():
    async with bed(boot_seconds=0.5) as it:
        await it.becomes({"a", "b", "c"})


async def test_only_instances_that_pass_the_health_check_get_traffic():
    async with bed(traffic=Traffic(probe=Probe(node_port=HEALTHZ))) as it:
        await it.becomes({"a", "b", "c"})
        for name in ("a", "c"):
            await it.cloud.call(FailPorts(machine=name, ports=(HEALTHZ,)))
        await it.becomes({"b"})

        assert (await it.problems())["a"] == "/healthz answers 503"
        await it.cloud.call(FailPorts(machine="a"))
        await it.becomes({"a", "b"})


async def test_nobody_answers_where_nobody_is_healthy():
    async with bed() as it:
        for name in ("a", "b", "c"):
            await it.cloud.call(StopMachine(machine=name))

        await it.becomes({"nobody"})


async def test_a_sticky_client_stays_and_others_are_spread():
    async with bed(traffic=Traffic(sticky_seconds=600)) as it:
        first, second = await it.served_by(), await it.served_by(client="127.0.0.2")

        assert len(first) == len(second) == 1
        assert set(first) != set(second)
        await it.cloud.call(StopMachine(machine=next(iter(first))))
        async with asyncio.timeout(PATIENCE):
            while len(moved := await it.served_by()) != 1:
                await asyncio.sleep(0.02)
        assert set(moved) != set(first)


async def test_clients_outside_of_the_source_ranges_are_cut_off():
    async with bed(traffic=Traffic(sources=("127.0.0.2/32",))) as it:
        assert set(await it.served_by(3)) == {"nobody"}
        assert "nobody" not in await it.served_by(3, client="127.0.0.2")

        await it.cloud.call(SetTraffic(balancer=it.balancer.id, traffic=Traffic()))
        async with asyncio.timeout(PATIENCE):
            while "nobody" in await it.served_by(3):
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("version", [ProxyHeader.V1, ProxyHeader.V2])
async def test_the_client_s_address_reaches_the_instance_by_proxy_protocol(version: ProxyHeader):
    async with (
        bed(traffic=Traffic(proxy=version)) as it,
        it.connected(client="127.0.0.9") as connection,
    ):
        port = connection.writer.get_extra_info("sockname")[1]
        answer = await connection.get("/who")

    assert answer[1:] == [f"node port {HTTP}", f"client 127.0.0.9:{port}", "GET /who"]


async def test_old_connections_to_a_removed_member_drain():
    async with bed(traffic=Traffic(drain_seconds=1)) as it, it.connected() as connection:
        name = (await connection.say("hello")).split()[0]
        await it.cloud.call(RemoveMembers(balancer=it.balancer.id, names=(name,)))
        await it.becomes({"a", "b", "c"} - {name})

        assert await connection.say("still there?") in {f"{name} still there?", ""}
        async with asyncio.timeout(PATIENCE):
            while await connection.say("and now?"):
                await asyncio.sleep(0.05)


async def test_a_connection_goes_on_while_it_drains_and_after_its_member_came_back():
    async with bed(traffic=Traffic(drain_seconds=600)) as it, it.connected() as connection:
        name = (await connection.say("hello")).split()[0]
        await it.cloud.call(RemoveMembers(balancer=it.balancer.id, names=(name,)))
        await it.becomes({"a", "b", "c"} - {name})

        assert await connection.say("still there?") == f"{name} still there?"
        await it.cloud.call(AddMembers(balancer=it.balancer.id, members=(Member(name=name),)))
        await it.becomes({"a", "b", "c"})
        assert await connection.say("again") == f"{name} again"


async def test_a_removed_port_and_a_deleted_balancer_listen_no_more():
    async with bed() as it, it.connected() as connection:
        assert await connection.say("hello")
        await it.cloud.call(RemovePort(balancer=it.balancer.id, port=8080))
        await until(lambda: not reachable(it.balancer.addresses[0], 8080))
        assert await connection.say("draining")

        with udp_client() as client:
            assert await datagram(it.address, client)
        await it.cloud.call(DeleteBalancer(balancer=it.balancer.id))
        await until(lambda: not reachable(f"{it.balancer.addresses[0]}", 8053))


async def test_ipv6_clients_are_served():
    async with bed(families=("IPv4", "IPv6")) as it:
        await until(lambda: reachable("::1", 8080))
        async with it.connected("::1") as connection:
            answer = await connection.get()

    assert answer[0] in {"a", "b", "c"}


async def test_large_bodies_pass_whole_in_both_directions():
    async with bed() as it, it.connected() as connection:
        word = "x" * 60_000

        assert (await connection.say(word)).split()[1] == word


async def test_a_port_that_something_else_uses_is_told_and_taken_when_it_is_free():
    async with bed() as it:
        address = it.address.rsplit(".", 1)[0] + ".254"
        with socket.create_server((address, 9000)):
            other = await it.cloud.call(
                CreateBalancer(
                    name="late", requested=address, ports=(Port(port=9000, node_port=HTTP),)
                )
            )
            place = f"listener {address}:9000/TCP"
            assert other.problem.startswith(f"{place}: address already in use")
            assert "is in use" in (await it.problems())[place]
        await it.says(lambda problems: place not in problems)
        assert other.addresses == (address,)


async def test_nothing_listens_after_the_plane_has_ended():
    async with bed() as it:
        address, member = it.address, it.cloud.state.machine("a").internal[0]
        await it.becomes({"a", "b", "c"})

    assert not reachable(address, 8080)
    assert not reachable(member, HTTP)

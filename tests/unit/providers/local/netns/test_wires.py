"""Real namespaces: who answers, which routes lead there, and what is left behind (nothing)."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from pileus.clock import SystemClock
from pileus.cloud.balancer import Transport
from pileus_lab.local.cloud import LocalCloud
from pileus_lab.local.http_api import reaching
from pileus_lab.local.model.balancers import CreateBalancer
from pileus_lab.local.model.machines import (
    CreateMachine,
    DeleteMachine,
    StartMachine,
    StopMachine,
)
from pileus_lab.local.model.records import Balancer, Machine, Member, Port
from pileus_lab.local.model.routes import CreateRoute, DeleteRoute
from pileus_lab.local.model.state import Operation, Settings
from pileus_lab.local.netns.namespaces import EXTERNAL_POOL, INTERNAL_POOL, has_rights, ip_command
from pileus_lab.local.netns.plan import device_of
from pileus_lab.local.netns.sockets import NamespaceWires, namespaces
from pileus_lab.local.traffic.data_plane import carrying
from pileus_lab.local.traffic.health_checks import Checking
from pileus_lab.local.traffic.sockets import dialled
from tests.unit.providers.local.clouds import local_cloud

CAN = bool(ip_command()) and has_rights(Path("/proc/self/status").read_text())
pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not CAN, reason="network namespaces: need root and the command `ip`"),
]

PATIENCE = 25.0
NODE_PORT, DATAGRAMS = 30080, 30053
PORTS = (
    Port(port=8080, node_port=NODE_PORT),
    Port(port=8053, node_port=DATAGRAMS, transport=Transport.UDP),
)


def settings() -> Settings:
    """Balancers on addresses that no other test process uses at the same time."""
    second, third = 100 + os.getpid() % 100, os.getpid() // 100 % 250
    return Settings(
        internal_pool=INTERNAL_POOL,
        external_pool=EXTERNAL_POOL,
        balancer_pool=f"127.{second}.{third}.64/26",
    )


@dataclass(frozen=True)
class Bed:
    cloud: LocalCloud
    wires: NamespaceWires
    address: str

    async def through_balancer(self) -> str:
        """Who answers a client outside; empty: nobody."""
        return await asked(lambda: asyncio.open_connection(self.address, 8080))

    async def from_router(self, address: str) -> str:
        """Who answers at a node port, asked from inside; empty: nobody."""
        return await asked(lambda: dialled(self.wires, address, NODE_PORT))

    def machine(self, name: str) -> Machine:
        return self.cloud.state.machine(name)

    def links(self) -> dict[str, bool]:
        """The router's links to instances, and which are up."""
        router = self.wires._router
        lines = router.inside(lambda: shown("-o", "link")).splitlines()
        words = [line.split() for line in lines if ": v" in line]
        return {one[1].partition("@")[0]: "UP" in one[2].strip("<>").split(",") for one in words}

    async def answers(self, names: set[str]) -> None:
        async with asyncio.timeout(PATIENCE):
            while {await self.through_balancer() for _ in range(6)} != names:
                await asyncio.sleep(0.02)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def asked(connect: Callable[[], Awaitable[Streams]]) -> str:
    try:
        async with asyncio.timeout(5):
            reader, writer = await connect()
            try:
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                answer = (await reader.read()).decode()
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError):
        return ""
    return answer.partition("\r\n\r\n")[2].partition("\n")[0]


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await holds():
            await asyncio.sleep(0.02)


@asynccontextmanager
async def bed() -> AsyncGenerator[Bed]:
    cloud = local_cloud(SystemClock(), settings=settings())
    with namespaces() as wires:
        async with carrying(cloud, Checking(interval=0.1, timeout=5.0), wires):
            balancer = await furnish(cloud.call)
            yield Bed(cloud, wires, balancer.addresses[0])


async def furnish(call: Callable[[Operation[Machine | Balancer]], Awaitable[object]]) -> Balancer:
    for name in ("a", "b", "c"):
        await call(CreateMachine(name=name, ipv6=True))
    members = tuple(Member(name=name) for name in ("a", "b", "c"))
    balancer = await call(CreateBalancer(name="web", ports=PORTS, members=members))
    assert isinstance(balancer, Balancer)
    return balancer


async def test_three_instances_answer_through_a_balancer_and_a_stopped_one_does_not():
    async with bed() as there:
        await there.answers({"a", "b", "c"})
        b = there.machine("b")

        await there.cloud.call(StopMachine(machine="b"))
        await there.answers({"a", "c"})
        assert await there.from_router(b.internal[0]) == ""

        async def is_down() -> bool:
            return there.links()[device_of(b.id)] is False

        await until(is_down)

        await there.cloud.call(StartMachine(machine="b"))
        await there.answers({"a", "b", "c"})
        assert await there.from_router(b.internal[0]) == "b"


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
async def test_an_instance_reaches_another_one(family: socket.AddressFamily):
    async with bed() as there:
        await there.answers({"a", "b", "c"})
        namespace = there.wires._instances[there.machine("a").id]
        target = there.machine("c").internal[family is socket.AF_INET6]

        async def connect() -> Streams:
            made = namespace.inside(lambda: socket.socket(family, socket.SOCK_STREAM))
            made.setblocking(False)
            await asyncio.get_running_loop().sock_connect(made, (target, NODE_PORT))
            return await asyncio.open_connection(sock=made)

        assert await asked(connect) == "c"


async def test_datagrams_come_back_through_the_balancer():
    async with bed() as there:
        await there.answers({"a", "b", "c"})
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect((there.address, 8053))

            async def is_answered() -> bool:
                try:
                    await loop.sock_sendall(client, b"hello")
                    answer = await asyncio.wait_for(loop.sock_recv(client, 100), 1)
                except (OSError, TimeoutError):
                    return False
                return answer in {b"a hello", b"b hello", b"c hello"}

            await until(is_answered)


async def test_a_route_leads_to_its_instance_until_it_is_deleted():
    async with bed() as there:
        await there.answers({"a", "b", "c"})
        assert await there.from_router("10.244.7.1") == ""

        await there.cloud.call(CreateRoute(destination="10.244.7.0/24", target="b"))

        async def leads() -> bool:
            return await there.from_router("10.244.7.1") == "b"

        await until(leads)

        await there.cloud.call(DeleteRoute(destination="10.244.7.0/24"))

        async def is_gone() -> bool:
            return await there.from_router("10.244.7.1") == ""

        await until(is_gone)
        await there.answers({"a", "b", "c"})


async def test_a_route_that_the_kernel_refuses_stops_no_other():
    async with bed() as there:
        await there.answers({"a", "b", "c"})
        await there.cloud.call(CreateRoute(destination="224.0.0.1/32", target="a"))
        await there.cloud.call(CreateRoute(destination="10.244.8.0/24", target="c"))

        async def leads() -> bool:
            return await there.from_router("10.244.8.1") == "c"

        await until(leads)


async def test_a_deleted_instance_takes_its_namespace_along_and_the_end_takes_all():
    before = held_by(os.getpid())
    async with bed() as there:
        await there.answers({"a", "b", "c"})
        assert len(held_by(os.getpid()) - before) == 4

        links = set(there.links())
        gone = device_of(there.machine("a").id)
        await there.cloud.call(DeleteMachine(machine="a"))

        async def is_gone() -> bool:
            return len(held_by(os.getpid()) - before) == 3

        await until(is_gone)
        assert set(there.links()) == links - {gone}
        await there.answers({"b", "c"})

    assert held_by(os.getpid()) == before


def held_by(pid: int) -> set[str]:
    """The namespaces whose descriptors a process holds, by inode."""
    found: set[str] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(descriptor)
        except OSError:
            continue  # closed meanwhile
        if target.startswith("net:["):
            found.add(target)
    return found


def held_anywhere() -> set[str]:
    """All network namespaces that a process lives in or holds; others the kernel removes."""
    found: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found |= held_by(int(process.name)) | {
                os.readlink(task / "ns" / "net") for task in (process / "task").iterdir()
            }
        except OSError:
            continue  # ended meanwhile
    return found


def own_network() -> str:
    """Links, addresses and routes of the namespace in which the tests run."""
    return (
        shown("-o", "link")
        + shown("-4", "-o", "address")
        + shown("-4", "route", "show", "table", "all")
    )


def shown(*words: str) -> str:
    command = [ip_command() or "ip", *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def served(directory: Path, *prefix: str) -> Generator[subprocess.Popen[str]]:
    config = directory / "cloud.yaml"
    config.write_text(f"balancerPool: {settings().balancer_pool}\n")
    command = [*prefix, sys.executable, "-m", "pileus", "local", "serve", "--network=netns"]
    command += ["--config", str(config), "--endpoint", str(directory / "local.sock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            assert "is served at" in process.stdout.readline()
            yield process
        finally:
            process.kill()


def unprivileged() -> list[str]:
    """The server may not do what root may: it has to make a user namespace."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("network namespaces without rights: need the command `setpriv`")
    return [setpriv, "--bounding-set", "-sys_admin,-net_admin"]


@pytest.mark.parametrize("is_privileged", [True, False], ids=["root", "user namespace"])
async def test_a_killed_server_leaves_nothing_behind(tmp_path: Path, *, is_privileged: bool):
    before = own_network()
    with served(tmp_path, *([] if is_privileged else unprivileged())) as process:
        async with reaching(tmp_path / "local.sock") as api:
            balancer = await furnish(api.call)

        async def all_answer() -> bool:
            address = balancer.addresses[0]
            answers = [
                await asked(lambda: asyncio.open_connection(address, 8080)) for _ in range(6)
            ]
            return set(answers) == {"a", "b", "c"}

        await until(all_answer)
        made = held_by(process.pid)
        during = own_network()
        process.kill()
        process.wait()

    assert len(made) == 4
    assert not made & held_anywhere()
    assert before == during == own_network()

"""API server ▸ cloud ▸ traffic ▸ kubelets ▸ manager: one process, as nested blocks.

Each part ends with its block, so the demo leaves nothing behind, even after Ctrl-C during the
start.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from urllib.parse import urlsplit

from pileus.app.background import background
from pileus.clock import Clock, SystemClock
from pileus.cloud.balancer import Effect
from pileus.telemetry.logs import Verbosity
from pileus_lab.apiserver.server import ServerInfo, serving_api
from pileus_lab.demo.cluster import Cluster, Ports, Shop, api_client, seen_cluster
from pileus_lab.demo.facts import balancer_row, cloud_changes, event_row, listeners, node_rows
from pileus_lab.demo.host import FRONT_PORTS, NODE_PORTS, Folder, free_port
from pileus_lab.demo.manager import configuration, manage, report_awaited, world_of
from pileus_lab.demo.state import Board, Sight
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.http_api import serving
from pileus_lab.local.loopback import claimed_pools, last_address
from pileus_lab.local.model.machines import CreateMachine, DeleteMachine
from pileus_lab.local.model.records import Pools
from pileus_lab.local.model.state import A, Operation, Settings
from pileus_lab.local.traffic.data_plane import carrying
from pileus_lab.local.traffic.health_checks import Checking
from pileus_lab.node_agents.agents import Cluster as AgentsCluster
from pileus_lab.node_agents.agents import Pace, run_agents

BOOT_SECONDS = 0.3
"""Seconds: long enough to be seen."""
KUBELETS = Pace(look=0.1, silence=1.5)
"""Faster than real kubelets, so that the demo is short."""
EVENTS_SHOWN = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Props:
    """The parts of the environment."""

    folder: Folder
    board: Board
    verbosity: Verbosity
    clock: Clock
    random: Random


@dataclass(frozen=True, slots=True)
class Operator:
    """The cloud as its operator uses it: faults affect only the manager."""

    cloud: LocalCloud

    async def call(self, operation: Operation[A]) -> A:
        return await self.cloud.operate(operation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the scenario acts on."""

    url: str
    cloud: LocalCloud
    cluster: Cluster
    shop: Shop
    listened: set[tuple[str, int]]
    """Every address and port on which balancers and their members listen or listened."""

    async def create_instances(self, names: Sequence[str]) -> None:
        for name in names:
            await self.cloud.operate(CreateMachine(name=name))

    async def lose_instance(self, name: str) -> None:
        await self.cloud.operate(DeleteMachine(machine=name))

    def places(self) -> set[tuple[str, int]]:
        """Every address and port on which something listens or listened."""
        server = urlsplit(self.url)
        return {(server.hostname or "", server.port or 0), *self.listened}

    def sight(self) -> Sight:
        state = self.cloud.state
        nodes = self.cluster.nodes().values()
        answers = self.shop.answers
        return Sight(
            nodes=node_rows(state.machines.values(), nodes, self.cloud.now()),
            balancers=tuple(balancer_row(one, answers) for one in state.balancers.values()),
            events=tuple(event_row(one) for one in self.cluster.events()[-EVENTS_SHOWN:]),
        )


def props(folder: Folder, board: Board, verbosity: Verbosity) -> Props:
    return Props(
        folder=folder,
        board=board,
        verbosity=verbosity,
        clock=SystemClock(),
        random=SystemRandom(),
    )


@asynccontextmanager
async def staged(given: Props) -> AsyncGenerator[Stage]:
    """Runs everything while the block lasts. Raises if a part cannot start."""
    with claimed_pools(Pools()) as pools:
        spare = last_address(pools.balancers)
        ports = Ports(free_port(spare, FRONT_PORTS), free_port(spare, NODE_PORTS))
        folder, board = given.folder, given.board
        async with (
            _served_api(given) as server,
            _served_cloud(given, pools) as (cloud, listened),
            _kubelets(given, cloud),
            seen_cluster(folder.kubeconfig, given.random, board) as cluster,
            _manager(given),
        ):
            shop = Shop(cluster, ports)
            stage = Stage(
                url=server.url, cloud=cloud, cluster=cluster, shop=shop, listened=listened
            )
            board.sight = stage.sight
            yield stage


@asynccontextmanager
async def _served_api(given: Props) -> AsyncGenerator[ServerInfo]:
    async with serving_api(clock=given.clock) as server:
        await asyncio.to_thread(_write_private, given.folder.kubeconfig, server.kubeconfig())
        given.board.note("demo", Effect.CREATE, f"API server at {server.url}")
        yield server


@asynccontextmanager
async def _served_cloud(
    given: Props, pools: Pools
) -> AsyncGenerator[tuple[LocalCloud, set[tuple[str, int]]]]:
    """Runs a cloud in memory: used directly by the demo, on a socket by the manager and by users.

    Also yields the addresses and ports on which anything in it ever listened.
    """
    settings = Settings(
        internal_pool=pools.internal,
        balancer_pool=pools.balancers,
        external_pool=pools.external,
        boot_seconds=BOOT_SECONDS,
    )
    cloud = LocalCloud(CloudContext(clock=given.clock, chance=given.random, settings=settings))
    folder = given.folder
    config = json.dumps({"endpoint": str(folder.socket)}).encode()
    await asyncio.to_thread(_write_private, folder.cloud_config, config)
    listened = _report_changes(cloud, given.board)
    async with carrying(cloud, Checking()), serving(cloud, folder.socket):
        given.board.note("demo", Effect.CREATE, f"local cloud with addresses {pools.internal}")
        yield cloud, listened


@asynccontextmanager
async def _kubelets(given: Props, cloud: LocalCloud) -> AsyncGenerator[None]:
    async with api_client(given.folder.kubeconfig, "kubelet") as client:
        cluster = AgentsCluster(client, given.clock, pace=KUBELETS)
        async with background(run_agents(Operator(cloud), cluster)):
            yield


@asynccontextmanager
async def _manager(given: Props) -> AsyncGenerator[None]:
    """Runs the manager and reports its plans."""
    config = configuration(given.folder)
    world = world_of(given.random, given.verbosity, given.board)
    async with (
        background(manage(config, world)),
        background(report_awaited(config, world, given.board)),
    ):
        given.board.note("demo", Effect.CREATE, "the manager")
        yield


def _report_changes(cloud: LocalCloud, board: Board) -> set[tuple[str, int]]:
    before = cloud.state
    listened: set[tuple[str, int]] = set()

    def report() -> None:
        nonlocal before
        listened.update(listeners(cloud.state))
        for effect, text in cloud_changes(before, cloud.state):
            board.note("cloud", effect, text)
        before = cloud.state

    cloud.watch(report)
    return listened


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)

"""One agent for each running machine: registers its node and keeps it alive."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from pileus.clock import Clock
from pileus.cloud.errors import CloudError
from pileus.kube.client import Client
from pileus.kube.errors import AlreadyExists, KubeError, NotFound
from pileus.kube.model.coordination_v1 import LEASES
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.patch import MergePatch, StrategicPatch
from pileus.telemetry.log import Log
from pileus_lab.local.api import Api, provider_id
from pileus_lab.local.model.machines import ListMachines
from pileus_lab.local.model.records import Machine, Power
from pileus_lab.local.model.state import TYPES
from pileus_lab.node_agents import node
from pileus_lab.node_agents.node import LEASE_NAMESPACE, Host, Registration

log = Log(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Intervals and time limits of agents, in seconds."""

    look: float = 0.5
    """Between two lists of the cloud's machines."""
    lease: float = 10.0
    status: float = 300.0
    retry: float = 2.0
    silence: float | None = 40.0
    """After which the conditions of a silent node become Unknown. None: a
    kube-controller-manager does that, and removes the taint of new nodes."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What agents share: the cluster's client and their settings."""

    client: Client
    clock: Clock
    registration: Registration = field(default_factory=Registration)
    pace: Pace = field(default_factory=Pace)


class Agent:
    def __init__(self, host: Host, cluster: Cluster) -> None:
        self._host = host
        self._cluster = cluster
        self._since = cluster.clock.now()

    async def run(self) -> None:
        """Registers the node once, as a kubelet does when it starts, then renews the lease.

        A node that is deleted meanwhile is created again only when the machine restarts.
        """
        registered = await self._register()
        pace = self._cluster.pace
        renewals_per_status = max(1, round(pace.status / pace.lease))
        count = 0
        while True:
            is_due = count % renewals_per_status == 0
            if await self._keep_alive(registered, with_status=is_due):
                count += 1
                await asyncio.sleep(pace.lease)
            else:
                await asyncio.sleep(pace.retry)

    async def _register(self) -> Node:
        while True:
            try:
                return await self._create_or_get()
            except KubeError as error:
                log.error("Cannot register node", error=error, node=self._host.name)
                await asyncio.sleep(self._cluster.pace.retry)

    async def _create_or_get(self) -> Node:
        client = self._cluster.client
        body = node.new_node(self._host, self._cluster.registration)
        try:
            made = await client.create(NODES, body)
        except AlreadyExists:
            return await client.get(NODES, self._host.name)
        log.info("Node registered", node=self._host.name)
        return made

    async def _keep_alive(self, registered: Node, *, with_status: bool) -> bool:
        try:
            await self._renew(registered)
            if with_status:
                await self._post_status()
        except KubeError as error:
            log.error("Cannot renew node lease", error=error, node=self._host.name)
            return False
        return True

    async def _renew(self, registered: Node) -> None:
        client, name, now = self._cluster.client, self._host.name, self._cluster.clock.now()
        try:
            patch = MergePatch(node.renewal(now))
            await client.patch(LEASES, name, patch, namespace=LEASE_NAMESPACE)
        except NotFound:
            body = node.new_lease(name, registered.metadata.uid, now)
            await client.create(LEASES, body, namespace=LEASE_NAMESPACE)

    async def _post_status(self) -> None:
        now = self._cluster.clock.now()
        body = node.alive_status(self._host, self._cluster.registration, now, self._since)
        client, name = self._cluster.client, self._host.name
        try:
            alive = await client.patch(NODES, name, StrategicPatch(body), subresource="status")
            patch = node.without_not_ready(alive)
            if patch and self._cluster.pace.silence is not None:
                await client.patch(NODES, name, MergePatch(patch))
        except NotFound:
            log.info("Node was deleted while its machine runs", node=self._host.name)


@dataclass(slots=True)
class _Silent:
    """A node whose machine does not run."""

    since: float
    """By the clock of the event loop."""
    is_told: bool = False


async def run_agents(api: Api, cluster: Cluster) -> None:
    """Runs the agents of the cloud's machines until cancelled."""
    async with asyncio.TaskGroup() as tasks:
        await _Agents(api, cluster, tasks).follow()


class _Agents:
    def __init__(self, api: Api, cluster: Cluster, tasks: asyncio.TaskGroup) -> None:
        self._api = api
        self._cluster = cluster
        self._tasks = tasks
        self._running: dict[str, tuple[Machine, asyncio.Task[None]]] = {}
        """By machine id."""
        self._silent: dict[str, _Silent] = {}
        """By node name."""

    async def follow(self) -> None:
        while True:
            try:
                page = await self._api.call(ListMachines())
            except CloudError as error:
                log.error("Cannot list machines", error=error)
            else:
                if page.is_complete:
                    self._adapt(page.items)
                    await self._report_silence({machine.name for machine in page.items})
            await asyncio.sleep(self._cluster.pace.look)

    def _adapt(self, machines: tuple[Machine, ...]) -> None:
        up = {machine.id: machine for machine in machines if machine.power is Power.RUNNING}
        for identity in [identity for identity in self._running if identity not in up]:
            machine, task = self._running.pop(identity)
            task.cancel()
            self._fall_silent(machine.name)
        for machine in machines:
            if machine.power is Power.STOPPED:
                self._fall_silent(machine.name)
        for identity, machine in up.items():
            if identity not in self._running:
                self._silent.pop(machine.name, None)
                task = self._tasks.create_task(Agent(_host(machine), self._cluster).run())
                self._running[identity] = (machine, task)

    def _fall_silent(self, name: str) -> None:
        self._silent.setdefault(name, _Silent(asyncio.get_running_loop().time()))

    async def _report_silence(self, existing: set[str]) -> None:
        grace = self._cluster.pace.silence
        now = asyncio.get_running_loop().time()
        for name, silent in list(self._silent.items()):
            try:
                if grace is not None and not silent.is_told and now - silent.since >= grace:
                    await self._mark(name)
                    silent.is_told = True
                if name not in existing and await self._is_gone(name):
                    del self._silent[name]
            except KubeError as error:
                log.error("Cannot update status of silent node", error=error, node=name)

    async def _mark(self, name: str) -> None:
        body = node.silent_status(self._cluster.clock.now())
        try:
            await self._cluster.client.patch(
                NODES, name, StrategicPatch(body), subresource="status"
            )
        except NotFound:
            return
        log.info("Node stopped reporting", node=name)

    async def _is_gone(self, name: str) -> bool:
        """Returns whether the node was deleted; then its lease is deleted too."""
        try:
            await self._cluster.client.get(NODES, name)
        except NotFound:
            pass
        else:
            return False
        with contextlib.suppress(NotFound):
            await self._cluster.client.delete(LEASES, name, namespace=LEASE_NAMESPACE)
        return True


def _host(machine: Machine) -> Host:
    size = TYPES[machine.type]
    identity = provider_id(machine.id)
    return Host(machine.name, machine.uuid, identity, size.cpus, size.memory_gib)

"""The agents of all machines: one runs while its machine does; the silence of others is told.

cloud ──machines──▶ running: an agent each · stopped: silent since · gone: tidied up
"""

import asyncio
import contextlib
from dataclasses import dataclass

from pileus.cloud.errors import CloudError
from pileus.kube.errors import KubeError, NotFound
from pileus.kube.model.coordination_v1 import LEASES
from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import StrategicPatch
from pileus.telemetry.log import Log
from pileus_lab.local.api import Api
from pileus_lab.local.identity import provider_id
from pileus_lab.local.model.machines import ListMachines
from pileus_lab.local.model.records import Machine, Power
from pileus_lab.local.model.state import TYPES
from pileus_lab.node_agents import node
from pileus_lab.node_agents.agent import Agent, Cluster
from pileus_lab.node_agents.node import LEASE_NAMESPACE, Host

log = Log(__name__)


@dataclass(slots=True)
class _Silent:
    """A node whose machine does not run."""

    since: float
    """On the event loop's clock."""
    is_told: bool = False


async def run_agents(api: Api, cluster: Cluster) -> None:
    """Be the kubelets of that cloud's machines, until cancelled."""
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
                log.error("Cannot see the machines", error=error)
            else:
                if page.is_complete:
                    self._adapt(page.items)
                    await self._tell_silence({machine.name for machine in page.items})
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

    async def _tell_silence(self, existing: set[str]) -> None:
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
                log.error("Cannot tell of a silent node", error=error, node=name)

    async def _mark(self, name: str) -> None:
        body = node.silent_status(self._cluster.clock.now())
        try:
            await self._cluster.client.patch(
                NODES, name, StrategicPatch(body), subresource="status"
            )
        except NotFound:
            return
        log.info("Node is silent", node=name)

    async def _is_gone(self, name: str) -> bool:
        """Whether the node was deleted too; its lease is tidied up then."""
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

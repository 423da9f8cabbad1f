"""The local cloud's machines as nodes, on the embedded API server, in virtual time."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any

from pileus.cloud.errors import CloudError
from pileus.kube.client import Client
from pileus.kube.errors import NotFound
from pileus.kube.model.coordination_v1 import LEASES
from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import MergePatch
from pileus.kube.transport import Request
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.model.account import AddFault
from pileus_lab.local.model.machines import (
    CreateMachine,
    DeleteMachine,
    StartMachine,
    StopMachine,
)
from pileus_lab.local.model.records import FaultKind
from pileus_lab.node_agents.agents import Cluster, Pace, run_agents
from pileus_lab.node_agents.node import LEASE_NAMESPACE, Registration


class Counting:
    """A transport that counts what is written."""

    def __init__(self, inner: InProcessTransport) -> None:
        self._inner = inner
        self.writes: list[str] = []
        self.is_down = False

    def send(self, request: Request):
        if self.is_down:
            request = Request(method="GET", path="/api/v1/nodes/../nowhere")
        elif request.method != "GET":
            self.writes.append(f"{request.method} {request.path}")
        return self._inner.send(request)


@dataclass(frozen=True)
class Bed:
    cloud: LocalCloud
    client: Client
    transport: Counting

    async def node(self, name: str = "a") -> dict[str, Any]:
        return json.loads(await self.client.raw("GET", f"/api/v1/nodes/{name}"))

    async def ready(self, name: str = "a") -> str:
        conditions = (await self.node(name))["status"]["conditions"]
        return next(one["status"] for one in conditions if one["type"] == "Ready")

    async def renewed(self, name: str = "a") -> datetime:
        lease = await self.client.get(LEASES, name, namespace=LEASE_NAMESPACE)
        assert lease.spec
        assert lease.spec.renew_time
        return lease.spec.renew_time

    async def exists(self, find: Callable[[], Any]) -> bool:
        try:
            await find()
        except NotFound:
            return False
        return True


@asynccontextmanager
async def bed(
    registration: Registration | None = None, pace: Pace | None = None
) -> AsyncGenerator[Bed]:
    clock = LoopClock()
    api = api_in_memory(clock=clock, random=Random(0))
    transport = Counting(InProcessTransport(api))
    client = Client(transport, user_agent="test", metrics=Metrics(MetricRegistry()))
    cloud = LocalCloud(CloudContext(clock=clock, chance=Random(1)))
    await cloud.call(CreateMachine(name="a", type="medium"))
    cluster = Cluster(client, clock, registration or Registration(), pace or Pace())
    async with asyncio.TaskGroup() as tasks:
        agents = tasks.create_task(run_agents(cloud, cluster))
        await asyncio.sleep(1)
        yield Bed(cloud, client, transport)
        agents.cancel()


async def test_a_machine_registers_as_a_tainted_node_that_is_ready():
    async with bed() as it:
        node = await it.node()

        assert node["spec"]["taints"] == [
            {
                "key": "node.cloudprovider.kubernetes.io/uninitialized",
                "value": "true",
                "effect": "NoSchedule",
            }
        ]
        assert "providerID" not in node["spec"]
        labels = node["metadata"]["labels"]
        assert labels["kubernetes.io/hostname"] == "a"
        assert labels["kubernetes.io/os"] == "linux"
        assert labels["kubernetes.io/arch"] == "amd64"
        assert node["status"]["capacity"] == {"cpu": "4", "memory": "16Gi", "pods": "110"}
        assert node["status"]["nodeInfo"]["systemUUID"] == it.cloud.state.machine("a").uuid
        assert await it.ready() == "True"


async def test_a_kubelet_may_know_its_provider_id():
    async with bed(Registration(reports_provider_id=True, labels={"pool": "x"})) as it:
        node = await it.node()

        assert node["spec"]["providerID"] == f"local://{it.cloud.state.machine('a').id}"
        assert node["metadata"]["labels"]["pool"] == "x"


async def test_a_node_stays_alive_with_few_writes():
    async with bed() as it:
        del it.transport.writes[:]
        await asyncio.sleep(1200)

        assert (LoopClock().now() - await it.renewed()).total_seconds() <= 10
        leases = [write for write in it.transport.writes if "leases" in write]
        statuses = [write for write in it.transport.writes if write.endswith("/status")]
        assert len(leases) == 120
        assert len(statuses) == 4
        assert len(it.transport.writes) == 124


async def test_a_stopped_machine_falls_silent_and_is_ready_again_when_it_starts():
    async with bed() as it:
        await it.cloud.call(StopMachine(machine="a"))
        await asyncio.sleep(39)
        renewed = await it.renewed()
        assert await it.ready() == "True"

        await asyncio.sleep(3)
        assert await it.ready() == "Unknown"
        assert await it.renewed() == renewed
        await it.cloud.call(StartMachine(machine="a"))
        await asyncio.sleep(1)
        assert await it.ready() == "True"


async def test_where_somebody_else_watches_silence_it_is_not_told():
    async with bed(pace=Pace(silence=None)) as it:
        await it.cloud.call(StopMachine(machine="a"))
        await asyncio.sleep(100)

        assert await it.ready() == "True"
        taints = [taint["key"] for taint in (await it.node())["spec"]["taints"]]
        assert "node.kubernetes.io/not-ready" in taints


async def test_a_deleted_machine_leaves_its_node_to_others_and_then_no_lease():
    async with bed() as it:
        await it.cloud.call(DeleteMachine(machine="a"))
        await asyncio.sleep(60)
        assert await it.ready() == "Unknown"

        await it.client.delete(NODES, "a")
        await asyncio.sleep(1)

        assert not await it.exists(it.renewed)
        del it.transport.writes[:]
        await asyncio.sleep(60)
        assert it.transport.writes == []


async def test_a_node_deleted_under_a_running_machine_comes_back_when_the_machine_restarts():
    async with bed() as it:
        await it.client.delete(NODES, "a")
        await asyncio.sleep(100)
        assert not await it.exists(it.node)

        await it.cloud.call(StopMachine(machine="a"))
        await asyncio.sleep(1)
        await it.cloud.call(StartMachine(machine="a"))
        await asyncio.sleep(1)

        assert await it.ready() == "True"


async def test_a_machine_made_anew_under_the_same_name_keeps_the_node_and_its_labels():
    async with bed() as it:
        await it.client.patch(NODES, "a", MergePatch({"metadata": {"labels": {"kept": "yes"}}}))
        await it.cloud.call(DeleteMachine(machine="a"))
        await it.cloud.call(CreateMachine(name="a"))
        await asyncio.sleep(1)

        node = await it.node()
        assert node["metadata"]["labels"]["kept"] == "yes"
        assert node["status"]["nodeInfo"]["systemUUID"] == it.cloud.state.machine("a").uuid


async def test_a_cluster_that_is_away_for_a_while_harms_nothing():
    async with bed() as it:
        it.transport.is_down = True
        await it.cloud.call(CreateMachine(name="b"))
        await asyncio.sleep(120)
        it.transport.is_down = False
        await asyncio.sleep(3)

        assert await it.ready("b") == "True"
        assert (LoopClock().now() - await it.renewed()).total_seconds() <= 10


async def test_a_cloud_that_fails_or_answers_in_part_stops_no_node():
    async with bed() as it:
        for kind in (FaultKind.ERROR, FaultKind.PARTIAL):
            await it.cloud.operate(AddFault(kind=kind, share=1.0))
            await asyncio.sleep(100)
            try:
                await it.cloud.call(StartMachine(machine="a"))
            except CloudError:
                pass

            assert await it.ready() == "True"
            assert (LoopClock().now() - await it.renewed()).total_seconds() <= 10

"""The cloud-node-lifecycle controller as the manager starts it: its flags have their effects."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from pileus.app.leader import Leases, lead
from pileus.app.registry import Controllers
from pileus.cloud.interface import Cloud
from pileus.cloud.model import Absent, Found, Instance, InstanceId, InstanceState, NodeName, NodeRef
from pileus.controllers.lifecycle.descriptor import DESCRIPTOR
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import EVENTS, NODES
from pileus.objects.descriptor import Skipped
from pileus.objects.nodes import taints_of
from pileus.server.health import Health
from tests.unit.app.stage import manager_context


class Machines:
    """Two that are there, of which one is stopped; all others are gone."""

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        assert fresh
        return {node.name: self._machine(node.name) for node in nodes}

    def _machine(self, name: str) -> Found:
        states = {"runs": InstanceState.RUNNING, "stopped": InstanceState.STOPPED}
        if name not in states:
            return Absent("no such machine")
        return Instance(id=InstanceId(name), provider_id=f"fake://{name}", state=states[name])


@asynccontextmanager
async def leading(*flags: str) -> AsyncGenerator[Client]:
    """A manager with this one controller, on a cluster with four nodes that are not ready."""
    cloud = Cloud(name="fake", instances=Machines())
    async with manager_context(cloud, *flags) as context:
        client = context.clients.main("stage")
        for name in ("runs", "stopped", "lost-1", "lost-2"):
            spec = {"providerID": f"fake://{name}"}
            await client.create(NODES, {"metadata": {"name": name}, "spec": spec})
        alone = replace(context, controllers=Controllers(DESCRIPTOR))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(lead(alone, Leases(), Health()))
            yield client
            task.cancel()


async def names(client: Client) -> set[str]:
    return {node.metadata.name for node in (await client.list(NODES)).items}


async def taints(client: Client, name: str) -> set[str]:
    return {taint.key for taint in taints_of(await client.get(NODES, name))}


async def test_by_default_the_guard_holds() -> None:
    async with leading() as client:
        await asyncio.sleep(120)

        assert await names(client) == {"runs", "stopped", "lost-1", "lost-2"}
        events = (await client.list(EVENTS, namespace="default")).items
        assert {event.reason for event in events} == {"TooManyNodesGone"}
        assert {event.source.component for event in events if event.source} == {
            "cloud-node-lifecycle-controller"
        }


async def test_the_fraction_and_the_grace_are_those_of_the_flags() -> None:
    async with leading("--node-deletion-max-fraction=0.5", "--node-deletion-grace=5m") as client:
        await asyncio.sleep(290)
        assert await names(client) == {"runs", "stopped", "lost-1", "lost-2"}
        await asyncio.sleep(30)

        assert await names(client) == {"runs", "stopped"}


async def test_the_policy_is_that_of_the_flag() -> None:
    async with leading("--node-deletion-policy=immediate") as client:
        await asyncio.sleep(10)

        assert await names(client) == {"runs", "stopped"}


async def test_the_out_of_service_taint_is_set_if_the_flag_says_so() -> None:
    async with leading("--node-out-of-service-taint", "--node-deletion-policy=report") as client:
        await asyncio.sleep(60)

        assert "node.kubernetes.io/out-of-service" in await taints(client, "stopped")
        assert "node.kubernetes.io/out-of-service" not in await taints(client, "runs")


async def test_a_cloud_without_instances_has_no_lifecycle() -> None:
    async with manager_context(Cloud(name="fake")) as context:
        built = context.build(DESCRIPTOR)

    assert isinstance(built, Skipped)
    assert "does not support instances" in built.why

"""The writes of the cloud-node controller, as the real API server takes them.

The manager's rights are those of the server's own role for this controller, and no more.
"""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from pileus.clock import SystemClock
from pileus.cloud.errors import Unauthorized
from pileus.controllers.node.patches import patch_of
from pileus.controllers.node.plan import CONDITION, ObjectWrite, StatusWrite, condition_of
from pileus.controllers.node.reconciler import NodeReconciler, Tools
from pileus.kube.client import Client
from pileus.kube.config.choose import load_access
from pileus.kube.errors import Conflict
from pileus.kube.http import HttpTransport
from pileus.kube.model.core_v1 import NODES, Node, NodeAddress, Taint
from pileus.kube.patch import MergePatch
from pileus.kube.store import Added, Table
from pileus.objects.cluster_nodes import MACHINE_INDEX, ClusterNodes, NodeReplaced, NodeWriter
from pileus.objects.events import ObjectEvents
from pileus.objects.nodes import addresses_of, is_uninitialized, taints_of
from pileus.objects.ownership import owner_by
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.control_plane import ControlPlane
from tests.unit.controllers.events import FakeEvents
from tests.unit.controllers.node.harness import FakeInstances
from tests.unit.controllers.node.objects import OTHER_TAINT, TAINT, instance, internal

pytestmark = pytest.mark.real_time
DUAL_STACK = (internal("10.0.0.1"), internal("fd00::1"))


@pytest.fixture(scope="module")
def rights(control_plane: ControlPlane) -> None:
    """What the server's bootstrap gives to `system:controller:node-controller`."""
    control_plane.kubectl(
        "create",
        "clusterrolebinding",
        "node-writes",
        "--clusterrole=system:controller:node-controller",
        "--user=node-writer",
    )


@asynccontextmanager
async def client_of(kubeconfig: object) -> AsyncGenerator[Client]:
    access = load_access(str(kubeconfig), "", {})
    async with HttpTransport(access) as transport:
        yield Client(transport, user_agent="test", metrics=Metrics(MetricRegistry()))


@pytest.fixture
async def client(control_plane: ControlPlane, rights: None) -> AsyncGenerator[Client]:
    async with client_of(control_plane.user("node-writer")) as client:
        yield client


@pytest.fixture
async def node(control_plane: ControlPlane, request: pytest.FixtureRequest) -> Node:
    """A node as a kubelet registers it, named after the test."""
    name = request.node.name.replace("_", "-").replace("[", "-").replace("]", "")[:60]
    registered = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "spec": {"taints": [TAINT, OTHER_TAINT]},
    }
    async with client_of(control_plane.admin) as admin:
        await admin.create(NODES, registered)
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        addresses = [{"type": "Hostname", "address": name}]
        status = {"addresses": addresses, "conditions": [ready]}
        return await admin.patch(NODES, name, MergePatch({"status": status}), subresource="status")


def reconciler(client: Client, node: Node, cloud: FakeInstances) -> NodeReconciler:
    table = Table(MACHINE_INDEX)
    table.apply(Added(node))
    nodes = ClusterNodes(client, table, patch_of)
    tools = Tools(
        nodes=nodes,
        instances=cloud,
        whose=owner_by("fake", None),
        writer=NodeWriter(nodes, random.Random(1)),
        notices=ObjectEvents(FakeEvents()),
        clock=SystemClock(),
        metrics=client.metrics,
    )
    return NodeReconciler(tools)


async def test_a_dual_stack_node_is_initialized(client: Client, node: Node) -> None:
    name = node.metadata.name
    cloud = FakeInstances({name: instance(name, addresses=DUAL_STACK, labels={"rack": "7"})})

    await reconciler(client, node, cloud).reconcile(name)

    after = await client.get(NODES, name)
    assert [each.address for each in addresses_of(after)] == ["10.0.0.1", "fd00::1", name]
    assert taints_of(after) == tuple(each for each in taints_of(node) if each.key != TAINT["key"])
    assert taints_of(after)[0].time_added is not None
    assert after.spec
    assert after.spec.provider_id == f"fake://i-{name}"
    labels = after.metadata.labels or {}
    assert (labels["topology.kubernetes.io/zone"], labels["rack"]) == ("z1", "7")


async def test_a_stuck_node_says_why_and_is_cleared_later(client: Client, node: Node) -> None:
    name = node.metadata.name
    cloud = FakeInstances({})
    cloud.whole = Unauthorized("token expired")
    it = reconciler(client, node, cloud)

    with pytest.raises(Unauthorized):
        await it.reconcile(name)
    stuck = await client.get(NODES, name)
    cloud.whole = None
    cloud.answers[name] = instance(name, addresses=DUAL_STACK)
    await it.reconcile(name)

    after = await client.get(NODES, name)
    was, now = condition_of(stuck, CONDITION), condition_of(after, CONDITION)
    assert was is not None
    assert (was.status, was.reason, was.message) == ("True", "CloudUnauthorized", "token expired")
    assert now is not None
    assert now.status == "False"
    assert after.status
    assert {each.type for each in after.status.conditions or ()} == {"Ready", was.type}
    assert [each.address for each in addresses_of(after)] == ["10.0.0.1", "fd00::1", name]
    assert not is_uninitialized(after)


async def test_a_taint_that_came_meanwhile_is_not_lost(client: Client, node: Node) -> None:
    name = node.metadata.name
    theirs = Taint(key="theirs", effect="NoSchedule")
    taints = msgspec.to_builtins([*taints_of(node), theirs])
    await client.patch(NODES, name, MergePatch({"spec": {"taints": taints}}))

    with pytest.raises(Conflict):
        await ClusterNodes(client, Table(), patch_of).write(node, ObjectWrite(untaint=True))
    cloud = FakeInstances({name: instance(name)})
    await reconciler(client, node, cloud).reconcile(name)

    after = await client.get(NODES, name)
    others = [each for each in taints_of(node) if each.key != TAINT["key"]]
    assert taints_of(after) == (*others, theirs)


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(ObjectWrite(labels={"a": "b"}), id="labels"),
        pytest.param(
            StatusWrite(addresses=(NodeAddress(type="InternalIP", address="10.0.0.9"),)),
            id="addresses",
        ),
    ],
)
async def test_a_node_registered_anew_is_not_taken_for_the_old_one(
    client: Client, node: Node, write: ObjectWrite | StatusWrite
) -> None:
    metadata = msgspec.structs.replace(node.metadata, uid="11111111-2222-3333-4444-555555555555")
    old = msgspec.structs.replace(node, metadata=metadata)

    with pytest.raises(NodeReplaced):
        await ClusterNodes(client, Table(), patch_of).write(old, write)

    after = await client.get(NODES, node.metadata.name)
    assert after.metadata.resource_version == node.metadata.resource_version


async def test_a_second_pass_writes_nothing(client: Client, node: Node) -> None:
    name = node.metadata.name
    cloud = FakeInstances({name: replace(instance(name), addresses=DUAL_STACK)})
    await reconciler(client, node, cloud).reconcile(name)
    first = await client.get(NODES, name)

    await reconciler(client, first, cloud).reconcile(name)

    second = await client.get(NODES, name)
    assert second.metadata.resource_version == first.metadata.resource_version

"""What a running manager reads and writes has the names of the Go framework.

The expected names are written as the specification of the framework has them (section 5), and are
compared with what the manager sends to the API server: events with type, reason, message and
source, labels, taints, the finalizer and the condition.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from random import Random

import pytest

from pileus.app.manager import Manager
from pileus.app.startup import World
from pileus.classic.interface import InstanceMetadata
from pileus.cloud.errors import QuotaExceeded
from pileus.cloud.interface import Cloud, ProviderConfig
from pileus.cloud.registry import Registry
from pileus.kube.client import Client
from pileus.kube.errors import Forbidden, Status
from pileus.kube.model.core_v1 import EVENTS, NODES, SERVICES, Event, Node, NodeAddress
from pileus.kube.patch import MergePatch
from pileus.kube.transport import Reply, Request
from pileus.objects.nodes import condition_of
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics, new_metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from tests.unit.app.stage import TIMES, Kube, configured, new_node
from tests.unit.classic.fakes import V2, Provider, adapted

NODE = {
    "Synced": ("Normal", "Node synced successfully", "cloud-node-controller"),
    "DeletingNode": (
        "Normal",
        "Deleting node n1 because it does not exist in the cloud provider",
        "cloud-node-lifecycle-controller",
    ),
    "DeletingNodeFailed": (
        "Warning",
        "Failed deleting node n1: …",
        "cloud-node-lifecycle-controller",
    ),
    "FailedToCreateRoute": (
        "Warning",
        "Could not create route … 10.1.0.0/24 for node n1: …",  # Go: "… after 1.2s: …", as stated
        "route_controller",
    ),
    "CIDRNotAvailable": (
        "Normal",
        "Node n2 status is now: CIDRNotAvailable",
        "cidrAllocator",
    ),
    "CIDRAssignmentFailed": (
        "Normal",
        "Node n1 status is now: CIDRAssignmentFailed",
        "cidrAllocator",
    ),
}
SERVICE = {
    "EnsuringLoadBalancer": ("Normal", "Ensuring load balancer"),
    "EnsuredLoadBalancer": ("Normal", "Ensured load balancer"),
    "DeletingLoadBalancer": ("Normal", "Deleting load balancer"),
    "DeletedLoadBalancer": ("Normal", "Deleted load balancer"),
    "UpdatedLoadBalancer": ("Normal", "Updated load balancer with new hosts"),
    "UnAvailableLoadBalancer": ("Warning", "There are no available nodes for LoadBalancer"),
    "SyncLoadBalancerFailed": ("Warning", "Error syncing load balancer: …"),
    "UpdateLoadBalancerFailed": (
        "Warning",
        "Error updating load balancer with new hosts [n1 n2] [node names limited, …: 2], error: …",
    ),
    "DeleteLoadBalancerFailed": ("Warning", "Error deleting load balancer: …"),
}
QUOTA = QuotaExceeded("quota")


class Api:
    """The API server. Requests that match `refuses` are not permitted."""

    def __init__(self) -> None:
        self.inner = InProcessTransport(api_in_memory(clock=LoopClock(), random=Random(0)))
        self.refuses = "nothing"

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        if re.match(self.refuses, f"{request.method} {request.path} {request.body}"):
            raise Forbidden(request.path, 403, Status(message="not permitted"))
        async with self.inner.send(request) as reply:
            yield reply


@dataclass
class Stage:
    user: Client
    api: Api
    provider: Provider
    metrics: Metrics

    @property
    def answers(self) -> dict[str, object]:
        """Of the provider, by method; an exception is raised."""
        return self.provider.record.answers

    async def register(self, name: str, pod_range: str = "", **metadata: object) -> None:
        node = new_node(name) | {"metadata": {"name": name, **metadata}}
        if pod_range:
            node["spec"] = {"podCIDR": pod_range, "podCIDRs": [pod_range]}
        await self.user.create(NODES, node)

    async def taints(self, name: str) -> list[tuple[str, str, str]]:
        """All but that of the API server, which a node has that is not ready."""
        spec = (await self.user.get(NODES, name)).spec
        found = [(each.key, each.value or "", each.effect) for each in (spec and spec.taints) or ()]
        return [each for each in found if each[0] != "node.kubernetes.io/not-ready"]

    async def expose(self, name: str) -> None:
        spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
        await self.user.create(
            SERVICES, {"metadata": {"name": name}, "spec": spec}, namespace="default"
        )

    async def remove(self, name: str) -> None:
        await self.user.delete(SERVICES, name, namespace="default")

    async def vanish(self, name: str, *, while_deletions_fail_with: Exception) -> None:
        """Delete a Service at once, as if it had no finalizer."""
        self.answers["delete"] = while_deletions_fail_with
        bare = MergePatch({"metadata": {"finalizers": []}})
        await self.user.patch(SERVICES, name, bare, namespace="default")
        await self.remove(name)
        await asyncio.sleep(60)
        del self.answers["delete"]

    async def events(self, kind: str) -> list[Event]:
        found = (await self.user.list(EVENTS)).items
        return [each for each in found if each.involved_object.kind == kind]


@asynccontextmanager
async def managed(*flags: str, provider: Provider | None = None) -> AsyncGenerator[Stage]:
    """A manager with a ported provider that runs during the block."""
    api, provider, metrics = Api(), provider or Provider(), new_metrics()

    @asynccontextmanager
    async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
        yield adapted(provider)

    providers = Registry(discover=tuple)
    providers.register("fake", connect)
    kube = Kube(transport=api)
    world = World(
        {}, TIMES, Random(0), lambda _: None, providers, kube.connect, metrics=lambda: metrics
    )
    config = configured("--controller-start-interval=0s", *flags)
    user = Client(api.inner, user_agent="user", metrics=Metrics(MetricRegistry()))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(Manager(config, world).run())
        await asyncio.sleep(10)
        yield Stage(user, api, provider, metrics)
        running.cancel()


def matches(form: str, text: str) -> bool:
    return re.fullmatch(re.escape(form).replace("…", ".+"), text) is not None


def check(events: Sequence[Event], expected: Mapping[str, tuple[str, str, str]]) -> None:
    """Each expected reason was written, and every event has the form of its reason."""
    assert {each.reason for each in events} == expected.keys()
    for each in events:
        kind, message, source = expected[each.reason]
        assert each.source is not None
        assert (each.type, each.source.component) == (kind, source)
        assert each.reporting_component == source
        assert matches(message, each.message), each.message


QUEUES = {"Nodes", "service", "node", "Routes", "cidrallocator_node"}
"""Names of work queues: section 2.5."""


def messages(events: Sequence[Event], reason: str) -> list[str]:
    return [each.message for each in events if each.reason == reason]


def only(*reasons: str) -> Mapping[str, tuple[str, str, str]]:
    return {reason: NODE[reason] for reason in reasons}


async def test_a_node_is_synced_and_deleted_in_go_s_words() -> None:
    async with managed("--node-deletion-policy=immediate") as stage:
        await stage.register("n1")
        await asyncio.sleep(10)
        stage.answers["instance_exists"] = False
        stage.api.refuses = "DELETE /api/v1/nodes"
        await asyncio.sleep(30)
        stage.api.refuses = "nothing"
        await asyncio.sleep(30)
        events = await stage.events("Node")

    check(events, only("Synced", "DeletingNode", "DeletingNodeFailed"))
    for each in events:
        about = each.involved_object
        assert (about.api_version, about.name, about.namespace) == ("v1", "n1", "")
        assert about.uid
        assert each.metadata.namespace == "default"


async def test_a_route_that_fails_is_reported_in_go_s_words() -> None:
    async with managed("--cluster-cidr=10.0.0.0/8") as stage:
        stage.answers["create_route"] = QUOTA
        await stage.register("n1", "10.1.0.0/24")
        await asyncio.sleep(30)
        events = await stage.events("Node")

    check(events, only("FailedToCreateRoute"))


async def test_pod_ranges_are_reported_in_go_s_words() -> None:
    flags = ("--allocate-node-cidrs", "--cluster-cidr=10.0.0.0/24")
    async with managed(*flags, "--controllers=node-ipam-controller") as stage:
        stage.api.refuses = "PATCH /api/v1/nodes/n1 .*podCIDR"
        await stage.register("n1")
        await asyncio.sleep(30)
        stage.api.refuses = "nothing"
        await asyncio.sleep(300)
        await stage.register("n2")
        await asyncio.sleep(30)
        events = await stage.events("Node")

    check(events, only("CIDRNotAvailable", "CIDRAssignmentFailed"))


async def test_services_are_reported_in_go_s_words() -> None:
    async with managed() as stage:
        await stage.expose("web")
        await asyncio.sleep(20)
        await stage.register("n1")
        await asyncio.sleep(20)
        stage.answers["update"] = QUOTA
        await stage.register("n2")
        await asyncio.sleep(20)
        del stage.answers["update"]
        await stage.vanish("web", while_deletions_fail_with=QUOTA)
        await stage.expose("old")
        await asyncio.sleep(20)
        await stage.remove("old")
        await asyncio.sleep(20)
        stage.answers["ensure"] = QUOTA
        await stage.expose("new")
        await asyncio.sleep(20)
        events = await stage.events("Service")

    source = "service-controller"
    check(events, {reason: (*form, source) for reason, form in SERVICE.items()})


@pytest.mark.parametrize(
    ("is_new", "method", "answer", "text"),
    [
        (True, "ensure", QUOTA, "failed to ensure load balancer: quota"),
        (True, "ensure", None, "service status returned by EnsureLoadBalancer is nil"),
        (False, "delete", QUOTA, "failed to delete load balancer: quota"),
        (False, "get", QUOTA, "failed to check if load balancer exists before cleanup: quota"),
    ],
)
async def test_failures_of_the_provider_are_reported_in_go_s_words(
    is_new: bool, method: str, answer: object, text: str
) -> None:
    async with managed() as stage:
        if is_new:
            stage.answers[method] = answer
        await stage.expose("web")
        await asyncio.sleep(20)
        if not is_new:
            stage.answers[method] = answer
            await stage.remove("web")
            await asyncio.sleep(20)
        events = await stage.events("Service")

    assert messages(events, "SyncLoadBalancerFailed") == [f"Error syncing load balancer: {text}"]


@pytest.mark.parametrize(
    ("is_new", "part", "text"),
    [
        (True, "finalizers", "failed to add load balancer cleanup finalizer: …"),
        (True, "ingress", "failed to update load balancer status: …"),
        (False, "finalizers", "failed to remove load balancer cleanup finalizer: …"),
    ],
)
async def test_failures_of_the_api_server_are_reported_in_go_s_words(
    is_new: bool, part: str, text: str
) -> None:
    refuses = f"PATCH /api/v1/namespaces/default/services/web/status .*{part}"
    async with managed() as stage:
        stage.api.refuses = refuses if is_new else "nothing"
        await stage.expose("web")
        await asyncio.sleep(20)
        if not is_new:
            stage.api.refuses = refuses
            await stage.remove("web")
            await asyncio.sleep(20)
        events = await stage.events("Service")

    (message,) = messages(events, "SyncLoadBalancerFailed")
    assert matches(f"Error syncing load balancer: {text}", message)


async def test_leadership_is_announced_in_go_s_words() -> None:
    async with managed() as stage:
        (event,) = await stage.events("Lease")

    assert (event.type, event.reason) == ("Normal", "LeaderElection")
    assert re.fullmatch(r"\S+_[0-9a-f-]{36} became leader", event.message)
    assert event.source is not None
    assert event.source.component == "cloud-controller-manager"
    about = event.involved_object
    assert (about.namespace, about.name) == ("kube-system", "cloud-controller-manager")


async def test_a_new_node_gets_the_labels_of_the_go_framework_and_loses_its_taint() -> None:
    async with managed() as stage:
        await stage.register("n1")
        assert await stage.taints("n1") == [
            ("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule")
        ]
        await asyncio.sleep(10)
        labels = (await stage.user.get(NODES, "n1")).metadata.labels
        assert await stage.taints("n1") == []

    assert labels == {
        "topology.kubernetes.io/zone": "r-a",
        "topology.kubernetes.io/region": "r",
        "node.kubernetes.io/instance-type": "big",
        "failure-domain.beta.kubernetes.io/zone": "r-a",
        "failure-domain.beta.kubernetes.io/region": "r",
        "beta.kubernetes.io/instance-type": "big",
        "fake.example/rack": "7",
    }


async def test_the_node_of_a_stopped_machine_gets_the_taint_of_the_go_framework() -> None:
    async with managed() as stage:
        await stage.register("n1")
        await asyncio.sleep(10)
        stage.answers["instance_shutdown"] = True
        await asyncio.sleep(60)

        assert await stage.taints("n1") == [
            ("node.cloudprovider.kubernetes.io/shutdown", "", "NoSchedule")
        ]


async def test_the_address_that_the_kubelet_asks_for_is_read_from_go_s_annotation() -> None:
    async with managed() as stage:
        stage.answers["instance_metadata"] = InstanceMetadata(
            provider_id="fake://r/i-1",
            node_addresses=[
                NodeAddress(type="InternalIP", address="10.0.0.1"),
                NodeAddress(type="InternalIP", address="10.0.0.2"),
            ],
        )
        await stage.register("n1", annotations={"alpha.kubernetes.io/provided-node-ip": "10.0.0.2"})
        await asyncio.sleep(10)
        status = (await stage.user.get(NODES, "n1")).status

    assert status is not None
    assert [each.address for each in status.addresses or ()] == ["10.0.0.2"]


async def test_members_are_chosen_by_the_label_and_the_taint_of_the_go_framework() -> None:
    async with managed() as stage:
        await stage.register(
            "n1", labels={"node.kubernetes.io/exclude-from-external-load-balancers": ""}
        )
        await stage.register("n2")
        leaving = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}
        await asyncio.sleep(10)
        await stage.user.patch(NODES, "n2", MergePatch({"spec": {"taints": [leaving]}}))
        await stage.register("n3")
        await asyncio.sleep(10)
        await stage.expose("web")
        await asyncio.sleep(20)
        calls = stage.provider.record.calls

    assert [call[-1] for call in calls if call[0] == "ensure"] == [["n3"]]


async def test_the_condition_of_routes_is_that_of_the_go_framework() -> None:
    async with managed("--cluster-cidr=10.0.0.0/8") as stage:
        await stage.register("n1", "10.1.0.0/24")
        await asyncio.sleep(20)
        found = condition_of(await stage.user.get(NODES, "n1"), "NetworkUnavailable")

    assert found is not None
    assert (found.status, found.reason) == ("False", "RouteCreated")
    assert found.message == "RouteController created a route"


async def test_a_service_gets_the_finalizer_of_the_go_framework() -> None:
    async with managed() as stage:
        await stage.expose("web")
        await asyncio.sleep(20)
        service = await stage.user.get(SERVICES, "web", namespace="default")

    assert service.metadata.finalizers == ("service.kubernetes.io/load-balancer-cleanup",)


class Hanging(Provider):
    """Says that machines exist, and never whether they run."""

    def instances_v2(self) -> V2:
        async def hang(node: Node) -> bool:
            return await asyncio.get_running_loop().create_future()

        found = V2(self.record)
        found.instance_shutdown = hang
        return found


async def test_a_lookup_that_is_cut_at_its_deadline_counts_as_one_failed_call() -> None:
    async with managed(provider=Hanging()) as stage:
        await stage.register("n1")
        await asyncio.sleep(75)
        registry = stage.metrics.registry

    def count(operation: str, result: str) -> float | None:
        name = "cloud_node_lifecycle_controller_cloud_provider_calls_total"
        return registry.value(name, {"operation": operation, "result": result})

    assert count("instance_exists", "error") == 1
    assert count("instance_exists", "success") is None
    assert count("instance_shutdown", "error") is None


async def test_work_queues_have_the_names_of_the_go_framework() -> None:
    flags = ("--controllers=*,node-ipam-controller", "--allocate-node-cidrs")
    async with managed(*flags, "--cluster-cidr=10.0.0.0/8") as stage:
        await stage.register("n1")
        await stage.expose("web")
        await asyncio.sleep(30)
        registry = stage.metrics.registry

    for queue in QUEUES:
        for metric in ("workqueue_adds_total", "workqueue_work_duration_seconds_count"):
            assert registry.value(metric, {"name": queue}), (metric, queue)

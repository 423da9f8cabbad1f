"""A cluster on the embedded API server, a cloud that obeys, and the controller, in virtual time."""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from pileus.cloud.interface import Cloud, Instances
from pileus.cloud.middleware.budget import Budget, Limits
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.cloud.model import Absent, Found, Instance, InstanceId, InstanceState, NodeName, NodeRef
from pileus.controllers.lifecycle.controller import LifecycleController
from pileus.controllers.lifecycle.descriptor import LIFECYCLE
from pileus.controllers.lifecycle.settings import LifecycleSettings
from pileus.fence import Open
from pileus.kube.client import Client
from pileus.kube.errors import NotFound
from pileus.kube.informer import Informer
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.patch import MergePatch, StrategicPatch
from pileus.kube.transport import Reply, Request, Transport
from pileus.objects.cloud_scope import only_scope
from pileus.objects.nodes import taints_of
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock, loop_time
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from tests.unit.controllers.cluster import Controlled, NodesOnly
from tests.unit.controllers.events import FakeEvents

SHUTDOWN = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"


def instance(name: str, state: InstanceState = InstanceState.RUNNING) -> Instance:
    return Instance(id=InstanceId(name), provider_id=f"fake://{name}", state=state)


def gone(name: str) -> Absent:
    return Absent(f"no server {name}")


class FakeInstances:
    """Machines by node name: an answer, an exception to raise, or (missing) nothing at all."""

    def __init__(self) -> None:
        self.machines: dict[str, object] = {}
        self.calls: list[tuple[str, ...]] = []
        self.takes: Callable[[Sequence[str]], float] = lambda _: 0.01
        self.whole: object = None
        """What every call ends with instead: an exception, or any value at all."""

    async def find(self, nodes: Sequence[NodeRef], *, fresh: bool) -> Mapping[NodeName, Found]:
        assert fresh, "nothing may be concluded from what a cache says"
        names = tuple(ref.name for ref in nodes)
        self.calls.append(names)
        await asyncio.sleep(self.takes(names))
        if isinstance(self.whole, BaseException):
            raise self.whole
        if self.whole is not None:
            return self.whole  # type: ignore[return-value]
        return {name: self.machines[name] for name in names if name in self.machines}  # type: ignore[misc]


class Wire:
    """The way to the API server: notes what passes, and lets a test come in between."""

    host = "in-process"

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.requests: list[Request] = []
        self.before: Callable[[Request], object] = lambda _: None
        """May be told to do something, or to raise, before a request is served."""

    @asynccontextmanager
    async def send(self, request: Request) -> AsyncGenerator[Reply]:
        self.requests.append(request)
        meddling = self.before(request)
        if asyncio.iscoroutine(meddling):
            await meddling
        async with self.inner.send(request) as reply:
            yield reply

    def writes(self, method: str = "") -> list[str]:
        wanted = {method} if method else {"PATCH", "DELETE", "PUT", "POST"}
        return [f"{r.method} {r.path}" for r in self.requests if r.method in wanted]


class World:
    def __init__(self, *, owns: Callable[[NodeRef], bool | None] | None = None) -> None:
        api = api_in_memory(clock=LoopClock(), random=random.Random(0))
        self.metrics = Metrics(MetricRegistry())
        self.wire = Wire(InProcessTransport(api))
        self.ours = Client(self.wire, user_agent="test", metrics=self.metrics)
        self.users = Client(InProcessTransport(api), user_agent="user", metrics=self.metrics)
        self.cloud = FakeInstances()
        self.joined: Callable[[Instances], Instances] = lambda instances: instances
        """What a manager with several clouds puts around the instances."""
        self.owns = owns
        self.events = FakeEvents()
        self.restart()

    def restart(self) -> None:
        """The next `running` is a new process."""
        self.informer = Informer(self.ours, NODES, random=random.Random(1))

    async def add(self, *names: str, ready: bool = True, finalizers: Sequence[str] = ()) -> None:
        """Nodes that were initialized by this cloud, and their machines."""
        for name in names:
            await self.register(name, provider_id=f"fake://{name}", finalizers=finalizers)
            self.cloud.machines[name] = instance(name)
            await self.ready(name, "True" if ready else "Unknown")

    async def register(
        self,
        name: str,
        *,
        provider_id: str = "",
        taints: Sequence[object] = (),
        finalizers: Sequence[str] = (),
    ) -> None:
        spec: dict[str, object] = {"taints": list(taints)}
        if provider_id:
            spec["providerID"] = provider_id
        metadata = {"name": name, "finalizers": list(finalizers)}
        await self.users.create(NODES, {"metadata": metadata, "spec": spec})

    async def ready(self, name: str, status: str) -> None:
        """Have the kubelet, or who misses it, say so."""
        node = await self.users.get(NODES, name)
        said = (node.status and node.status.conditions) or ()
        before = next((each for each in said if each.type == "Ready"), None)
        now = LoopClock().now()
        changed = before is None or before.status != status
        ready = {
            "type": "Ready",
            "status": status,
            "lastHeartbeatTime": _text(now),
            "lastTransitionTime": _text(
                now if changed or before is None else before.last_transition_time or now
            ),
        }
        patch = StrategicPatch({"status": {"conditions": [ready]}})
        await self.users.patch(NODES, name, patch, subresource="status")

    async def lose(self, *names: str) -> None:
        """The machines are gone, and their kubelets silent."""
        for name in names:
            self.cloud.machines[name] = gone(name)
            await self.ready(name, "Unknown")

    async def stop(self, *names: str) -> None:
        for name in names:
            self.cloud.machines[name] = instance(name, InstanceState.STOPPED)
            await self.ready(name, "Unknown")

    async def annotate(self, name: str, **annotations: str | None) -> None:
        keyed = {f"pileus.dev/{key}": value for key, value in annotations.items()}
        await self.users.patch(NODES, name, MergePatch({"metadata": {"annotations": keyed}}))

    async def node(self, name: str) -> Node | None:
        try:
            return await self.users.get(NODES, name)
        except NotFound:
            return None

    async def names(self) -> set[str]:
        return {node.metadata.name for node in (await self.users.list(NODES)).items}

    async def taints(self, name: str) -> list[str]:
        node = await self.node(name)
        assert node is not None
        return [
            f"{t.key}={t.value}:{t.effect}" if t.value else f"{t.key}:{t.effect}"
            for t in taints_of(node)
            if t.key != "node.kubernetes.io/not-ready"  # the API server's own
        ]

    async def condition(self, name: str) -> tuple[str, str] | None:
        """Status and reason of ours."""
        node = await self.node(name)
        assert node is not None
        for each in (node.status and node.status.conditions) or ():
            if each.type == "CloudProviderInstanceGone":
                return each.status, each.reason or ""
        return None

    def sample(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.value(metric, labels) or 0.0

    @asynccontextmanager
    async def running(
        self, settings: LifecycleSettings | None = None
    ) -> AsyncGenerator[LifecycleController]:
        """The controller, behind the cloud's usual equipment."""
        cloud = Cloud(name="fake", instances=self.cloud, owns=self.owns)
        equipment = Equipment(budget=Budget(Limits(), self.metrics))
        async with (
            stacked(cloud, metrics=self.metrics, fence=Open(), equipment=equipment) as stack,
            asyncio.TaskGroup() as group,
        ):
            controller = self.controller(stack, settings or LifecycleSettings())
            tasks = [
                group.create_task(self.informer.run()),
                group.create_task(controller.run()),
            ]
            yield controller
            for task in tasks:
                task.cancel()

    def controller(self, cloud: Cloud, settings: LifecycleSettings) -> LifecycleController:
        assert cloud.instances is not None
        given = Controlled(
            client=self.ours, metrics=self.metrics, events=self.events, random=random.Random(1)
        )
        context = given.context(LIFECYCLE, only_scope(cloud), NodesOnly(self.informer))
        return LifecycleController(context, self.joined(cloud.instances), settings)


async def until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - loop_time()))


def _text(moment: datetime) -> str:
    return (moment - timedelta(microseconds=moment.microsecond)).isoformat().replace("+00:00", "Z")

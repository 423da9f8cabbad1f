"""The whole controller on the embedded API server and the local cloud, in virtual time."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

from pileus.cloud.abilities import Abilities
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.stack import Equipment, stacked
from pileus.cloud.options import Options as DeclaredOptions
from pileus.controllers.service.annotations import Classes
from pileus.controllers.service.controller import (
    ServiceController,
)
from pileus.controllers.service.descriptor import SERVICE
from pileus.controllers.service.settings import ServiceSettings
from pileus.fence import Fence, Open
from pileus.kube.client import Client
from pileus.kube.model.core_v1 import NODES, SERVICES
from pileus.kube.patch import MergePatch
from pileus.kube.transport import Request
from pileus.objects.cloud_scope import only_scope
from pileus.objects.descriptor import ControllerContext
from pileus.runtime.informers import Informers
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.api import Api
from pileus_lab.apiserver.in_process import InProcessReply, InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from pileus_lab.apiserver.state import Options
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.connect import cloud_of
from pileus_lab.local.model.records import Balancer
from pileus_lab.local.model.state import Operation
from pileus_lab.local.model.state import Settings as CloudSettings
from tests.unit.controllers.events import FakeEvents
from tests.unit.controllers.service.plain import PlainBalancers

CLUSTER = "the-cluster"
FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
READY = "pileus.dev/Ready"


class Wire:
    """A transport that notes what is written, and can be told to interfere."""

    def __init__(self, api: Api) -> None:
        self._inner = InProcessTransport(api)
        self.writes: list[tuple[str, str, Any]] = []
        self.reads: list[str] = []
        self.before: Callable[[Request], None] = lambda request: None
        self.answer_takes = 0.0
        """Seconds between a write's effect and its answer; the watch shows the effect at once."""

    def send(self, request: Request):
        self.before(request)
        if request.method == "GET":
            self.reads.append(request.path)
        else:
            body = json.loads(request.body or b"null")
            self.writes.append((request.method, request.path, body))
        return self._sent(request)

    @asynccontextmanager
    async def _sent(self, request: Request) -> AsyncGenerator[InProcessReply]:
        async with self._inner.send(request) as reply:
            if request.method == "PATCH":
                await asyncio.sleep(self.answer_takes)
            yield reply

    def written(self) -> list[str]:
        """Writes that are no events."""
        return [f"{m} {path}" for m, path, _ in self.writes if "/events" not in path]


class Front:
    """The cloud's API as the provider reaches it: notes the calls, and can be told to interfere."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        self.changes: list[str] = []
        self.looks: list[str] = []
        self.before: Callable[[Operation[Any]], None] = lambda operation: None
        self.after: Callable[[Operation[Any]], None] = lambda operation: None

    async def call(self, operation: Operation[Any]) -> Any:
        (self.changes if operation.WRITES else self.looks).append(operation.NAME)
        self.before(operation)
        answer = await self._cloud.call(operation)
        self.after(operation)
        return answer


class World:
    """A cluster and a cloud; managers come and go."""

    def __init__(
        self, *, settings: CloudSettings | None = None, options: Options | None = None
    ) -> None:
        self.clock = LoopClock()
        self.api = api_in_memory(clock=self.clock, random=Random(0), options=options)
        self.wire = Wire(self.api)
        self.user = Client(
            InProcessTransport(self.api), user_agent="user", metrics=Metrics(MetricRegistry())
        )
        self.cloud = LocalCloud(
            CloudContext(
                clock=self.clock,
                chance=Random(1),
                settings=settings or CloudSettings(),
            )
        )
        self.front = Front(self.cloud)
        self.events = FakeEvents()
        self.metrics = Metrics(MetricRegistry())
        self.fence: Fence = Open()
        self.cluster = CLUSTER
        """Its id."""
        self.plain: PlainBalancers | None = None
        self.reconciled: list[tuple[str, float, bool]] = []
        """What the provider was told of the ends of passes."""
        """What takes the place of the local cloud's balancers, if anything does."""
        self.abilities = Abilities()
        self.trusted: tuple[str, ...] = ()
        """Namespaces that may use load balancers of others."""
        self.annotations: DeclaredOptions | None = None
        """What the provider declares instead of the local cloud's annotations."""

    @asynccontextmanager
    async def managed(self, **settings: Any) -> AsyncGenerator[ServiceController]:
        """A manager with the service controller, while the block lasts."""
        async with self.looked_at(**settings) as controller, running(controller.run()):
            yield controller

    @asynccontextmanager
    async def looked_at(self, **settings: Any) -> AsyncGenerator[ServiceController]:
        """The same, with informers that run and a controller that does not."""
        self.metrics = Metrics(MetricRegistry())
        settings.setdefault("classes", self.classes())
        settings.setdefault("trusted_namespaces", self.trusted)
        client = Client(self.wire, user_agent="manager", metrics=self.metrics, fence=self.fence)
        self.informers = Informers(client, Random(2), 0.0)
        cloud = await cloud_of(self.front)
        cloud = replace(cloud, reconciled=lambda *ended: self.reconciled.append(ended))
        if self.plain is not None:
            cloud = replace(cloud, balancers=self.plain)
        cloud = replace(cloud, abilities=self.abilities)
        if self.annotations is not None:
            cloud = replace(cloud, annotations=self.annotations)
        async with stacked(
            cloud, metrics=self.metrics, fence=self.fence, equipment=Equipment()
        ) as equipped:
            controller = self._controller(client, self.informers, equipped, settings)
            async with running(self.informers.run()):
                yield controller

    def _controller(
        self, client: Client, informers: Informers, cloud: Cloud, settings: dict[str, Any]
    ) -> ServiceController:
        assert cloud.balancers is not None
        context = ControllerContext(
            names=SERVICE,
            scope=only_scope(cloud),
            client=client,
            events=self.events,
            informers=informers,
            fence=self.fence,
            metrics=self.metrics,
            clock=self.clock,
            random=Random(3),
            cluster_id=self._identify,
        )
        classes, sweep = settings.pop("classes"), settings.pop("sweep", None)
        given = ServiceSettings(**settings)
        return ServiceController(context, cloud.balancers, given, classes, sweep=sweep)

    async def _identify(self) -> str:
        return self.cluster

    @staticmethod
    def classes(*names: str, default: bool = True) -> Classes:
        return Classes.of("local", names, default=default)

    def plainly(self) -> PlainBalancers:
        """The simplest cloud, in the place of the local one."""
        self.plain = PlainBalancers()
        return self.plain

    async def add_node(self, name: str, **parts: Any) -> None:
        node = {
            "metadata": {"name": name, **parts.get("metadata", {})},
            "spec": {"providerID": f"local://{name}", **parts.get("spec", {})},
        }
        await self.user.create(NODES, node)

    async def set_machine(self, name: str, uuid: str) -> None:
        """Say, as its kubelet does, on which machine the node runs."""
        status = {"status": {"nodeInfo": {"systemUUID": uuid}}}
        await self.user.patch(NODES, name, MergePatch(status), subresource="status")

    async def node_names(self) -> list[str]:
        return [each.metadata.name for each in (await self.user.list(NODES)).items]

    async def remove_node(self, name: str) -> None:
        await self.user.delete(NODES, name)

    async def change_node(self, name: str, **change: Any) -> None:
        await self.user.patch(NODES, name, MergePatch(change))

    async def add(self, name: str = "web", **spec: Any) -> dict[str, Any]:
        """A Service of the type, with one port unless told otherwise, and metadata as given."""
        metadata = {"name": name}
        for key in ("annotations", "finalizers", "labels"):
            if key in spec:
                metadata[key] = spec.pop(key)
        body = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
        await self.user.create(SERVICES, {"metadata": metadata, "spec": body}, namespace="default")
        return await self.service(name)

    async def change(self, name: str = "web", **change: Any) -> None:
        await self.user.patch(SERVICES, name, MergePatch(change), namespace="default")

    async def change_status(self, name: str = "web", **status: Any) -> None:
        patch = MergePatch({"status": status})
        await self.user.patch(SERVICES, name, patch, namespace="default", subresource="status")

    async def delete(self, name: str = "web") -> None:
        await self.user.delete(SERVICES, name, namespace="default")

    async def service(self, name: str = "web") -> dict[str, Any]:
        path = f"/api/v1/namespaces/default/services/{name}"
        return json.loads(await self.user.raw("GET", path))

    async def services(self) -> dict[str, dict[str, Any]]:
        listed = json.loads(await self.user.raw("GET", "/api/v1/services"))
        found = [each for each in listed["items"] if each["metadata"]["name"] != "kubernetes"]
        return {each["metadata"]["name"]: each for each in found}

    async def condition(self, name: str = "web") -> tuple[str, str, str]:
        conditions = (await self.service(name))["status"].get("conditions", [])
        return next(
            ((c["status"], c["reason"], c["message"]) for c in conditions if c["type"] == READY),
            ("", "", ""),
        )

    async def ingress(self, name: str = "web") -> list[dict[str, Any]]:
        return (await self.service(name))["status"]["loadBalancer"].get("ingress", [])

    @property
    def balancers(self) -> Mapping[str, Balancer]:
        """By name."""
        return {one.name: one for one in self.cloud.state.balancers.values()}

    def members(self, name: str = "default-web") -> list[str]:
        return sorted(member.name for member in self.balancers[name].members)

    def sample(self, metric: str, **labels: str) -> float:
        return self.metrics.registry.value(metric, labels) or 0.0


@asynccontextmanager
async def running(*work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Have it done beside the block, and stop it at its end."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(each) for each in work]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()

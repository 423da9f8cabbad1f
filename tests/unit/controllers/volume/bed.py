"""The whole controller on the embedded API server and the local cloud, in virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgspec

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.model import InstanceId
from pileus.cloud.volume import (
    Snapshot,
    SnapshotId,
    Volume,
    VolumeId,
    Volumes,
    VolumeSpec,
    VolumeState,
)
from pileus.controllers.volume.controller import VolumeController
from pileus.controllers.volume.descriptor import VOLUME
from pileus.controllers.volume.settings import VolumeSettings
from pileus.kube.client import Client
from pileus.objects.cloud_scope import only_scope
from pileus.runtime.informers import Informers
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.api import Api
from pileus_lab.apiserver.call import Request, Response
from pileus_lab.apiserver.identity import authenticated
from pileus_lab.apiserver.in_process import MASTER, InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.connect import cloud_of
from pileus_lab.local.model.machines import CreateMachine
from pileus_lab.node_agents.volume_binder import Storage, patches
from tests.unit.controllers.cluster import Controlled
from tests.unit.controllers.events import FakeEvents

CLUSTER = "cluster-uid"
ZONE = "local-1a"
DRIVER = "local.csi.pileus.dev"
STORAGE = "/apis/storage.k8s.io/v1"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
PVS = "/api/v1/persistentvolumes"
MERGE = "application/merge-patch+json"
ATTACHMENTS = f"{STORAGE}/volumeattachments"


@dataclass
class Watched:
    """The volumes of the local cloud: records writes, fails where it is told to, can be slow."""

    inner: Volumes
    calls: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    fails: dict[str, CloudError] = field(default_factory=dict[str, CloudError])
    """By method: raised instead of the call."""
    fails_after: dict[str, CloudError] = field(default_factory=dict[str, CloudError])
    """By method: raised once, after the call took effect."""
    is_blind: bool = False
    """Whether lists are empty."""
    lists: int = 0
    """How often all volumes were listed."""
    shows: VolumeState | None = None
    """The state that is shown instead of the real ones."""
    owners: dict[VolumeId, Owner] = field(default_factory=dict[VolumeId, Owner])
    """Marks that are shown instead of the real ones."""
    returns: Volume | None = None
    """The answer to creations, instead of a new volume."""

    async def list_volumes(
        self, cluster: str, ids: Sequence[VolumeId] | None = None
    ) -> Mapping[VolumeId, Volume]:
        self.lists += ids is None
        if "list" in self.fails:
            raise self.fails["list"]
        found = await self.inner.list_volumes(cluster, ids)
        return {} if self.is_blind else {id_: self._shown(one) for id_, one in found.items()}

    async def create(self, spec: VolumeSpec) -> Volume:
        if self.returns is not None:
            return self.returns
        return self._shown(await self._write("create", self.inner.create, spec))

    async def list_snapshots(
        self, cluster: str, ids: Sequence[SnapshotId] | None = None
    ) -> Mapping[SnapshotId, Snapshot]:
        return await self.inner.list_snapshots(cluster, ids)

    async def delete(self, cluster: str, volume: VolumeId) -> None:
        await self._write("delete", self.inner.delete, cluster, volume)

    async def attach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> Volume:
        return await self._write("attach", self.inner.attach, cluster, volume, instance)

    async def detach(self, cluster: str, volume: VolumeId, instance: InstanceId) -> None:
        await self._write("detach", self.inner.detach, cluster, volume, instance)

    async def resize(self, cluster: str, volume: VolumeId, size_gib: int) -> Volume:
        return await self._write("resize", self.inner.resize, cluster, volume, size_gib)

    async def _write(self, method: str, call: Callable[..., Any], *arguments: Any) -> Any:
        self.calls.append((method, *map(str, arguments[1:])))
        if method in self.fails:
            raise self.fails[method]
        answer = await call(*arguments)
        if method in self.fails_after:
            raise self.fails_after.pop(method)
        return answer

    def _shown(self, volume: Volume) -> Volume:
        owner = self.owners.get(volume.id, volume.owner)
        return replace(volume, state=self.shows or volume.state, owner=owner)

    def methods(self) -> list[str]:
        return [call[0] for call in self.calls]


@dataclass
class Bed:
    api: Api
    client: Client
    cloud: LocalCloud
    volumes: Watched
    metrics: Metrics
    running: "Running"
    events: FakeEvents
    used: set[str] = field(default_factory=set[str])
    group: asyncio.TaskGroup = field(init=False)
    controller: VolumeController = field(init=False)

    def restart(self) -> None:
        self.controller = self.running.start(self.group)

    def act(self, method: str, path: str, body: object = None) -> Any:
        """A request of a user; fails loudly."""
        headers = {"content-type": MERGE} if method == "PATCH" else {}
        raw = b"" if body is None else msgspec.json.encode(body)
        user = authenticated(MASTER)
        request = Request(method=method, path=path, headers=headers, body=raw, peer=user)
        answer = self.api.respond(request)
        assert answer.status < 300, answer.body
        return msgspec.json.decode(answer.body)

    def refuse_writes(self, path: str, retry_after: int) -> list[float]:
        """From now on, writes to paths with that ending are answered with 503.

        Returns a list of the times of these writes, which grows.
        """
        respond, times = self.api.respond, list[float]()

        def refuse(request: Request) -> Response:
            if request.method != "PATCH" or not request.path.endswith(path):
                return respond(request)
            times.append(asyncio.get_running_loop().time())
            return Response(status=503, body=b"{}", headers={"Retry-After": str(retry_after)})

        self.api.respond = refuse
        return times

    def garble(self, path: str, name: str = "") -> Callable[[], None]:
        """From now on, objects of this path are not as their kind defines them; or only one.

        In lists and alone, but not in watches. Returns what ends it.
        """
        respond = self.api.respond

        def garbled(request: Request) -> Response:
            answer = respond(request)
            asked = request.path.startswith(path) and not request.query.get("watch")
            if request.method != "GET" or not asked or answer.status != 200:
                return answer
            body = msgspec.json.decode(answer.body)
            for one in body.get("items", [body]):
                one["spec"] = "not a spec" if name in {"", one["metadata"]["name"]} else one["spec"]
            return replace(answer, body=msgspec.json.encode(body))

        def end() -> None:
            self.api.respond = respond

        self.api.respond = garbled
        return end

    def items(self, path: str) -> list[Any]:
        return self.act("GET", path)["items"]

    def bind(self) -> None:
        """One round of kube-controller-manager and the kubelets."""
        storage = Storage(
            self.items("/api/v1/persistentvolumeclaims"),
            self.items(PVS),
            self.items(f"{STORAGE}/storageclasses"),
            self.used,
        )
        for patch in patches(storage):
            self.act("PATCH", patch.path, patch.body)

    async def settle(self, rounds: int = 6) -> None:
        for _ in range(rounds):
            await asyncio.sleep(5)
            self.bind()
        await asyncio.sleep(5)

    def add_class(self, name: str = "fast", **fields: Any) -> None:
        body = {"metadata": {"name": name}, "provisioner": DRIVER, "allowVolumeExpansion": True}
        self.act("POST", f"{STORAGE}/storageclasses", {**body, **fields})

    def claim(self, name: str = "data", size: str = "1Gi", **fields: Any) -> Any:
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": size}},
            **fields,
        }
        return self.act("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})

    def pv(self) -> Any:
        (found,) = self.items(PVS)
        return found

    def attach(self, node: str, name: str = "") -> None:
        spec = {
            "attacher": DRIVER,
            "nodeName": node,
            "source": {"persistentVolumeName": self.pv()["metadata"]["name"]},
        }
        self.act("POST", ATTACHMENTS, {"metadata": {"name": name or f"va-{node}"}, "spec": spec})

    def attachment(self, node: str) -> Any:
        return self.act("GET", f"{ATTACHMENTS}/va-{node}")

    def detach(self, node: str) -> None:
        self.act("DELETE", f"{ATTACHMENTS}/va-{node}")

    def grow(self, size: str) -> None:
        body = {"spec": {"resources": {"requests": {"storage": size}}}}
        self.act("PATCH", f"{CLAIMS}/data", body)

    async def in_cloud(self) -> list[Volume]:
        return list((await self.volumes.inner.list_volumes(CLUSTER)).values())

    async def holders(self) -> list[str]:
        return [one.instance for each in await self.in_cloud() for one in each.attachments]

    def sample(self, name: str) -> float | None:
        return self.metrics.registry.value(name)


async def identify() -> str:
    return CLUSTER


class Running:
    """Starts the controller, and starts it again with nothing remembered."""

    def __init__(self, given: Controlled, provider: Cloud, period: float) -> None:
        self._given = given
        self._provider = provider
        self._settings = VolumeSettings(check_period=period)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, group: asyncio.TaskGroup) -> VolumeController:
        self.stop()
        client, provider = self._given.client, self._provider
        informers = Informers(client, Random(1), 0.0, synced=lambda: None)
        context = self._given.context(VOLUME, only_scope(provider), informers, identify)
        assert provider.instances is not None
        assert provider.volumes is not None
        controller = VolumeController(context, provider.volumes, provider.instances, self._settings)
        work = (informers.run(), controller.run())
        self._tasks = [group.create_task(one) for one in work]
        return controller

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


async def join(it: "Bed", name: str) -> None:
    machine = await it.cloud.call(CreateMachine(name=name, zone=ZONE))
    spec = {"providerID": f"local://{machine.id}"}
    it.act("POST", "/api/v1/nodes", {"metadata": {"name": name}, "spec": spec})


@asynccontextmanager
async def bed(*nodes: str, period: float = 600.0) -> AsyncGenerator[Bed]:
    """A cluster with nodes and a class; the controller begins to run when the block does."""
    api = api_in_memory(clock=LoopClock(), random=Random(0))
    metrics, events = Metrics(MetricRegistry()), FakeEvents()
    client = Client(InProcessTransport(api), user_agent="test", metrics=metrics)
    cloud = LocalCloud(CloudContext(clock=LoopClock(), chance=Random(1)))
    provider = await cloud_of(cloud)
    assert provider.volumes is not None
    volumes = Watched(provider.volumes)
    given = Controlled(client=client, metrics=metrics, events=events, random=Random(3))
    running = Running(given, replace(provider, volumes=volumes), period)
    it = Bed(api, client, cloud, volumes, metrics, running, events)
    it.add_class()
    for name in nodes:
        await join(it, name)
    async with asyncio.TaskGroup() as group:
        it.group = group
        it.restart()
        await asyncio.sleep(1)
        yield it
        running.stop()


async def bound(it: Bed, **spec: Any) -> None:
    """Create a claim, and wait until it has its volume."""
    it.claim(**spec)
    await it.settle()
    assert it.act("GET", f"{CLAIMS}/data")["status"]["phase"] == "Bound"

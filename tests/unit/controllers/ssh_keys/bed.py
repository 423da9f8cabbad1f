"""The whole controller on the embedded API server, in virtual time; machines keep their keys."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from pileus.cloud.errors import CloudError, Unsupported
from pileus.cloud.interface import Cloud as CloudOf
from pileus.cloud.model import NodeName, NodeRef, SshKey
from pileus.controllers.ssh_keys.controller import SshKeysController
from pileus.controllers.ssh_keys.descriptor import SSH_KEYS
from pileus.controllers.ssh_keys.settings import located
from pileus.kube.client import Client
from pileus.objects.cloud_scope import only_scope
from pileus.objects.nodes import UNINITIALIZED
from pileus.runtime.informers import Informers
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import LoopClock
from pileus_lab.apiserver.in_process import InProcessTransport
from pileus_lab.apiserver.server import api_in_memory
from tests.contract.keyring import Keyring, Machines
from tests.unit.controllers.cluster import Controlled
from tests.unit.controllers.events import FakeEvents

CLUSTER = "cluster-uid"


class Cloud(Keyring):
    """Counts calls, and fails where it is told to."""

    def __init__(self, machines: Machines) -> None:
        super().__init__(machines)
        self.calls: list[tuple[str, int, int]] = []
        self.fails: dict[str, CloudError] = {}
        """By method: the whole call."""
        self.refuses: dict[str, CloudError] = {}
        """By node."""

    async def list_keys(self, cluster: str, nodes: Sequence[NodeRef]) -> Any:
        self._call("list", [], nodes)
        return await super().list_keys(cluster, nodes)

    async def add(self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]) -> Any:
        self._call("add", keys, nodes)
        refused = {n.name: self.refuses[n.name] for n in nodes if n.name in self.refuses}
        good = [node for node in nodes if node.name not in refused]
        return {**await super().add(cluster, keys, good), **refused}

    async def remove(self, cluster: str, keys: Sequence[SshKey], nodes: Sequence[NodeRef]) -> Any:
        self._call("remove", keys, nodes)
        return await super().remove(cluster, keys, nodes)

    def _call(self, method: str, keys: Sequence[object], nodes: Sequence[object]) -> None:
        self.calls.append((method, len(keys), len(nodes)))
        if method in self.fails:
            raise self.fails[method]

    @property
    def writes(self) -> Sequence[tuple[str, int, int]]:
        return [call for call in self.calls if call[0] != "list"]


class Ported(Cloud):
    async def list_keys(self, cluster: str, nodes: Sequence[NodeRef]) -> Any:
        self._call("list", [], nodes)
        raise Unsupported("cannot tell")


@dataclass
class Bed:
    client: Client
    cloud: Cloud
    machines: Machines
    metrics: Metrics
    controller: SshKeysController
    events: FakeEvents = field(default_factory=FakeEvents)

    async def join(self, name: str, *, initialized: bool = True) -> None:
        self.machines.setdefault(name, {})
        taints = [] if initialized else [{"key": UNINITIALIZED, "effect": "NoSchedule"}]
        node = {"metadata": {"name": name}, "spec": {"providerID": f"x://{name}", "taints": taints}}
        await self._post("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **node})

    async def publish(self, kind: str = "ConfigMap", **users: str) -> None:
        """Create or replace the source."""
        data: Mapping[str, object] = users
        if kind == "Secret":
            data = {user: b64encode(text.encode()).decode() for user, text in users.items()}
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "keys"}, "data": data}
        await self.withdraw(kind)
        await self._post(f"/api/v1/namespaces/default/{kind.lower()}s", body)

    async def withdraw(self, kind: str = "ConfigMap") -> None:
        path = f"/api/v1/namespaces/default/{kind.lower()}s"
        found = await self.client.raw("GET", path, query={"fieldSelector": "metadata.name=keys"})
        if msgspec.json.decode(found)["items"]:
            await self.client.raw("DELETE", f"{path}/keys")

    async def _post(self, path: str, body: object) -> None:
        await self.client.raw("POST", path, body=msgspec.json.encode(body))

    def accepted(self, name: str) -> set[SshKey]:
        return set(self.machines[name])

    def sample(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.value(name, labels)


async def identify() -> str:
    return CLUSTER


@asynccontextmanager
async def bed(
    *nodes: str, source: str = "configmap:default/keys", cloud: type[Cloud] = Cloud
) -> AsyncGenerator[Bed]:
    """A cluster with nodes; the controller begins to run when the block does."""
    api = api_in_memory(clock=LoopClock(), random=Random(0))
    metrics = Metrics(MetricRegistry())
    client = Client(InProcessTransport(api), user_agent="test", metrics=metrics)
    informers = Informers(client, Random(1), 0.0)
    machines: Machines = {}
    keys, events = cloud(machines), FakeEvents()
    provider = CloudOf(name="fake", ssh_keys=keys, owns=lambda node: "foreign" not in node.name)
    given = Controlled(client=client, metrics=metrics, events=events, random=Random(3))
    context = given.context(SSH_KEYS, only_scope(provider), informers, identify)
    controller = SshKeysController(context, keys, located(source))
    it = Bed(client, keys, machines, metrics, controller, events)
    for name in nodes:
        await it.join(name)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informers.run()), group.create_task(controller.run())]
        yield it
        for task in tasks:
            task.cancel()


def refs(*names: str) -> list[NodeRef]:
    return [NodeRef(name=NodeName(name)) for name in names]

"""Machines and volumes of the modelled OpenStack, as the conformance laws need them."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable
from pileus.cloud.model import InstanceId, NodeName, NodeRef
from pileus.cloud.volume import REGION_LABEL, ZONE_LABEL, VolumeId
from pileus.providers.openstack.api import Call, Client, Service
from pileus.providers.openstack.cinder import Cinder
from pileus.providers.openstack.config import Auth, OpenStackConfig
from pileus.providers.openstack.instances import OpenStackInstances
from pileus.providers.openstack.neutron import Neutron
from pileus.providers.openstack.nova import Nova
from pileus.providers.openstack.volumes import OpenStackVolumes
from pileus.testing.conformance.harness import InstancesHarness, VolumesHarness
from pileus_lab.openstack.model_api import ModelApi
from pileus_lab.openstack.state import Settings

CONFIG = OpenStackConfig(auth=Auth(region="RegionOne"))


@dataclass
class BreakableApi:
    """The modelled OpenStack, with a switch that makes every request fail.

    A second passes with every request.
    """

    model: ModelApi = field(default_factory=ModelApi)
    is_broken: bool = False

    async def call(self, call: Call) -> Any:
        if self.is_broken:
            raise Unavailable("the cloud is down")
        self.model.now += 1
        return await self.model.call(call)

    @contextmanager
    def broken(self) -> Generator[None]:
        self.is_broken = True
        yield
        self.is_broken = False


def instances(api: Any, config: OpenStackConfig = CONFIG) -> OpenStackInstances:
    client = Client(api)
    return OpenStackInstances.of(Nova(client), Neutron(client), config)


@dataclass
class OpenStackInstancesHarness(InstancesHarness):
    """Nodes as they are before they are initialized, or with a provider ID.

    With provider IDs, a server that is added again is the deleted one, which was restored.
    """

    has_provider_ids: bool
    api: BreakableApi = field(default_factory=BreakableApi)
    deleted: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def __post_init__(self) -> None:
        self.network, *_ = self.api.model.add_network("private", "10.0.0.0/16")

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[OpenStackInstances]:
        yield instances(self.api)

    def add(self, name: str) -> NodeRef:
        model = self.api.model
        if self.has_provider_ids and name in self.deleted:
            model.state = model.state.put("servers", self.deleted[name])
            server = self.deleted[name]["id"]
        else:
            server = model.add_server(name, self.network)
        provider_id = f"openstack:///{server}" if self.has_provider_ids else ""
        return NodeRef(name=NodeName(name), provider_id=provider_id, system_uuid=server)

    def remove(self, name: str) -> None:
        self.deleted[name] = self._server(name)
        self.api.model.delete_server(self.deleted[name]["id"])

    def stop(self, name: str) -> None:
        self.api.model.stop_server(self._server(name)["id"])

    def broken(self) -> Any:
        return self.api.broken()

    def _server(self, name: str) -> Mapping[str, Any]:
        return self.api.model.server_named(name)


@dataclass
class OpenStackVolumesHarness(VolumesHarness):
    """A project with machines and volumes, with changes that take so many seconds."""

    seconds: float = 0.0
    page: int = 2
    """Volumes on one page."""
    config: OpenStackConfig = CONFIG
    quotas: Mapping[str, int] = field(default_factory=dict[str, int])
    other_topology: Mapping[str, str] | None = field(
        default_factory=lambda: {ZONE_LABEL: "az-2", REGION_LABEL: "RegionOne"}
    )

    def __post_init__(self) -> None:
        settings = Settings(volume_zones=("nova", "az 2"), page_limit=self.page, quotas=self.quotas)
        self.api = BreakableApi(ModelApi(settings))
        self.network, *_ = self.api.model.add_network("private", "10.0.0.0/16")
        self.api.model.at_work = self.seconds

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[OpenStackVolumes]:
        client = Client(self.api)
        yield OpenStackVolumes.of(Cinder(client), Nova(client), self.config)

    def add_machine(self, name: str) -> InstanceId:
        return InstanceId(self.api.model.add_server(name, self.network))

    def add_unmarked(self, name: str) -> VolumeId | None:
        body = {"volume": {"name": name, "size": 5}}
        made = self.api.model.must(Service.BLOCK_STORAGE, "POST", "/volumes", body)
        self.api.model.now += self.seconds
        return VolumeId(made["volume"]["id"])

    def built(self) -> Mapping[VolumeId, Owner | None]:
        volumes = self.api.model.records("volumes")
        return {VolumeId(one["id"]): _mark(one["metadata"]) for one in volumes}

    def snapshots(self) -> int:
        return len(self.api.model.records("snapshots"))

    def broken(self) -> Any:
        return self.api.broken()


def _mark(metadata: Mapping[str, str]) -> Owner | None:
    keys = ("pileus.dev/cluster", "pileus.dev/volume")
    return Owner(*(metadata[key] for key in keys)) if metadata.keys() >= set(keys) else None

"""The provider on a real project, and machines and volumes as the conformance laws need them."""

from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pileus.cloud import interface
from pileus.cloud.balancer import Owner
from pileus.cloud.connection import read_config
from pileus.cloud.errors import Unavailable
from pileus.cloud.interface import Instances
from pileus.cloud.model import InstanceId, NodeName, NodeRef
from pileus.cloud.volume import VolumeId, Volumes
from pileus.providers.openstack.api import Api, Call
from pileus.providers.openstack.connect import cloud_of, connected_api
from pileus.testing.conformance.harness import InstancesHarness, VolumesHarness
from tests.openstack.cloud import Cloud, Project, Refused, eventually


@dataclass
class CountedApi:
    """Requests of the provider: counted, and refused while `is_broken`."""

    api: Api
    is_broken: bool = False
    calls: list[Call] = field(default_factory=list[Call])

    async def call(self, call: Call) -> Any:
        if self.is_broken:
            raise Unavailable("the cloud is down")
        self.calls.append(call)
        return await self.api.call(call)


@asynccontextmanager
async def provider(
    project: Project, folder: Path, **sections: str
) -> AsyncGenerator[tuple[interface.Cloud, CountedApi]]:
    """The provider with the credentials of the project, and further sections of cloud.conf."""
    config = read_config(str(project.cloud.config(folder / "cloud.conf", **sections)))
    async with connected_api(config) as (api, settings):
        counted = CountedApi(api)
        yield cloud_of(counted, settings), counted


def act(project: Project, name: str, action: str, status: str) -> None:
    """Does something with a server, and waits until it has that status."""
    path = f"/servers/{project.servers[name]}/action"
    project.cloud.send("POST", "compute", path, {action: None})
    eventually(f"{name} is {status}", lambda: project.server(name)["status"] == status)


@dataclass
class OnBed:
    """A project, and whether the requests of the provider reach it."""

    project: Project
    folder: Path
    is_broken: bool = False
    apis: list[CountedApi] = field(default_factory=list[CountedApi])

    @asynccontextmanager
    async def cloud(self) -> AsyncGenerator[interface.Cloud]:
        async with provider(self.project, self.folder) as (cloud, api):
            self.apis.append(api)
            yield cloud

    @contextmanager
    def broken(self) -> Generator[None]:
        for api in self.apis:
            api.is_broken = True
        yield
        for api in self.apis:
            api.is_broken = False


@dataclass
class BedInstancesHarness(InstancesHarness):
    bed: OnBed

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Instances]:
        async with self.bed.cloud() as cloud:
            assert cloud.instances is not None
            yield cloud.instances

    def add(self, name: str) -> NodeRef:
        self.bed.project.add_servers(name)
        return NodeRef(name=NodeName(name), system_uuid=self.bed.project.servers[name])

    def remove(self, name: str) -> None:
        self.bed.project.delete_server(name)

    def stop(self, name: str) -> None:
        act(self.bed.project, name, "os-stop", "SHUTOFF")

    def broken(self) -> Any:
        return self.bed.broken()


@dataclass
class BedVolumesHarness(VolumesHarness):
    bed: OnBed
    spacious: int = 0
    """The disk of this machine is smaller than the quota."""

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[Volumes]:
        async with self.bed.cloud() as cloud:
            assert cloud.volumes is not None
            yield cloud.volumes

    def add_machine(self, name: str) -> InstanceId:
        self.bed.project.add_servers(name)
        return InstanceId(self.bed.project.servers[name])

    def add_unmarked(self, name: str) -> VolumeId | None:
        cloud = self.bed.project.cloud
        made = cloud.create("volume", "/volumes", "volume", name=name, size=1)["id"]
        path = f"/volumes/{made}"
        eventually(
            "volume is available",
            lambda: cloud.get("volume", path)["volume"]["status"] == "available",
        )
        return VolumeId(made)

    def built(self) -> Mapping[VolumeId, Owner | None]:
        volumes = self.bed.project.cloud.listed("volumes")
        return {VolumeId(one["id"]): _mark(one["metadata"]) for one in volumes}

    def snapshots(self) -> int:
        return len(self.bed.project.cloud.get("volume", "/snapshots")["snapshots"])

    def broken(self) -> Any:
        return self.bed.broken()


def _mark(metadata: Mapping[str, str]) -> Owner | None:
    keys = ("pileus.dev/cluster", "pileus.dev/volume")
    return Owner(*(metadata[key] for key in keys)) if metadata.keys() >= set(keys) else None


def delete_storage(project: Project) -> None:
    """Deletes servers, snapshots and volumes, in this order."""
    for name in list(project.servers):
        project.delete_server(name)
    for kind in ("snapshots", "volumes"):
        eventually(f"{kind} are deleted", partial(_are_deleted, project.cloud, kind))


def _are_deleted(cloud: Cloud, kind: str) -> bool:
    """Deletes what is not busy, and returns whether nothing was left."""
    found = cloud.get("volume", f"/{kind}")[kind]
    for one in found:
        with suppress(Refused):
            cloud.send("DELETE", "volume", f"/{kind}/{one['id']}")
    return not found

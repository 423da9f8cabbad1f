"""A CSI driver on a unix socket, and a client of it, in one process."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from google.protobuf.message_factory import GetMessageClass
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from pileus.clock import SystemClock
from pileus.cloud.interface import Cloud
from pileus.cloud.volume import Volumes
from pileus.csi.identity import Identity
from pileus.csi.node import Node, NodeFacts
from pileus.csi.run import CsiOptions, Mode, controller_parts, facts_from_cloud
from pileus.csi.server import Services, serving
from pileus.csi.spec import csi_pb2 as csi
from pileus_lab.local.cloud import CloudContext, LocalCloud
from pileus_lab.local.connect import cloud_of
from pileus_lab.local.disks import Disks, Kind
from pileus_lab.local.model.machines import CreateMachine

GIB = 1 << 30
CLUSTER = "c1"
Modes = csi.VolumeCapability.AccessMode


@dataclass
class Client:
    """Calls methods of a driver by their names: `client("CreateVolume", name="a")`."""

    channel: Channel

    async def __call__(self, method: str, *, timeout: float | None = None, **fields: Any) -> Any:
        for service in csi.DESCRIPTOR.services_by_name.values():
            if method in service.methods_by_name:
                descriptor = service.methods_by_name[method]
                request, reply = map(
                    GetMessageClass, (descriptor.input_type, descriptor.output_type)
                )
                path = f"/{service.full_name}/{method}"
                call = UnaryUnaryMethod(self.channel, path, request, reply)
                return await call(request(**fields), timeout=timeout)
        raise AssertionError(f"no method {method}")

    async def fails(self, method: str, **fields: Any) -> tuple[Status, str]:
        """Returns code and message of a request that has to fail."""
        try:
            answer = await self(method, **fields)
        except GRPCError as error:
            return error.status, error.message or ""
        raise AssertionError(f"{method} succeeded: {answer}")


@asynccontextmanager
async def driving(folder: Path, services: Services) -> AsyncGenerator[Client]:
    path = folder / "csi.sock"
    async with serving(path, services):
        channel = Channel(path=str(path))
        try:
            yield Client(channel)
        finally:
            channel.close()


def services(volumes: Volumes | None, node: Node | None, cloud: str = "local") -> Services:
    parts: dict[str, Sequence[object]] = {
        "Identity": [Identity(f"{cloud}.csi.pileus.dev", volumes is not None)]
    }
    if volumes is not None:
        parts["Controller"] = controller_parts(volumes, CLUSTER)
    if node is not None:
        parts["Node"] = [node]
    return Services(parts)


@dataclass
class LocalStage:
    """A local cloud with one machine, whose volumes are real."""

    folder: Path
    kind: Kind = Kind.AUTO
    machine: str = field(init=False, default="")
    local: LocalCloud = field(init=False)
    cloud: Cloud = field(init=False)

    @asynccontextmanager
    async def up(self) -> AsyncGenerator["LocalStage"]:
        disks = Disks.open(self.folder / "volumes", self.kind)
        self.local = LocalCloud(CloudContext(clock=SystemClock(), chance=Random(1), disks=disks))
        self.machine = (await self.local.operate(CreateMachine(name="n1"))).id
        self.cloud = await cloud_of(self.local)
        yield self

    @asynccontextmanager
    async def driver(self) -> AsyncGenerator[Client]:
        """A driver in mode `all`; a new one for each call, as after a restart."""
        options = CsiOptions(endpoint="", mode=Mode.ALL, node_id=self.machine)

        async def facts() -> NodeFacts:
            return await facts_from_cloud(self.cloud, options)

        async with driving(self.folder, services(self.cloud.volumes, Node(facts))) as client:
            yield client


def mounted(mode: Any = Modes.SINGLE_NODE_WRITER, fs_type: str = "", flags: Any = ()) -> Any:
    mount = csi.VolumeCapability.MountVolume(fs_type=fs_type, mount_flags=flags)
    return csi.VolumeCapability(mount=mount, access_mode=Modes(mode=mode))


def block(mode: Any = Modes.SINGLE_NODE_WRITER) -> Any:
    return csi.VolumeCapability(
        block=csi.VolumeCapability.BlockVolume(), access_mode=Modes(mode=mode)
    )


def sized(required: int, limit: int = 0) -> Any:
    return csi.CapacityRange(required_bytes=required, limit_bytes=limit)


async def created(client: Client, name: str = "pvc-1", size: int = GIB, **fields: Any) -> Any:
    fields = {"volume_capabilities": [mounted()], "capacity_range": sized(size), **fields}
    return (await client("CreateVolume", name=name, **fields)).volume


def summary(output: str) -> dict[str, int]:
    """Returns the numbers of csi-sanity's last line."""
    found = re.search(r"(\d+) Passed \| (\d+) Failed \| (\d+) Pending \| (\d+) Skipped", output)
    assert found, output[-2000:]
    return dict(
        zip(("passed", "failed", "pending", "skipped"), map(int, found.groups()), strict=True)
    )

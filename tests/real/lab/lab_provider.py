"""A cloud that is a file: tests change it while the manager runs, and read what was asked of it.

Found by its entry point, as any provider of another distribution is.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pileus.cloud.errors import Misconfigured, Unauthorized
from pileus.cloud.interface import Cloud, OwnController, ProviderConfig
from pileus.cloud.model import (
    Absent,
    Address,
    AddressType,
    Failure,
    Instance,
    InstanceId,
    InstanceState,
    NodeName,
    NodeRef,
)
from pileus.runtime.cluster_access import KubernetesAccess


class LabInstances:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def find(
        self, nodes: Sequence[NodeRef], *, fresh: bool
    ) -> Mapping[NodeName, Instance | Absent | Failure]:
        cloud = json.loads((self._folder / "cloud.json").read_text())
        with (self._folder / "calls").open("a") as calls:
            calls.write(f"{len(nodes)}\n")
        await asyncio.sleep(cloud.get("latency", 0))
        if cloud.get("refuses"):
            raise Unauthorized(cloud["refuses"])
        hidden = cloud.get("hidden", [])
        return {node.name: self._machine(node, cloud) for node in nodes if node.name not in hidden}

    def _machine(self, node: NodeRef, cloud: dict[str, Any]) -> Instance | Absent:
        if node.name in cloud.get("gone", []):
            return Absent(f"the lab has no machine {node.name}")
        number = sum(node.name.encode()) % 250 + 1
        return Instance(
            id=InstanceId(node.name),
            provider_id=f"lab://{node.name}",
            type=cloud.get("type", "small"),
            zone=cloud.get("zone", "zone-a"),
            region="region-1",
            addresses=(Address(AddressType.INTERNAL_IP, f"10.9.8.{number}"),),
            labels={"lab.example.com/rack": "r7"},
            state=InstanceState(cloud.get("states", {}).get(node.name, "running")),
        )


@asynccontextmanager
async def connect(config: ProviderConfig) -> AsyncGenerator[Cloud]:
    if config.text is None:
        raise Misconfigured("the lab needs --cloud-config: a file that names its folder")
    folder = Path(config.text.strip())

    async def work(_: KubernetesAccess) -> None:
        with (folder / "own-work").open("a", buffering=1) as diary:
            diary.write("started\n")
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(0.2)  # an end that takes a moment is waited for
                diary.write("stopped\n")

    own = OwnController("own", work)
    yield Cloud(name="lab", instances=LabInstances(folder), controllers=(own,))

"""Clusters as scenarios begin with them: the data of etcd, created once and kept in the cache.

A run copies the data and starts an etcd and a kube-apiserver of its own on the copy.
"""

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.bench.cluster_api import cluster_api
from tools.bench.objects import NODES, SERVICES, node, service
from tools.build_control_plane import cache_folder

from pileus.testing.control_plane import ControlPlane

ROOM = (
    "--service-cluster-ip-range=10.0.0.0/16",
    "--disable-admission-plugins=TaintNodesByCondition",  # no controller removes its taints here
)
SHAPING = ("objects.py", "seeds.py")
"""Files that decide what is in a seed."""


@dataclass(frozen=True, slots=True)
class Seed:
    """The objects that a cluster has before the manager starts."""

    nodes: int
    initialized: bool = False
    services: int = 0

    @property
    def name(self) -> str:
        kind = "initialized" if self.initialized else "tainted"
        return f"{self.nodes}-{kind}-nodes-{self.services}-services"

    def folder(self, binaries: Path) -> Path:
        """Returns where the data is kept that was created with these etcd and kube-apiserver."""
        here = Path(__file__).parent
        files = b"".join((here / name).read_bytes() for name in SHAPING)
        key = hashlib.sha256(files + binaries.name.encode()).hexdigest()[:16]
        return cache_folder() / "bench" / "seeds" / key / self.name

    def prepare(self, binaries: Path, say: Callable[[str], None]) -> None:
        """Create the data of etcd if it is not in the cache."""
        kept = self.folder(binaries)
        if not kept.exists():
            self._create(binaries, kept, say)

    def copy(self, binaries: Path, target: Path) -> None:
        """Copy the data of etcd to where a control plane in that folder has it."""
        shutil.copytree(self.folder(binaries), target / "etcd")

    def _create(self, binaries: Path, kept: Path, say: Callable[[str], None]) -> None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept.parent, prefix="building-") as place:
            folder = Path(place) / "cluster"
            with ControlPlane(binaries, folder, arguments=ROOM) as cluster:
                asyncio.run(self._fill(cluster, say))
            (folder / "etcd").rename(kept)

    async def _fill(self, cluster: ControlPlane, say: Callable[[str], None]) -> None:
        nodes = [node(each, initialized=self.initialized) for each in range(self.nodes)]
        services = [service(each) for each in range(self.services)]

        def shown(what: str, total: int) -> Callable[[int], None]:
            return lambda done: say(f"preparing a cluster, once: {done} of {total} {what}")

        async with cluster_api(cluster.server, cluster.folder) as api:
            await api.create_all(NODES, nodes, shown("nodes", self.nodes))
            await api.create_all(SERVICES, services, shown("Services", self.services))

"""A real control plane, a cloud in a process of its own, kubelets, and a way to look at all."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pileus.app.background import background
from pileus.clock import SystemClock
from pileus.cloud.errors import CloudError
from pileus.kube.client import Client
from pileus.kube.config.choose import load_access
from pileus.kube.http import HttpTransport
from pileus.kube.model.core_v1 import NAMESPACES, NODES, SERVICES
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.control_plane import ControlPlane
from pileus_lab.local.http_api import RemoteCloud, reaching
from pileus_lab.local.model.account import Describe, SetQuota
from pileus_lab.local.model.balancers import CreateBalancer, ListBalancers
from pileus_lab.local.model.machines import ListMachines
from pileus_lab.local.model.records import Balancer, Port
from pileus_lab.node_agents.agents import Cluster, Pace, run_agents
from tests.soak.replicas import Replicas
from tests.soak.verdict import World

PILEUS = Path(sys.executable).parent / "pileus"
KUBELETS = Pace(look=0.5, lease=30.0, status=120.0, silence=2.0)
NAMESPACE = "default"
FOREIGN = 3
QUOTA = {"instances": 10_000, "balancers": 10_000, "listeners": 100_000}


@dataclass
class CloudProcess:
    """`pileus local serve`, with its state in a file, so that it can be started again."""

    folder: Path
    block: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> Path:
        return self.folder / "cloud.sock"

    @property
    def config(self) -> Path:
        return self.folder / "local.yaml"

    async def start(self, network: str) -> None:
        """Errors: `CloudError` if it does not come up."""
        first = 100 + 3 * self.block
        self.config.write_text(
            f"endpoint: {self.endpoint}\nstate: {self.folder / 'cloud.db'}\n"
            f"internalPool: 127.{first}.0.0/16\nbalancerPool: 127.{first + 1}.0.0/16\n"
            f"externalPool: 127.{first + 2}.0.0/16\nhealthSeconds: 5\n"
        )
        command = [PILEUS, "local", "serve", f"--config={self.config}", f"--network={network}"]
        with (self.folder / "cloud.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        await self._answers()

    async def _answers(self) -> None:
        async with asyncio.timeout(60), reaching(self.endpoint, operator=True) as api:
            while True:
                try:
                    await api.call(Describe())
                except CloudError:
                    await asyncio.sleep(0.1)
                else:
                    return

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)


@dataclass
class Bed:
    client: Client
    api: RemoteCloud
    """As its operator: faults and rates concern the manager alone."""
    cloud: CloudProcess
    replicas: Replicas
    cluster_id: str
    foreign: dict[str, Balancer] = field(default_factory=dict[str, Balancer])
    approved: int = 0
    """Nodes whose deletion was approved, as their operator would."""

    async def world(self) -> World:
        return World(
            cluster_id=self.cluster_id,
            nodes=(await self.client.list(NODES)).items,
            services=(await self.client.list(SERVICES, namespace=NAMESPACE)).items,
            machines=(await self.api.call(ListMachines())).items,
            balancers=(await self.api.call(ListBalancers())).items,
            foreign=self.foreign,
        )

    async def add_foreign(self) -> None:
        for number in range(FOREIGN):
            ports = (Port(port=9000 + number, node_port=29000 + number),)
            made = await self.api.call(CreateBalancer(name=f"others-{number}", ports=ports))
            self.foreign[made.id] = made


@asynccontextmanager
async def served(folder: Path) -> AsyncGenerator[CloudProcess]:
    """The cloud, without sockets for traffic."""
    cloud = CloudProcess(folder, os.getpid() % 45)
    try:
        await cloud.start("none")
        yield cloud
    finally:
        cloud.stop()


@asynccontextmanager
async def opened(cluster: ControlPlane, cloud: CloudProcess) -> AsyncGenerator[Bed]:
    """Control plane and cloud, with nobody at work in them yet."""
    async with (
        HttpTransport(load_access(str(cluster.admin), "", {})) as transport,
        reaching(cloud.endpoint, operator=True) as api,
    ):
        client = Client(transport, user_agent="soak", metrics=Metrics(MetricRegistry()))
        await api.call(
            SetQuota(limits=dict.fromkeys(("instances", "balancers", "listeners"), 10**6))
        )
        uid = (await client.get(NAMESPACES, "kube-system")).metadata.uid
        yield Bed(client, api, cloud, Replicas(cluster, cloud.config, cloud.folder), uid)


@asynccontextmanager
async def bed(cluster: ControlPlane, folder: Path) -> AsyncGenerator[Bed]:
    """All of it, with someone else's balancers beside."""
    async with served(folder) as cloud, opened(cluster, cloud) as it:
        await it.add_foreign()
        kubelets = run_agents(it.api, Cluster(it.client, SystemClock(), pace=KUBELETS))
        it.replicas.start()
        try:
            async with background(kubelets), background(it.replicas.run()):
                yield it
        finally:
            it.replicas.stop()

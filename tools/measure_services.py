"""Measure what many Services cost: API writes, cloud calls, time and memory, cold and restarted.

Usage: PILEUS_CONTROL_PLANE=… python -m tools.measure_services [SERVICES] [NODES]
Runs the real manager on a real control plane, with the local cloud in a process of its own, and
prints a table: a cold start, and a restart with everything as it should be.
"""

import asyncio
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import MergePatch
from pileus.testing.control_plane import ControlPlane
from pileus_lab.local.capabilities import addresses_of
from pileus_lab.local.model.machines import CreateMachine
from tests.real.manager import Lab, Manager
from tests.soak.bed import NAMESPACE, Bed, opened, served
from tests.soak.replicas import Used, resident, used_of
from tests.soak.verdict import problems

DEFAULT = (1000, 1000)
ROOM = ("--service-cluster-ip-range=10.0.0.0/16", "--service-node-port-range=20000-32767")
AT_ONCE = 32
PATIENCE = 900.0
QUIET = 20.0
"""Seconds after the last change in which nothing more may be written."""
FLAGS = (
    "--cloud-provider=local",
    "--controller-start-interval=0s",
    "--leader-elect=false",
    "--controllers=service,cloud-node",
)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    seconds: float
    processor: float
    memory: float
    used: Used


def main() -> None:
    services, nodes = (*map(int, sys.argv[1:]), *DEFAULT)[:2]
    with tempfile.TemporaryDirectory(prefix="measure-") as place:
        folder = Path(place)
        binaries = Path(os.environ["PILEUS_CONTROL_PLANE"])
        with ControlPlane(binaries, folder, arguments=ROOM) as cluster:
            rows = asyncio.run(measure(cluster, folder, services, nodes))
    _say(f"{services} Services on {nodes} nodes")
    for line in table(rows):
        _say(line)


async def measure(
    cluster: ControlPlane, folder: Path, services: int, nodes: int
) -> tuple[Row, ...]:
    async with served(folder) as cloud, opened(cluster, cloud) as it:
        await fill(it, services, nodes)
        _say("filled; the manager starts ...")
        cold = await run(it, cluster, folder, "cold")
        _say("and starts again ...")
        return cold, await run(it, cluster, folder, "restarted")


async def fill(it: Bed, services: int, nodes: int) -> None:
    """Machines with nodes that are initialized already, and Services that have nothing yet."""
    limit = asyncio.Semaphore(AT_ONCE)
    async with asyncio.TaskGroup() as group:
        for number in range(nodes):
            group.create_task(_node(it, f"node-{number}", limit))
        for number in range(services):
            group.create_task(_service(it, f"shop-{number}", limit))


async def _node(it: Bed, name: str, limit: asyncio.Semaphore) -> None:
    async with limit:
        machine = await it.api.call(CreateMachine(name=name))
        spec = {"providerID": f"local://{machine.id}"}
        await _post(it, NODES.path(), {"metadata": {"name": name}, "spec": spec})
        addresses = [{"type": one.type, "address": one.address} for one in addresses_of(machine)]
        status = MergePatch({"status": {"addresses": addresses}})
        await it.client.patch(NODES, name, status, subresource="status")


async def _service(it: Bed, name: str, limit: asyncio.Semaphore) -> None:
    async with limit:
        ports = [{"name": "http", "port": 80}, {"name": "https", "port": 443}]
        spec = {"type": "LoadBalancer", "ports": ports}
        path = f"/api/v1/namespaces/{NAMESPACE}/services"
        await _post(it, path, {"metadata": {"name": name}, "spec": spec})


async def _post(it: Bed, path: str, body: object) -> None:
    await it.client.raw("POST", path, body=msgspec.json.encode(body))


async def run(it: Bed, cluster: ControlPlane, folder: Path, name: str) -> Row:
    """Start the manager, wait until all is as it should be and nothing is written any more."""
    lab = Lab(folder / "lab")
    flags = (*FLAGS, f"--cloud-config={it.cloud.config}")
    began = time.monotonic()
    manager = Manager(cluster, lab, cluster.admin, *flags)
    try:
        await _as_wanted(it)
        took = time.monotonic() - began
        used = await _quiet(manager)
        pid = manager.process.pid
        return Row(name, took, _processor(pid), resident(pid), used)
    finally:
        manager.end()


async def _as_wanted(it: Bed) -> None:
    deadline = time.monotonic() + PATIENCE
    while wrong := problems(await it.world()):
        if time.monotonic() > deadline:
            sys.exit(f"{len(wrong)} things differ after {PATIENCE:g} s, such as: {wrong[0]}")
        await asyncio.sleep(1)


async def _quiet(manager: Manager) -> Used:
    """What was used once no write comes any more."""
    used, since = Used(), time.monotonic()
    while time.monotonic() < since + QUIET:
        await asyncio.sleep(2)
        now = used_of((await asyncio.to_thread(manager.get, "/metrics"))[1])
        if now.api_writes != used.api_writes:
            since = time.monotonic()
        used = now
    return used


def _processor(pid: int) -> float:
    """Seconds of processor time."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def table(rows: tuple[Row, ...]) -> list[str]:
    verbs = sorted({verb for row in rows for verb in row.used.api_writes})
    calls = sorted({call for row in rows for call in row.used.cloud_calls})
    lines: list[tuple[str, list[str]]] = [
        ("seconds until all is as wanted", [f"{row.seconds:.1f}" for row in rows]),
        ("processor seconds", [f"{row.processor:.1f}" for row in rows]),
        ("memory, MiB", [f"{row.memory:.0f}" for row in rows]),
        *((f"API {verb}", [str(row.used.api_writes[verb]) for row in rows]) for verb in verbs),
        ("API reads", [str(row.used.api_reads) for row in rows]),
        *((f"cloud {call}", [str(row.used.cloud_calls[call]) for row in rows]) for call in calls),
    ]
    head = f"{'':<34}" + "".join(f"{row.name:>12}" for row in rows)
    return [head, *(f"{name:<34}" + "".join(f"{it:>12}" for it in its) for name, its in lines)]


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()

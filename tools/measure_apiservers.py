"""Measure the embedded API server beside the real one, in one run, with the same client.

Usage: PILEUS_CONTROL_PLANE=… python tools/measure_apiservers.py [NODES]
Prints a table: memory with that many nodes, and how fast it creates, lists, watches and patches.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from pileus.kube.client import Client, WatchOptions
from pileus.kube.config.choose import load_access
from pileus.kube.exchange import Adaptive, Window
from pileus.kube.http import HttpTransport
from pileus.kube.model.core_v1 import NODES
from pileus.kube.patch import MergePatch
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.control_plane import ControlPlane

PATCHES = 1000
PADDING = "x" * 180
"""Makes a node about as large as a kubelet's: some 8 KB."""


@dataclass(frozen=True, slots=True)
class Server:
    name: str
    kubeconfig: Path
    pids: Sequence[int]

    def memory(self) -> float:
        """Resident MiB of all its processes."""
        return sum(_resident(pid) for pid in self.pids) / 2**20


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 5000
    rows: list[list[str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for opened in (real(Path(folder)), embedded(Path(folder))):
            with opened as server, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                rows.append([server.name, *runner.run(measure(server, count))])
    heads = ["server", "create/s", "list s", "watch events/s", "patch/s", "MiB"]
    print(f"{count} nodes, {PATCHES} patches")
    for row in [heads, *rows]:
        print("  ".join(f"{cell:>16}" for cell in row))


async def measure(server: Server, count: int) -> list[str]:
    access = load_access(str(server.kubeconfig), "", {})
    async with HttpTransport(access) as transport:
        client = Client(
            transport,
            user_agent="measure",
            metrics=Metrics(MetricRegistry()),
            throttle=Adaptive(Window(limit=16, most=16)),
        )
        create = await _timed(_each(count, lambda n: _create(client, n)))
        start = time.perf_counter()
        listed = await client.list(NODES)
        took = time.perf_counter() - start
        watch, patch = await _watched_patches(client, listed.resource_version)
        return [
            f"{count / create:.0f}",
            f"{took:.2f}",
            f"{watch:.0f}",
            f"{PATCHES / patch:.0f}",
            f"{server.memory():.0f}",
        ]


async def _watched_patches(client: Client, version: str) -> tuple[float, float]:
    """Patch many nodes; then replay these changes as one watch, which shows its own speed."""
    took = await _timed(_each(PATCHES, lambda n: _patch(client, n)))
    start, seen = time.perf_counter(), 0
    watch = client.watch(NODES, options=WatchOptions(resource_version=version))
    async with aclosing(watch) as events:
        async for event in events:
            seen += event.type == "MODIFIED"
            if seen == PATCHES:
                break
    return PATCHES / (time.perf_counter() - start), took


async def _create(client: Client, number: int) -> None:
    annotations = {f"measure.example.com/{key}": PADDING for key in range(24)}
    metadata = {"name": f"node-{number:05}", "annotations": annotations}
    await client.create(NODES, {"metadata": metadata})


async def _patch(client: Client, number: int) -> None:
    labels = {"measure.example.com/patched": "yes"}
    await client.patch(NODES, f"node-{number:05}", MergePatch({"metadata": {"labels": labels}}))


async def _each(count: int, work: Callable[[int], Coroutine[None, None, None]]) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(work(number))


async def _timed(work: Coroutine[None, None, None]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


@contextmanager
def real(folder: Path) -> Generator[Server]:
    binaries = Path(os.environ["PILEUS_CONTROL_PLANE"])
    with ControlPlane(binaries, folder / "real") as cluster:
        yield Server("kube-apiserver", cluster.admin, cluster.pids())


@contextmanager
def embedded(folder: Path) -> Generator[Server]:
    kubeconfig = folder / "embedded.kubeconfig"
    command = [sys.executable, "-m", "pileus", "apiserver", "--port=0"]
    with subprocess.Popen(
        [*command, f"--kubeconfig-out={kubeconfig}"], stderr=subprocess.DEVNULL
    ) as process:
        try:
            while not kubeconfig.exists():
                time.sleep(0.05)
            yield Server("embedded", kubeconfig, [process.pid])
        finally:
            process.terminate()


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    main()

"""One run: a fresh control plane and cloud, a manager at work, and what all of it cost."""

import asyncio
import contextlib
import shutil
import signal
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from tools.bench.cluster_api import ClusterApi, Requests, cluster_api
from tools.bench.processes import (
    Cost,
    Process,
    Side,
    SimulatedCloud,
    cost_of,
    simulated_cloud,
)
from tools.bench.seeds import ROOM, Seed

from pileus.testing.control_plane import ControlPlane, free_ports

LATENCY_MS = 50
SETTLE_LIMIT = 20.0
IDLE = 0.04
"""Seconds of CPU in one second, below which a manager counts as idle."""
NOTHING = Cost(0.0, 0.0, 0.0)
Values = dict[str, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run measured."""

    parts: dict[str, Values]
    """The values of each part of the work, by its name."""
    state: dict[str, str] = field(default_factory=dict[str, str])
    """The end state in a form that two sides can be compared by; empty if it is not compared."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How the cloud answers, and what the provider declares about it."""

    latency_ms: int = LATENCY_MS
    per_second: float = 0.0
    burst: int = 0

    def limits(self) -> Mapping[str, float]:
        """Returns the `Limits` that a provider for this cloud declares."""
        if not self.per_second:
            return {}
        return {"per_second": self.per_second, "burst": self.burst, "growth": 1}


class _Meta(Struct, frozen=True):
    name: str = ""


class _Taint(Struct, frozen=True):
    key: str


class _Condition(Struct, frozen=True):
    type: str
    status: str


class _Spec(Struct, frozen=True):
    taints: tuple[_Taint, ...] = ()
    providerID: str = ""  # noqa: N815 -- the name in the API


class _Balancer(Struct, frozen=True):
    ingress: tuple[dict[str, Any], ...] = ()


class _Status(Struct, frozen=True, rename="camel"):
    conditions: tuple[_Condition, ...] = ()
    load_balancer: _Balancer = _Balancer()


class Watched(Struct, frozen=True):
    """What the benchmark looks at in a node or Service."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    def has_taint(self, key: str) -> bool:
        return any(taint.key == key for taint in self.spec.taints)


class _Event(Struct, frozen=True):
    type: str
    object: Watched


_decode = msgspec.json.Decoder(_Event).decode


class Progress:
    """How many objects have reached a state, as a watch shows it."""

    def __init__(self, holds: Callable[[Watched], bool]) -> None:
        self._holds = holds
        self._reached: set[str] = set()
        self._changed = asyncio.Event()
        self.synced = asyncio.Event()

    def __len__(self) -> int:
        return len(self._reached)

    async def follow(self, api: ClusterApi, path: str) -> None:
        """Watches, and watches again from the beginning whenever the API server ends the watch."""
        while True:
            async with api.watch(path) as events:
                async for line in events:
                    self._note(_decode(line))

    def _note(self, event: _Event) -> None:
        if event.type == "BOOKMARK":
            self.synced.set()
        if event.type not in {"ADDED", "MODIFIED"}:
            return
        reached = self._holds(event.object)
        (self._reached.add if reached else self._reached.discard)(event.object.metadata.name)
        self._changed.set()

    async def until(self, count: int) -> float:
        """Returns the loop's time at which so many objects had reached the state."""
        while len(self._reached) < count:
            self._changed.clear()
            await self._changed.wait()
        return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class Snapshot:
    requests: Requests
    api_server: Cost
    etcd: Cost
    manager: Cost
    own_writes: int


@dataclass
class Bed:
    """A control plane, a cloud, and the side that is measured on them."""

    side: Side
    cluster: ControlPlane
    api: ClusterApi
    cloud: SimulatedCloud
    config: Path
    say: Callable[[str], None]
    repeat: int = 0
    processes: list[Process] = field(default_factory=list[Process])

    def start(self, *flags: str) -> Process:
        """Start a manager with its own port."""
        port = free_ports(1)[0]
        command = (
            *self.side.command,
            "--cloud-provider=bench",
            f"--cloud-config={self.config}",
            f"--kubeconfig={self.cluster.admin}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            *flags,
        )
        log = self.cluster.folder / f"{self.side.name}-{port}.log"
        process = Process(command, log, self.side.environment)
        self.processes.append(process)
        return process

    @asynccontextmanager
    async def watching(
        self, path: str, holds: Callable[[Watched], bool]
    ) -> AsyncGenerator[Progress]:
        """Follows objects while the block lasts. Shows how many have reached the state."""
        progress = Progress(holds)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(progress.follow(self.api, path)),
                group.create_task(self._show(progress)),
            ]
            try:
                await progress.synced.wait()
                yield progress
            finally:
                for task in tasks:
                    task.cancel()

    async def _show(self, progress: Progress) -> None:
        while True:
            for process in self.processes:
                process.check()
            self.say(f"{len(progress)} done")
            await asyncio.sleep(0.5)

    async def snapshot(self, manager: Process | None) -> Snapshot:
        etcd, api_server = self.cluster.pids()
        return Snapshot(
            await self.api.requests(),
            cost_of(api_server),
            cost_of(etcd),
            cost_of(manager.pid) if manager else NOTHING,
            self.api.writes,
        )

    async def begin(self, manager: Process | None = None) -> Snapshot:
        """Begin to measure: at the start of a manager, or of one that already runs."""
        self.cloud.ask("reset", {})
        return await self.snapshot(manager)

    async def values(self, before: Snapshot, manager: Process, **more: float) -> Values:
        """Returns what was used since `before`, once the manager is idle."""
        await self.settled(manager)
        now = await self.snapshot(manager)
        used = now.requests.minus(before.requests)
        stats = self.cloud.ask("stats")
        return {
            **more,
            "cpu": now.manager.cpu - before.manager.cpu,
            "peak": now.manager.peak,
            "resident": now.manager.resident,
            "api_cpu": now.api_server.cpu - before.api_server.cpu,
            "api_peak": now.api_server.peak,
            "etcd_cpu": now.etcd.cpu - before.etcd.cpu,
            "writes": used.writes() - (now.own_writes - before.own_writes),
            "events": used.events(),
            "watch_mib": used.watch_bytes / 2**20,
            "calls": sum(stats["calls"].values()),
            "refused": stats["refused"],
            "concurrency": stats["maxConcurrent"],
            **{f"calls {kind}": number for kind, number in sorted(stats["calls"].items())},
        }

    async def settled(self, manager: Process) -> None:
        """Wait until the manager is idle for two seconds, and at most for `SETTLE_LIMIT`."""
        quiet, waited, before = 0, 0.0, cost_of(manager.pid).cpu
        while quiet < 2 and waited < SETTLE_LIMIT:  # noqa: PLR2004 -- two seconds
            await asyncio.sleep(1)
            waited += 1
            manager.check()
            now = cost_of(manager.pid).cpu
            quiet = quiet + 1 if now - before < IDLE else 0
            before = now
            self.say("waiting until the manager is idle")

    def stop(self) -> None:
        """End all managers at once: everything about them has been measured."""
        for process in self.processes:
            process.end(signal.SIGKILL)
        self.processes.clear()


@contextlib.contextmanager
def control_plane(
    binaries: Path, seed: Seed, say: Callable[[str], None]
) -> Generator[ControlPlane]:
    """A fresh control plane with the objects of the seed."""
    with tempfile.TemporaryDirectory(prefix="pileus-bench-") as place:
        folder = Path(place)
        seed.prepare(binaries, say)
        seed.copy(binaries, folder)
        say("starting etcd and kube-apiserver")
        with ControlPlane(binaries, folder, arguments=ROOM) as cluster:
            yield cluster
            for name in ("kube-apiserver", "etcd"):
                cluster.end(name, at_once=True)


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a scenario: a side at work on a fresh control plane and cloud."""

    side: Side
    seed: Seed
    pace: Pace
    work: Callable[[Bed], Awaitable[Outcome]]
    limit: float
    """Seconds that the work may take."""
    repeat: int = 0

    def outcome(self, binaries: Path, say: Callable[[str], None]) -> Outcome:
        """Returns what the work measures. Raises whatever keeps it from being done.

        Raises ProcessEnded if that is a manager that ended by itself.
        """
        with (
            control_plane(binaries, self.seed, say) as cluster,
            simulated_cloud(cluster.folder) as cloud,
        ):
            cloud.add([f"node-{each}" for each in range(self.seed.nodes)])
            pace = self.pace
            cloud.ask(
                "pace",
                {"latencyMs": pace.latency_ms, "perSecond": pace.per_second, "burst": pace.burst},
            )
            config = cloud.config(cluster.folder / "cloud.json", pace.limits())
            return asyncio.run(self._work(cluster, cloud, config, say))

    async def _work(
        self,
        cluster: ControlPlane,
        cloud: SimulatedCloud,
        config: Path,
        say: Callable[[str], None],
    ) -> Outcome:
        async with cluster_api(cluster.server, cluster.folder) as api:
            bed = Bed(self.side, cluster, api, cloud, config, say, self.repeat)
            try:
                async with asyncio.timeout(self.limit):
                    return await self.work(bed)
            except TimeoutError as error:
                _keep_logs(cluster.folder)
                raise RuntimeError(f"not done within {self.limit:g} s") from error
            except BaseException:
                _keep_logs(cluster.folder)
                for process in bed.processes:
                    process.check()  # the cause, if it has ended
                raise
            finally:
                bed.stop()


FAILED_LOGS = Path(tempfile.gettempdir()) / "pileus-bench-failed"


def _keep_logs(folder: Path) -> None:
    """Keep the logs of the last run that failed."""
    shutil.rmtree(FAILED_LOGS, ignore_errors=True)
    FAILED_LOGS.mkdir()
    for file in folder.glob("*.log"):
        shutil.copy(file, FAILED_LOGS)

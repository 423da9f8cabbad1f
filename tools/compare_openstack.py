"""Measures the Go manager and Pileus at the same work on the same OpenStack.

    make compare-openstack > FILE           write the tables as Markdown
    make compare-openstack SERVICES=2       only the first two Services

Each manager has a project of its own with the same servers, and creates the load balancers of the
same ten Services, plain ones and ones with options. Counted are the requests in the access logs of
OpenStack's services, by the manager that sent them. Times are from the request to Kubernetes until
the effect is seen.
"""

import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from tools.build_go_openstack_ccm import VERSION as GO_VERSION
from tools.openstack_bed.bed import SERVICES as OPENSTACK
from tools.openstack_bed.bed import Bed
from tools.openstack_bed.cache import prepare
from tools.openstack_bed.image import build

from pileus.testing.control_plane import ControlPlane
from pileus.version import KUBERNETES, PILEUS
from tests.openstack.balancers import Seen, balancer_of
from tests.openstack.cloud import project
from tests.openstack.managers import BINARIES, Cluster, Manager, go_ccm, pileus

PREFIX = "loadbalancer.openstack.org/"
INTERNAL = {"service.beta.kubernetes.io/openstack-internal-load-balancer": "true"}
ALL: dict[str, dict[str, Any]] = {
    "plain-1": {},
    "plain-2": {},
    "plain-3": {},
    "plain-4": {},
    "three-ports": {"ports": (80, 443, 8080)},
    "ranges": {"loadBalancerSourceRanges": ["10.0.0.0/8", "192.0.2.0/24"]},
    "internal": {"annotations": INTERNAL},
    "udp": {"ports": (53,), "protocol": "UDP"},
    "proxy": {"annotations": {f"{PREFIX}proxy-protocol": "true"}},
    "monitored": {"annotations": {f"{PREFIX}enable-health-monitor": "true"}},
}
SERVICES = dict(list(ALL.items())[: int(os.environ.get("SERVICES") or len(ALL))])
AGENTS = {"Go": "openstack-cloud-controller-manager", "Pileus": "pileus/"}
QUIET = 20.0
"""Seconds without a request after which the work counts as done."""
QUIET_LIMIT = 300.0
UNCHANGED = "restart, nothing changed"
"""Has no time: the managers have nothing to do, and nothing shows when they have done it."""
EARLY = "start with Services and nodes that are not initialized"
READS = ("GET", "HEAD")


@dataclass
class Phase:
    """What a manager did for one kind of work."""

    name: str
    seconds: float
    requests: Counter[tuple[str, str]]
    """Service and `reads` or `writes`, to their number."""


@dataclass
class Run:
    """All work of one manager."""

    manager: str
    first_address: float = 0.0
    """Seconds from the start with `EARLY` until the first Service has an address."""
    member_writes: int = 0
    """Requests that set members after the creation of load balancers, with `EARLY`."""
    phases: list[Phase] = field(default_factory=list[Phase])
    balancers: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


class Measured:
    """A manager at work, and the requests it sends meanwhile."""

    def __init__(self, cluster: Cluster, manager: Manager, run: Run) -> None:
        self.cluster, self.manager, self.run = cluster, manager, run

    def phase(self, name: str, do: Callable[[], None]) -> None:
        """Does something, waits until the manager is quiet, and records what it took."""
        since, started = time.time(), time.monotonic()
        do()
        seconds = time.monotonic() - started
        self.quiet()
        self.run.phases.append(Phase(name, seconds, self._counts(since)))
        print(f"{self.run.manager}: {name}: {seconds:.1f} s", file=sys.stderr, flush=True)

    def early(self) -> None:
        """Initializes nodes, and gives an address and all members to Services that are there."""
        since, started = time.time(), time.monotonic()
        self.manager.eventually(
            "an address", lambda: any(self.cluster.ingress(name) for name in SERVICES)
        )
        self.run.first_address = time.monotonic() - started
        self.manager.has_addresses(self.cluster, *SERVICES)
        for node in self.cluster.project.servers:
            _have_member(self.cluster, self.manager, node)
        sent = [each for each in self._requests() if each["t"] >= since]
        is_write = [each["method"] not in READS and "/members" in each["path"] for each in sent]
        self.run.member_writes = sum(is_write)

    def begins(self, since: float) -> None:
        """Waits for the first request after a point in time."""
        self.manager.eventually(
            "the first request", lambda: any(each["t"] >= since for each in self._requests())
        )

    def quiet(self) -> None:
        """Waits until the manager has sent no request for a while."""
        deadline = time.monotonic() + QUIET_LIMIT
        while time.time() - max((each["t"] for each in self._requests()), default=0.0) < QUIET:
            if time.monotonic() > deadline:
                sys.exit(f"{self.run.manager} sent requests for {QUIET_LIMIT:g} s without a pause")
            time.sleep(1)

    def _requests(self) -> Iterator[dict[str, Any]]:
        agent = AGENTS[self.run.manager]
        for each in self.cluster.project.bed.requests(self.cluster.project.cloud.project):
            if each["ua"].startswith(agent):
                yield each

    def _counts(self, since: float) -> Counter[tuple[str, str]]:
        return Counter(
            (each["service"], "reads" if each["method"] in READS else "writes")
            for each in self._requests()
            if each["t"] >= since
        )


def measure(cluster: Cluster, manager: str) -> Run:
    run = Run(manager)
    start = go_ccm if manager == "Go" else pileus
    _create_objects(cluster)
    with start(cluster) as process:
        at_work = Measured(cluster, process, run)
        at_work.phase(EARLY, at_work.early)
        _delete(cluster, process)
        for name in cluster.project.servers:
            process.eventually(f"{name} is initialized", partial(_is_initialized, cluster, name))
        at_work.quiet()
        at_work.phase(f"create {len(SERVICES)} Services", lambda: _create(cluster, process))
        run.balancers = {name: _comparable(balancer_of(cluster, name)) for name in SERVICES}
        at_work.phase("add a node", lambda: _add_node(cluster, process))
    since = time.time()
    with start(cluster) as process:
        at_work = Measured(cluster, process, run)
        at_work.phase(UNCHANGED, lambda: at_work.begins(since))
        at_work.phase(f"delete {len(SERVICES)} Services", lambda: _delete(cluster, process))
    return run


def _is_initialized(cluster: Cluster, name: str) -> bool:
    return bool(cluster.node(name)["spec"].get("providerID"))


def _create(cluster: Cluster, manager: Manager) -> None:
    _create_objects(cluster)
    manager.has_addresses(cluster, *SERVICES)


def _create_objects(cluster: Cluster) -> None:
    for name, spec in SERVICES.items():
        given = dict(spec)
        cluster.create_service(name, *given.pop("ports", (80,)), **given)


def _add_node(cluster: Cluster, manager: Manager) -> None:
    cluster.project.add_servers("node-4")
    cluster.add_nodes("node-4")
    _have_member(cluster, manager, "node-4")


def _have_member(cluster: Cluster, manager: Manager, node: str) -> None:
    """Waits until the node is a member of every load balancer."""

    def joined(name: str) -> bool:
        pools = balancer_of(cluster, name).members
        return all(node in {member["name"] for member in members} for members in pools)

    for name in SERVICES:
        manager.eventually(f"{name} has the new member", lambda name=name: joined(name))


def _delete(cluster: Cluster, manager: Manager) -> None:
    for name in SERVICES:
        cluster.delete_service(name)
    manager.has_deleted(cluster, *SERVICES)


IDENTITY = frozenset({
    "id", "created_at", "updated_at", "project_id", "tenant_id", "vip_address", "vip_port_id",
    "vip_subnet_id", "vip_network_id", "default_pool_id", "healthmonitor_id", "loadbalancers",
    "listeners", "pools", "members", "address", "subnet_id", "operating_status", "protocol_port",
    "tags", "provisioning_status", "revision_number", "floating_ip_address", "fixed_ip_address",
    "port_id", "router_id", "floating_network_id", "port_details", "status",
})  # fmt: skip
"""Fields that differ between any two load balancers, or that hold Pileus' marks."""


def _comparable(seen: Seen) -> dict[str, Any]:
    """Returns what two managers should create alike, without identities and addresses."""

    def plain(record: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in sorted(record.items()) if key not in IDENTITY}

    return {
        "balancer": plain(seen.balancer),
        "listeners": [plain(each) | {"port": each["protocol_port"]} for each in seen.listeners],
        "pools": [plain(each) for each in seen.pools],
        "members": [[plain(each) for each in members] for members in seen.members],
        "floating IPs": [plain(each) for each in seen.floating_ips],
    }


def differences(runs: list[Run]) -> Iterator[str]:
    """Yields one line per part of a load balancer that the managers created differently."""
    first, second = runs
    for name in SERVICES:
        old, new = first.balancers[name], second.balancers[name]
        for part in old:
            if old[part] != new[part]:
                yield f"{name}, {part}: {first.manager} {old[part]}, {second.manager} {new[part]}"


def page(runs: list[Run]) -> Iterator[str]:
    """Yields the lines of the page."""
    names = [run.manager for run in runs]
    yield "| work | " + " | ".join(f"{name}: reads | writes | seconds" for name in names) + " |"
    yield "|---" * (1 + 3 * len(names)) + "|"
    for phases in zip(*(run.phases for run in runs), strict=True):
        cells = [phases[0].name]
        for phase in phases:
            seconds = "" if phase.name == UNCHANGED else f"{phase.seconds:.1f}"
            cells += [str(_sum(phase, "reads")), str(_sum(phase, "writes")), seconds]
        yield f"| {' | '.join(cells)} |"
    yield ""
    for run in runs:
        yield (
            f"{run.manager}, with Services that exist before nodes are initialized: the first "
            f"address after {run.first_address:.1f} s, {run.member_writes} writes of members."
        )
    yield ""
    yield "Requests by service (reads + writes):"
    yield ""
    used = [name for name in OPENSTACK if any(_by_service(run, name) for run in runs)]
    yield "| work | " + " | ".join(f"{name}: {each}" for name in names for each in used) + " |"
    yield "|---" * (1 + len(names) * len(used)) + "|"
    for phases in zip(*(run.phases for run in runs), strict=True):
        cells = [
            f"{phase.requests[each, 'reads']} + {phase.requests[each, 'writes']}"
            for phase in phases
            for each in used
        ]
        yield f"| {phases[0].name} | {' | '.join(cells)} |"
    yield ""
    found = list(differences(runs))
    yield "The load balancers of both are equal, field by field." if not found else "Differences:"
    yield from (f"- {each}" for each in found)


def _sum(phase: Phase, kind: str) -> int:
    return sum(number for (_, what), number in phase.requests.items() if what == kind)


def _by_service(run: Run, service: str) -> int:
    counts = sum((phase.requests for phase in run.phases), Counter[tuple[str, str]]())
    return sum(number for (name, _), number in counts.items() if name == service)


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch, _bed(Path(scratch) / "bed") as bed:
        runs = [one(bed, Path(scratch) / name, name) for name in AGENTS]
    versions = {
        "Go manager": GO_VERSION,
        "Pileus": PILEUS,
        "kube-apiserver": KUBERNETES,
        "OpenStack": "2026.2",
    }
    load = "load average " + ", ".join(f"{each:.0f}" for each in os.getloadavg())
    print(f"Measured on {datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {load}:", end=" ")
    print(", ".join(f"{name} {version}" for name, version in versions.items()) + ".\n")
    print("\n".join(page(runs)))
    return 0


def _bed(folder: Path) -> contextlib.AbstractContextManager[Bed]:
    """Returns the bed in the folder PILEUS_OPENSTACK, or starts one."""
    given = os.environ.get("PILEUS_OPENSTACK")
    if given:
        return contextlib.nullcontext(Bed.running(Path(given)))
    return Bed.started(prepare(build), folder)


def one(bed: Bed, folder: Path, manager: str) -> Run:
    folder.mkdir()
    with (
        ControlPlane(Path(os.environ[BINARIES]), folder) as control_plane,
        project(bed, f"compare-{manager.lower()}-{os.getpid()}") as made,
    ):
        made.add_network()
        made.add_servers("node-1", "node-2", "node-3")
        cluster = Cluster(control_plane, made, folder, made.cloud.config(folder / "cloud.conf"))
        cluster.add_nodes("node-1", "node-2", "node-3")
        return measure(cluster, manager)


if __name__ == "__main__":
    sys.exit(main())

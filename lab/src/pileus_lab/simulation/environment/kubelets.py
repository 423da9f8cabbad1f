"""Kubelets and kube-controller-manager: nodes register, report, stop reporting, get pod CIDRs."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from ipaddress import ip_network

from pileus.clock import Clock
from pileus.cloud.model import InstanceState
from pileus_lab.apiserver.tree import Obj, rows, text, texts
from pileus_lab.node_agents.node import (
    NOT_READY,
    UNINITIALIZED,
    Host,
    Registration,
    alive_status,
    new_node,
    silent_status,
)
from pileus_lab.simulation.clouds.deeds import AddMachine, DeleteMachine
from pileus_lab.simulation.clouds.truth import Machine
from pileus_lab.simulation.environment.account import Account
from pileus_lab.simulation.environment.cluster import MERGE, NODES_PATH, Cluster, ready_status
from pileus_lab.simulation.kinds import DeedKind
from pileus_lab.simulation.schedule import Deed

PERIOD = 5.0
SILENCE = 40.0
"""Seconds without a report after which the state of a node is unknown."""
WHO = "kubelets"
HOW = Registration()
PREFIXES = {4: 24, 6: 64}
"""Prefix length of the pod CIDR of a node, by family."""
THEIRS: Obj = {"key": "example.com/dedicated", "value": "web", "effect": "PreferNoSchedule"}
"""A taint that managers ignore."""
OUTSIDE = "fd99::/64"
"""A pod CIDR outside of the cluster's."""
PRETENDER = "pretender-"
"""Part of the names of nodes that claim the machine of another."""


def is_pretender(node: Obj) -> bool:
    return PRETENDER in text(node, "metadata", "name")


def _is_new(node: Obj) -> bool:
    return any(text(taint, "key") == UNINITIALIZED for taint in rows(node, "spec", "taints"))


class Kubelets:
    """One kubelet for each running machine, and the controller that marks silent nodes."""

    def __init__(
        self,
        cluster: Cluster,
        account: Account,
        clock: Clock,
        *,
        cidrs: Sequence[str],
        how: Registration = HOW,
    ) -> None:
        """`cidrs`: the cluster's pod CIDR of each family; empty if a manager assigns them."""
        self._how = how
        self._cluster = cluster
        self._account = account
        self._clock = clock
        self._pools = tuple(_blocks(one) for one in cidrs)
        self._silent_since: dict[str, float] = {}
        self._given = 0
        self._seen: object = None
        self._named = 0
        self._hanging: dict[str, float] = {}
        """UUIDs of machines whose kubelets do not report until that time."""
        self._lingering: dict[str, tuple[Machine, float]] = {}
        """By UUID: machines that the cloud no longer has, and until when their kubelets report."""
        self._bad_ranges: dict[str, str] = {}
        """By name: a pod CIDR that the node gets instead of its own second one."""
        self.deeds: Mapping[DeedKind, Callable[[Deed], None]] = {
            DeedKind.KUBELET_HANGS: self._hang,
            DeedKind.KUBELET_LINGERS: self._linger,
            DeedKind.NODE_BAD_RANGE: self._add_badly_ranged,
            DeedKind.STRANGER_NODE: self._pretend,
        }

    def end(self) -> None:
        """Every kubelet of a running machine reports, and no node claims the machine of another."""
        self._hanging.clear()
        self._lingering.clear()
        for node in self._cluster.objects("nodes"):
            if is_pretender(node):
                self._cluster.act(WHO, "DELETE", f"{NODES_PATH}/{text(node, 'metadata', 'name')}")

    async def run(self) -> None:
        while True:
            if not self._cluster.is_down:
                self.look()
            await asyncio.sleep(PERIOD)

    def look(self) -> None:
        """Reports, and registers machines that have no node."""
        running = {one.uuid: one for one in self._running()}
        now = self._cluster.versions("nodes"), tuple(running)
        if now == self._seen and not self._silent_since:
            return
        nodes = self._cluster.objects("nodes")
        for node in nodes:
            self._report(node, running)
        names = {text(node, "metadata", "name") for node in nodes}
        for machine in running.values():
            if machine.name not in names:
                self._register(machine)
        self._seen = self._cluster.versions("nodes"), tuple(running)

    def _running(self) -> Iterator[Machine]:
        """The machines whose kubelets report."""
        now = self._account.now()
        for machine in self._account.truth().machines:
            hangs = self._hanging.get(machine.uuid, now) > now
            if machine.state is InstanceState.RUNNING and not hangs:
                yield machine
        yield from (machine for machine, until in self._lingering.values() if until > now)

    def _initialized(self) -> frozenset[str]:
        """The provider IDs of nodes without the taint of a new one."""
        nodes = self._cluster.objects("nodes")
        return frozenset(text(node, "spec", "providerID") for node in nodes if not _is_new(node))

    def _hang(self, deed: Deed) -> None:
        machine = deed.one_of(list(self._running()))
        if machine is not None:
            self._hanging[machine.uuid] = self._account.now() + SILENCE + deed.seconds

    def _linger(self, deed: Deed) -> None:
        running = [one for one in self._running() if one.uuid not in self._lingering]
        machine = deed.one_of(running)
        if machine is not None:
            self._lingering[machine.uuid] = machine, self._account.now() + deed.seconds
            self._account.do(WHO, DeleteMachine(machine.id))

    def _pretend(self, deed: Deed) -> None:
        """With everything that a kubelet registers.

        The name is that of no machine, or that of the machine with another domain: then it is
        refused for the machine's own node, which was initialized before.
        """
        machine = deed.one_of(list(self._running()))
        if machine is None:
            return
        self._named += 1
        name = f"{PRETENDER}{self._named}"
        if deed.choice % 2 and machine.provider_id in self._initialized():
            name = f"{machine.name}.{name}"
        host = Host(name, "", machine.provider_id)
        node = new_node(host, Registration(reports_provider_id=True))
        node["spec"] = {**_spec(node), **self._next_ranges("")}
        self._cluster.act(WHO, "POST", NODES_PATH, node)

    def _add_badly_ranged(self, deed: Deed) -> None:
        """The second CIDR is outside of the cluster's, or that of another node."""
        if len(self._pools) < len(PREFIXES):
            return
        nodes = self._cluster.objects("nodes")
        taken = [texts(node, "spec", "podCIDRs")[1:] for node in nodes]
        others = [cidr for cidrs in taken for cidr in cidrs]
        self._named += 1
        name = f"b-{self._named}"
        bad = deed.one_of(others) if deed.choice % 2 else OUTSIDE
        self._bad_ranges[name] = bad or OUTSIDE
        self._account.do(WHO, AddMachine(name))

    def _register(self, machine: Machine) -> None:
        node = new_node(_host(machine), self._how)
        taints = [*rows(node, "spec", "taints"), THEIRS]
        ranges = self._next_ranges(self._bad_ranges.get(machine.name, ""))
        node["spec"] = {**_spec(node), "taints": taints, **ranges}
        made = self._cluster.act(WHO, "POST", NODES_PATH, node)
        if made is not None:
            self._report_ready(made, machine, self._clock.now())

    def _report(self, node: Obj, running: dict[str, Machine]) -> None:
        uuid, name = text(node, "status", "nodeInfo", "systemUUID"), text(node, "metadata", "name")
        if not uuid:
            return
        machine = running.get(uuid)
        if machine is not None:
            self._silent_since.pop(uuid, None)
            if ready_status(node) != "True":
                self._report_ready(node, machine, self._clock.now())
        elif ready_status(node) == "True":
            since = self._silent_since.setdefault(uuid, self._account.now())
            if self._account.now() - since >= SILENCE:
                del self._silent_since[uuid]
                body = silent_status(self._clock.now())
                self._cluster.act(WHO, "PATCH", f"{NODES_PATH}/{name}/status", body)

    def _report_ready(self, node: Obj, machine: Machine, now: datetime) -> None:
        path = f"{NODES_PATH}/{text(node, 'metadata', 'name')}"
        body = alive_status(_host(machine), self._how, now, now)
        self._cluster.act(WHO, "PATCH", f"{path}/status", body)
        fresh = self._cluster.act(WHO, "GET", path)
        kept = [one for one in rows(fresh, "spec", "taints") if text(one, "key") != NOT_READY]
        if len(kept) < len(rows(fresh, "spec", "taints")):
            tolerated = {"spec": {"taints": kept}}
            self._cluster.act(WHO, "PATCH", path, tolerated, MERGE)

    def _next_ranges(self, bad: str) -> Obj:
        """Returns the pod CIDRs of a node; none if another controller assigns them.

        `bad`: a CIDR that replaces the second one, unless empty.
        """
        nodes = self._cluster.objects("nodes")
        taken = {cidr for node in nodes for cidr in texts(node, "spec", "podCIDRs")}
        given: list[str] = []
        for pool in self._pools:
            ordered = (*pool[self._given :], *pool[: self._given])
            given.append(next(one for one in ordered if one not in taken))
            self._given = (pool.index(given[-1]) + 1) % len(pool)
        if bad:
            given[-1] = bad
        return {"podCIDR": given[0], "podCIDRs": given} if given else {}


@cache
def _blocks(cidr: str) -> tuple[str, ...]:
    """Returns the n-th CIDRs of the cluster's."""
    network = ip_network(cidr)
    prefix = PREFIXES[network.version]
    return tuple(str(one) for one in network.subnets(new_prefix=prefix))


def _host(machine: Machine) -> Host:
    return Host(machine.name, machine.uuid, machine.provider_id)


def _spec(node: Obj) -> Obj:
    spec = node.get("spec")
    return {**spec} if isinstance(spec, dict) else {}

"""What is measured: each scenario is a seed, a pace of the cloud, and the work of one manager."""

import asyncio
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from statistics import median

from tools.bench.bed import Bed, Outcome, Pace, Values, Watched
from tools.bench.cluster_api import side_by_side
from tools.bench.end_state import read_state
from tools.bench.objects import (
    NODES,
    SERVICES,
    SHUTDOWN,
    UNINITIALIZED,
    condition,
    name_of,
    node,
)
from tools.bench.processes import Process
from tools.bench.seeds import Seed

FLAGS = ("--configure-cloud-routes=false",)
ROUTE_FLAGS = (
    "--allocate-node-cidrs=true",
    "--cluster-cidr=100.64.0.0/10",
    "--configure-cloud-routes=true",
)
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager"
LIMITED = Pace(latency_ms=200, per_second=20, burst=40)
STANDBY = 4.0
"""Seconds in which a second manager is ready to take over."""
QUIET = 60.0
STARTS = 3
Work = Callable[[Bed], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    title: str
    seed: Seed
    work: Work
    seconds: tuple[tuple[str, float], ...]
    """The sides that run it, in their order, and about how many seconds a run takes."""
    pace: Pace = field(default_factory=Pace)
    limit: float = 300.0
    """Seconds after which a run has failed."""
    repeats: int = 1
    """How often it is run at most, if there is time."""
    repeat_share: float = 1.0
    """The part of the time that a repeat takes, which leaves out what takes long."""

    @property
    def sides(self) -> tuple[str, ...]:
        return tuple(side for side, _ in self.seconds)

    def estimate(self, side: str) -> float:
        return dict(self.seconds).get(side, 60.0)


def is_initialized(node: Watched) -> bool:
    return bool(node.spec.providerID) and not node.has_taint(UNINITIALIZED)


def is_shut_down(node: Watched) -> bool:
    return node.has_taint(SHUTDOWN)


def has_route(node: Watched) -> bool:
    return any(
        one.type == "NetworkUnavailable" and one.status == "False" for one in node.status.conditions
    )


def has_address(service: Watched) -> bool:
    return bool(service.status.load_balancer.ingress)


def now() -> float:
    return asyncio.get_running_loop().time()


def nodes(count: int, part: str, *, compare: bool = False) -> Work:
    """All nodes are new when the manager starts."""

    async def work(bed: Bed) -> Outcome:
        async with bed.watching(NODES, is_initialized) as initialized:
            before, began = await bed.begin(), now()
            manager = bed.start(*FLAGS)
            wall = await initialized.until(count) - began
            values = await bed.values(before, manager, wall=wall)
        state = await read_state(bed.api, bed.cloud) if compare and not bed.repeat else {}
        return Outcome({part: values}, state)

    return work


def services(nodes: int, count: int, part: str, *, joins: bool = False) -> Work:
    """All Services are new when the manager starts; then nodes join, and nothing happens."""

    async def work(bed: Bed) -> Outcome:
        async with bed.watching(SERVICES, has_address) as ready:
            before, began = await bed.begin(), now()
            manager = bed.start(*FLAGS)
            wall = await ready.until(count) - began
            parts = {part: await bed.values(before, manager, wall=wall)}
        if not joins or bed.side.name == "bare":
            return Outcome(parts, {} if bed.repeat else await read_state(bed.api, bed.cloud))
        parts["one node joins"] = await joined(bed, manager, nodes, 1, 0.0)
        parts["fifty nodes join"] = await joined(bed, manager, nodes + 1, 50, 10.0)
        if bed.repeat:
            return Outcome(parts)
        state = await read_state(bed.api, bed.cloud)
        parts["a quiet minute"] = await quiet(bed, manager)
        parts["restart"] = await restarted(bed, manager)
        return Outcome(parts, state)

    return work


async def joined(bed: Bed, manager: Process, first: int, count: int, seconds: float) -> Values:
    """New nodes register, evenly over some seconds, and become members of all balancers."""
    names = {name_of(each) for each in range(first, first + count)}
    balancers = bed.cloud.ask("progress")["balancers"]

    def is_new(node: Watched) -> bool:
        return node.metadata.name in names and is_initialized(node)

    async with bed.watching(NODES, is_new) as initialized:
        before, began = await bed.begin(manager), now()
        bed.cloud.add(sorted(names))
        for each in range(count):
            await asyncio.sleep(max(0.0, began + seconds * each / count - now()))
            await bed.api.send("POST", NODES, node(first + each, initialized=False))
        last = await initialized.until(count) - began
        wall = await members(bed, balancers, first + count) - began
        return await bed.values(before, manager, wall=wall, initialized=last)


async def members(bed: Bed, balancers: int, count: int) -> float:
    """Returns the loop's time at which so many load balancers had so many members."""
    while True:
        progress = bed.cloud.ask("progress")
        complete = progress["members"].get(str(count), 0)
        if complete == balancers:
            return now()
        bed.say(f"{complete} of {balancers} load balancers have all {count} members")
        await asyncio.sleep(0.05)


async def quiet(bed: Bed, manager: Process) -> Values:
    """Nothing happens for a minute."""
    before, began = await bed.begin(manager), now()
    while now() - began < QUIET:
        bed.say(f"a quiet minute: {now() - began:.0f} s")
        await asyncio.sleep(1)
    return await bed.values(before, manager)


async def restarted(bed: Bed, manager: Process) -> Values:
    """The manager is started again, and everything is in its desired state."""
    await ended(bed, manager)
    before = await bed.begin()
    manager = bed.start(*FLAGS)
    await asyncio.sleep(STANDBY)
    return await bed.values(before, manager)


async def ended(bed: Bed, manager: Process, how: int = signal.SIGTERM) -> None:
    """End a manager, and delete its lease, for which the next one would have to wait."""
    await asyncio.to_thread(manager.end, how)
    bed.processes.remove(manager)
    await bed.api.send("DELETE", LEASE)


def routes(count: int, part: str, *, compare: bool = False) -> Work:
    """No node has a route when the manager starts."""

    async def work(bed: Bed) -> Outcome:
        async with bed.watching(NODES, has_route) as reached:
            before, began = await bed.begin(), now()
            manager = bed.start(*ROUTE_FLAGS)
            wall = await reached.until(count) - began
            values = await bed.values(before, manager, wall=wall)
        made = bed.cloud.ask("progress")["routes"]
        if made != count:
            raise RuntimeError(f"{count} nodes have a route, but the cloud has {made}")
        state = await read_state(bed.api, bed.cloud) if compare and not bed.repeat else {}
        return Outcome({part: values}, state)

    return work


def outage(nodes: int, healthy: int, part: str) -> Work:
    """Most machines are stopped while the manager runs, and their nodes become not ready.

    The benchmark marks the nodes, which takes about as long as the manager's writes: `known` is
    the time after the last one was marked.
    """

    async def work(bed: Bed) -> Outcome:
        stopped = [name_of(each) for each in range(healthy, nodes)]
        body = {"status": {"conditions": [condition("Ready", "Unknown", "NodeStatusUnknown")]}}
        async with bed.watching(NODES, is_shut_down) as known:
            manager = bed.start(*FLAGS)
            await asyncio.sleep(STANDBY)
            await bed.settled(manager)
            before, began = await bed.begin(manager), now()
            bed.cloud.add(stopped, stopped=True)
            await side_by_side(stopped, lambda name: bed.api.patch(f"{NODES}/{name}/status", body))
            last = now()
            end = await known.until(len(stopped))
            values = await bed.values(before, manager, wall=end - began, known=end - last)
        return Outcome({part: values}, {} if bed.repeat else await read_state(bed.api, bed.cloud))

    return work


def starts(nodes: int, part: str) -> Work:
    """One new node waits for a manager that starts in a cluster of initialized ones."""

    async def work(bed: Bed) -> Outcome:
        results: list[Values] = []
        for each in range(STARTS):
            manager, values = await first_node(bed, nodes + each)
            results.append(values)
            await ended(bed, manager)
        middle = {key: median(one[key] for one in results) for key in results[0]}
        return Outcome({part: middle})

    return work


async def first_node(bed: Bed, number: int) -> tuple[Process, Values]:
    """Start a manager. Returns it, and what it used until a new node was initialized."""
    name = name_of(number)
    bed.cloud.add([name])
    await bed.api.send("POST", NODES, node(number, initialized=False))
    async with bed.watching(
        NODES, lambda node: node.metadata.name == name and is_initialized(node)
    ) as initialized:
        before, began = await bed.begin(), now()
        manager = bed.start(*FLAGS)
        wall = await initialized.until(1) - began
        return manager, await bed.values(before, manager, wall=wall)


def failover(nodes: int) -> Work:
    """A leader is killed, then its successor is stopped. Each time a new node waits."""

    async def work(bed: Bed) -> Outcome:
        leader, _ = await first_node(bed, nodes)
        parts: dict[str, Values] = {}
        for number, how in enumerate((signal.SIGKILL, signal.SIGTERM), nodes + 1):
            standby = bed.start(*FLAGS)
            await asyncio.sleep(STANDBY)
            parts[how.name] = {"wall": await taken_over(bed, leader, number, how)}
            leader = standby
        return Outcome(parts)

    return work


async def taken_over(bed: Bed, leader: Process, number: int, how: signal.Signals) -> float:
    """Returns the seconds from a signal to the leader until the other manager has acted."""
    name = name_of(number)
    bed.cloud.add([name])
    bed.processes.remove(leader)
    async with bed.watching(
        NODES, lambda node: node.metadata.name == name and is_initialized(node)
    ) as initialized:
        began = now()
        leader.popen.send_signal(how)
        try:
            await bed.api.send("POST", NODES, node(number, initialized=False))
            return await initialized.until(1) - began
        finally:
            leader.end(signal.SIGKILL)


_READY = Seed(1000, initialized=True)
_FEW = Seed(100, initialized=True)
SCENARIOS = (
    Scenario(
        "nodes", "1,000 new nodes", Seed(1000), nodes(1000, "1,000 nodes", compare=True),
        (("go", 14), ("pileus", 13), ("bare", 10)), repeats=3,
    ),
    Scenario(
        "services", "1,000 Services on 1,000 nodes, then nodes join",
        Seed(1000, initialized=True, services=1000),
        services(1000, 1000, "1,000 Services", joins=True),
        (("go", 122), ("pileus", 106), ("bare", 11)), repeats=2, repeat_share=0.5, limit=400,
    ),
    Scenario(
        "routes", "1,000 routes", _READY, routes(1000, "1,000 routes", compare=True),
        (("go", 10), ("pileus", 10)), repeats=2,
    ),
    Scenario(
        "start", "start to the first node, with 1,000 nodes", _READY, starts(1000, "start"),
        (("go", 18), ("pileus", 27)), repeats=2,
    ),
    Scenario(
        "nodes-5000", "5,000 new nodes", Seed(5000), nodes(5000, "5,000 nodes"),
        (("go", 40), ("pileus", 34)), repeats=2,
    ),
    Scenario(
        "outage", "900 of 1,000 nodes stop", _READY, outage(1000, 100, "outage"),
        (("go", 20), ("pileus", 16)), repeats=2,
    ),
    Scenario(
        "failover", "failover by SIGKILL and SIGTERM", Seed(20, initialized=True),
        failover(20), (("go", 50), ("pileus", 29)),
    ),
    Scenario(
        "limited", "500 new nodes, cloud limited to 20 calls/s", Seed(500),
        nodes(500, "limited cloud"), (("go", 51), ("pileus", 10)), pace=LIMITED,
    ),
    Scenario(
        "nodes-shipped", "200 new nodes, Go as shipped", Seed(200),
        nodes(200, "200 nodes"), (("shipped", 34), ("pileus", 8)),
    ),
    Scenario(
        "services-shipped", "100 Services on 100 nodes, Go as shipped",
        Seed(100, initialized=True, services=100), services(100, 100, "100 Services"),
        (("shipped", 25), ("pileus", 8)),
    ),
    Scenario(
        "routes-shipped", "400 routes, Go as shipped", Seed(400, initialized=True),
        routes(400, "400 routes"), (("shipped", 24), ("pileus", 8)),
    ),
    Scenario(
        "nodes-500", "500 new nodes", Seed(500), nodes(500, "500 nodes"),
        (("go", 9), ("pileus", 9)),
    ),
    Scenario(
        "nodes-2000", "2,000 new nodes", Seed(2000), nodes(2000, "2,000 nodes"),
        (("go", 17), ("pileus", 17)),
    ),
    Scenario(
        "nodes-10000", "10,000 new nodes", Seed(10000), nodes(10000, "10,000 nodes"),
        (("go", 85), ("pileus", 70)), limit=400,
    ),
)  # fmt: skip
"""The scenarios of `make bench`, the most important ones first."""
QUICK_SCENARIOS = (
    Scenario(
        "quick-nodes", "200 new nodes", Seed(200), nodes(200, "200 nodes, quick", compare=True),
        (("go", 12), ("pileus", 12), ("bare", 10)), repeats=2,
    ),
    Scenario(
        "quick-services", "100 Services on 100 nodes",
        Seed(100, initialized=True, services=100), services(100, 100, "100 Services"),
        (("go", 12), ("pileus", 12)),
    ),
    Scenario(
        "quick-routes", "100 routes", _FEW, routes(100, "100 routes", compare=True),
        (("go", 12), ("pileus", 12)),
    ),
    Scenario(
        "quick-outage", "80 of 100 nodes stop", _FEW, outage(100, 20, "outage, quick"),
        (("go", 18), ("pileus", 16)),
    ),
)  # fmt: skip
"""The scenarios of `make bench-quick`: the same work at small sizes."""

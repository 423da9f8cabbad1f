"""What many objects cost: requests, writes, events and calls to the cloud, in virtual time.

A change that makes the manager send more, or wait longer for the cloud, fails a test here, and no
stopwatch is needed.
"""

import asyncio
import cProfile
from collections import Counter
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from pstats import Stats
from random import Random

import pileus
from pileus.bucket import Bucket
from pileus.cloud.abilities import Abilities, Limits
from pileus.cloud.balancer import Owner
from pileus.cloud.errors import CloudError, Throttled
from pileus.cloud.model import InstanceState, Route
from pileus.kube.client import Client
from pileus.objects.nodes import UNINITIALIZED
from pileus.runtime.events import EventRecorder
from pileus.telemetry.journal import Journal
from pileus.telemetry.passes import recording
from pileus.testing.virtual_time import LoopClock, loop_time
from tests.unit.controllers.lifecycle.world import World as Outage
from tests.unit.controllers.lifecycle.world import instance
from tests.unit.controllers.node.objects import document
from tests.unit.controllers.node.objects import instance as machine
from tests.unit.controllers.node.test_controller import running as running_nodes
from tests.unit.controllers.node.test_controller import site
from tests.unit.controllers.route.site import FakeRoutes, Site
from tests.unit.controllers.service.plain import Change, PlainBalancers
from tests.unit.controllers.service.world import World, running

SERVICES, NODES = 300, 100
LATENCY = 0.05
"""Seconds that the cloud takes for a call."""
TICK = 0.05
COUNTED, MOST_CALLS = 100, 2540
"""Services, and calls of functions for each; 2,457 when this was written, 2,591 before."""
MOST_NODE_CALLS = 1800
"""Calls of functions for each new node; 1,747 when this was written, 1,909 before."""
INITIALIZED_AFTER = 0.09
"""Seconds from the registration of a node until it is initialized."""
TAINT = {"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}


class Bed:
    """Services on nodes, a manager, and a cloud; counts what they exchange."""

    def __init__(self) -> None:
        self.world = World()
        self.cloud: PlainBalancers = self.world.plainly()
        self.cloud.takes = LATENCY

    async def fill(self, services: int = SERVICES, nodes: int = NODES) -> None:
        for number in range(nodes):
            await self.world.add_node(f"n{number}")
        for number in range(services):
            ports = [{"port": 80, "nodePort": 30000 + number}]
            await self.world.add(f"s{number}", ports=ports)

    @asynccontextmanager
    async def managed(self) -> AsyncGenerator[None]:
        """A manager that writes its events to the API server."""
        world = self.world
        client = Client(world.wire, user_agent="events", metrics=world.metrics)
        events = EventRecorder(
            "test", client, clock=world.clock, random=Random(0), metrics=world.metrics
        )
        world.events = events  # type: ignore[assignment] -- in the place of a fake
        async with running(events.run()), world.managed():
            yield

    async def join(self, name: str) -> None:
        """A node registers, and is initialized as quickly as a node controller does it."""
        await self.world.add_node(name, spec={"providerID": "", "taints": [TAINT]})
        await asyncio.sleep(INITIALIZED_AFTER)
        initialized = {"providerID": f"local://{name}", "taints": None}
        await self.world.change_node(name, spec=initialized)

    def forget(self) -> None:
        """Count from now on."""
        self.world.wire.writes.clear()
        self.world.wire.reads.clear()
        self.cloud.changed.clear()
        self.cloud.looks.clear()

    def events(self) -> Counter[str]:
        """Returns how many events were written, by reason."""
        bodies = [body for _, path, body in self.world.wire.writes if "/events" in path]
        return Counter(body["reason"] for body in bodies if "reason" in body)

    def cloud_calls(self) -> int:
        return len(self.cloud.changed) + len(self.cloud.looks)

    async def until_members(self, number: int) -> float:
        """Wait until every load balancer has so many members; returns the seconds."""
        began = loop_time()
        async with asyncio.timeout(600):
            while any(len(seen.wanted.members) != number for seen in self.cloud.standing.values()):
                await asyncio.sleep(TICK)
        return loop_time() - began


async def test_a_new_service_costs_two_writes_two_events_and_one_call_of_its_own():
    bed = Bed()
    await bed.fill()

    async with bed.managed():
        await asyncio.sleep(30)

        assert len(bed.world.wire.written()) == 2 * SERVICES
        assert bed.events() == {"EnsuringLoadBalancer": SERVICES, "EnsuredLoadBalancer": SERVICES}
        assert len(bed.cloud.changed) == SERVICES
        assert sum(items for items, _ in bed.cloud.looks) == SERVICES
        assert len(bed.cloud.looks) <= 2


async def test_a_restart_with_everything_unchanged_writes_nothing():
    bed = Bed()
    await bed.fill()
    async with bed.managed():
        await asyncio.sleep(30)
    bed.forget()

    async with bed.managed():
        await asyncio.sleep(30)

        assert bed.world.wire.writes == []
        assert bed.cloud.changed == []
        assert bed.cloud_calls() == 1


async def test_a_node_that_joins_is_a_member_everywhere_after_one_call_per_balancer():
    bed = Bed()
    await bed.fill()
    async with bed.managed():
        await asyncio.sleep(30)
        bed.forget()

        await bed.join("late")
        took = await bed.until_members(NODES + 1)
        await asyncio.sleep(30)

        assert took <= 0.6
        assert len(bed.cloud.changed) == SERVICES
        assert len(bed.cloud.looks) == 1
        assert bed.world.wire.written() == []
        assert bed.events() == {"UpdatedLoadBalancer": SERVICES}


async def test_fifty_nodes_that_join_one_after_the_other_share_one_update():
    bed = Bed()
    bed.cloud.takes = 1.0  # so that an update of all takes as long as that of 1,000 Services
    await bed.fill()
    async with bed.managed():
        await asyncio.sleep(30)
        await bed.join("before")
        await bed.until_members(NODES + 1)
        await asyncio.sleep(30)
        bed.forget()

        async with asyncio.TaskGroup() as joining:
            for number in range(50):
                joining.create_task(bed.join(f"late-{number}"))
                await asyncio.sleep(0.2)
        took = await bed.until_members(NODES + 51)

        assert took <= 4.0
        assert bed.cloud_calls() <= SERVICES + 1


async def test_a_thousand_routes_cost_a_list_ten_calls_and_a_write_per_node():
    site = Site(BulkRoutes(takes=LATENCY))
    for number in range(1000):
        await site.register(f"n{number}", f"10.{number // 250}.{number % 250}.0/24")

    async with site.running():
        began = loop_time()
        while len(site.wire.writes("/status")) < 1000:
            await asyncio.sleep(TICK)
        took = loop_time() - began
        await asyncio.sleep(60)

    assert took <= 12 * LATENCY
    assert (site.routes.count("list"), site.routes.count("create")) == (1, 10)
    assert len(site.wire.writes()) == 1000
    assert site.events.lines() == []


class BulkRoutes(FakeRoutes):
    """A cloud that creates many routes in one call, in the time of one."""

    async def create(self, cluster: str, routes: Sequence[Route]) -> Mapping[Route, CloudError]:
        takes, self.takes = self.takes, 0.0
        await asyncio.sleep(takes)
        failed = await super().create(cluster, routes)
        self.takes = takes
        return failed


async def test_an_outage_of_a_thousand_nodes_costs_a_few_lookups_and_a_write_per_node():
    world, names = Outage(), [f"n{number}" for number in range(1000)]
    await world.add(*names)
    for name in names:
        world.cloud.machines[name] = instance(name, InstanceState.STOPPED)
    world.cloud.takes = lambda _: LATENCY

    async with world.running():
        await asyncio.sleep(10)
        world.wire.requests.clear()
        began = loop_time()
        for name in names:
            await world.ready(name, "Unknown")
        while len(world.wire.writes("PATCH")) < len(names):
            await asyncio.sleep(TICK)

        assert loop_time() - began <= 1.0
        assert len(world.cloud.calls) <= 4
        assert len(world.wire.writes("PATCH")) == len(names)


class LimitedCloud:
    """Refuses calls beyond its limits, as the API gateway of a cloud does."""

    def __init__(self, cloud: PlainBalancers, per_second: float, burst: int) -> None:
        self.refused = 0
        self._bucket = Bucket.full(per_second, burst, loop_time())
        cloud.looking = lambda _: self._admit()
        cloud.changing = self._change

    def _change(self, owner: Owner, change: Change) -> None:
        self._admit()

    def _admit(self) -> None:
        wait, spent = self._bucket.reserve(loop_time())
        if wait > 0:
            self.refused += 1
            raise Throttled("too many requests", retry_after=wait)
        self._bucket = spent


async def test_a_cloud_with_declared_limits_refuses_no_call_and_is_used_to_its_limit():
    bed = Bed()
    bed.cloud.takes = 0.2
    bed.world.abilities = Abilities(limits=Limits(per_second=19, burst=38, growth=1))
    cloud = LimitedCloud(bed.cloud, per_second=20, burst=40)
    await bed.fill(nodes=3)

    async with bed.managed():
        began = loop_time()
        while len(bed.cloud.standing) < SERVICES:
            await asyncio.sleep(TICK)
        took = loop_time() - began

        assert cloud.refused == 0
        assert took <= (SERVICES - 38) / 19 + 1.0


async def test_a_cloud_with_unknown_limits_refuses_few_calls():
    bed = Bed()
    bed.cloud.takes = 0.2
    bed.world.abilities = replace(Abilities(), limits=Limits())
    cloud = LimitedCloud(bed.cloud, per_second=20, burst=40)
    await bed.fill(nodes=3)

    async with bed.managed():
        while len(bed.cloud.standing) < SERVICES:
            await asyncio.sleep(TICK)

        assert cloud.refused <= SERVICES / 4


async def test_a_new_service_costs_few_calls_of_functions():
    """The CPU of a pass follows the number of its calls, which does not depend on the machine."""
    bed = Bed()
    await bed.fill(COUNTED, nodes=20)
    profile = cProfile.Profile()

    with recording(bed.world.clock, Journal(bed.world.clock.now()).record):
        async with bed.managed():
            with profile:
                await asyncio.sleep(30)

    assert len(bed.cloud.changed) == COUNTED
    assert own_calls(profile) / COUNTED <= MOST_CALLS


async def test_a_new_node_costs_two_writes_and_few_calls_of_functions():
    names = [f"n{number}" for number in range(COUNTED)]
    at = site([document(name) for name in names], {name: machine(name) for name in names})
    clock, profile = LoopClock(), cProfile.Profile()

    with recording(clock, Journal(clock.now()).record), profile:
        async with running_nodes(at):
            await asyncio.sleep(30)

    assert at.uninitialized() == []
    assert len(at.server.patches) == 2 * COUNTED
    assert own_calls(profile) / COUNTED <= MOST_NODE_CALLS


def own_calls(profile: cProfile.Profile) -> int:
    """Returns the number of calls that functions of the product made."""
    product = str(Path(pileus.__file__).parent)
    callers = [entry[4] for entry in Stats(profile).stats.values()]  # type: ignore[attr-defined] -- not declared
    made = (calls for each in callers for (file, *_), calls in each.items() if product in file)
    return sum(calls[1] for calls in made)

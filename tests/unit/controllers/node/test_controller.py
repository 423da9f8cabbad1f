"""The whole controller on a real client, informer, queue and batching; only HTTP is played."""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import msgspec
import pytest

from pileus.cloud.errors import Unauthorized, Unavailable
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.batching import Batches, batched
from pileus.cloud.model import Failure
from pileus.controllers.node.controller import NodeController
from pileus.controllers.node.descriptor import NODE
from pileus.controllers.node.patches import ObjectWrite, Write, patch_of
from pileus.controllers.node.reconciler import TURNS
from pileus.controllers.node.settings import NodeSettings
from pileus.kube.client import Client
from pileus.kube.errors import Invalid
from pileus.kube.informer import Informer, InformerOptions
from pileus.kube.model.core_v1 import NODES, Node
from pileus.kube.store import Added, Deleted, Table, Updated
from pileus.objects.cloud_scope import only_scope
from pileus.objects.cluster_nodes import MACHINE_INDEX, ClusterNodes, NodeReplaced
from pileus.objects.lookup import DEADLINE as LOOK_UP
from pileus.objects.nodes import is_uninitialized
from pileus.objects.own_writes import CATCH_UP
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics
from pileus.testing.scripted import ScriptedTransport, in_order, refused
from tests.unit.controllers.cluster import Controlled, NodesOnly
from tests.unit.controllers.events import FakeEvents
from tests.unit.controllers.node.api_server import ApiServer
from tests.unit.controllers.node.harness import FakeInstances
from tests.unit.controllers.node.objects import Document, document, instance, merged, typed


@dataclass(frozen=True)
class Site:
    server: ApiServer
    cloud: FakeInstances
    events: FakeEvents
    metrics: Metrics

    def uninitialized(self) -> list[str]:
        found = self.server.documents.items()
        return [name for name, each in found if is_uninitialized(typed(each))]


def site(documents: Sequence[Document], answers: Mapping[str, object]) -> Site:
    return Site(
        ApiServer(documents),
        FakeInstances(answers, takes=0.05),
        FakeEvents(),
        Metrics(MetricRegistry()),
    )


def heartbeat(node: Document, number: int) -> Document:
    """The node as its kubelet says from time to time that nothing is new."""
    ready = {"type": "Ready", "lastHeartbeatTime": f"2026-01-01T00:{number:02}:00Z"}
    return merged(node, {"status": {"conditions": [ready]}}, strategic=True)


@asynccontextmanager
async def running(at: Site) -> AsyncGenerator[NodeController]:
    chance = random.Random(1)
    transport = ScriptedTransport(at.server.respond)
    client = Client(transport, user_agent="test", metrics=at.metrics)
    informer = Informer(client, NODES, random=chance, options=InformerOptions(streaming=False))
    cloud = Cloud(name="fake", instances=at.cloud)
    async with batched(cloud, Batches()) as gathered, asyncio.TaskGroup() as group:
        assert gathered.instances is not None
        given = Controlled(client=client, metrics=at.metrics, events=at.events, random=chance)
        context = given.context(NODE, only_scope(gathered), NodesOnly(informer))
        controller = NodeController(context, gathered.instances, NodeSettings())
        tasks = [group.create_task(informer.run()), group.create_task(controller.run())]
        yield controller
        for task in tasks:
            task.cancel()


async def test_a_thousand_new_nodes_cost_few_look_ups_two_writes_each_and_one_event_each() -> None:
    names = [f"n{number}" for number in range(1000)]
    at = site([document(name) for name in names], {name: instance(name) for name in names})

    async with running(at):
        await asyncio.sleep(60)

    assert not at.uninitialized()
    assert len(at.cloud.calls) <= 10
    assert len(at.server.patches) == 2000
    assert at.events.reasons() == ["Synced"] * 1000


async def test_the_first_of_many_nodes_is_ready_long_before_the_last_one_is_begun() -> None:
    names = [f"n{number}" for number in range(1000)]
    at = site([document(name) for name in names], {name: instance(name) for name in names})

    async with running(at):
        await asyncio.sleep(60)

    ready = [name for name in at.server.patches if not name.endswith("/status")]
    assert at.server.patches.index(ready[0]) <= 2 * TURNS


async def test_a_second_start_writes_nothing_and_says_nothing() -> None:
    names = [f"n{number}" for number in range(50)]
    at = site([document(name) for name in names], {name: instance(name) for name in names})
    async with running(at):
        await asyncio.sleep(60)
    again = site(list(at.server.documents.values()), at.cloud.answers)

    async with running(again):
        await asyncio.sleep(1000)

    assert not again.server.patches
    assert not again.events.told
    assert len(again.cloud.calls) == 4, "only the rounds asked"


async def test_nodes_that_come_and_go_later_are_seen_to() -> None:
    at = site([], {"n1": instance("n1")})

    async with running(at):
        await asyncio.sleep(10)
        at.server.put(document("n1"))
        at.server.put(document("n2"))
        await asyncio.sleep(10)
        failing = at.metrics.registry.value("pileus_nodes_failing_initialization")
        at.server.remove("n2")
        await asyncio.sleep(10)

    assert at.uninitialized() == []
    assert failing == 1
    assert at.metrics.registry.value("pileus_nodes_failing_initialization") == 0


async def test_an_outage_of_the_cloud_delays_nodes_and_forgets_none() -> None:
    names = [f"n{number}" for number in range(100)]
    at = site([document(name) for name in names], {name: instance(name) for name in names})
    at.cloud.whole = Unavailable("503 Service Unavailable")

    async with running(at):
        await asyncio.sleep(600)
        during = len(at.cloud.calls)
        at.cloud.whole = None
        await asyncio.sleep(1200)

    assert not at.uninitialized()
    assert during < 50, "nodes that failed together are retried together, in one look-up"
    assert at.events.reasons().count("CloudUnavailable") == 100
    assert at.events.reasons().count("Synced") == 100
    assert len(at.server.patches) == 300, "the condition once, then the two writes of every node"


async def test_a_stuck_node_is_tried_at_the_pace_of_the_back_off_although_it_is_told_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    at = site([document("n1")], {"n1": Failure(Unauthorized("token expired"))})

    async with running(at):
        for minute in range(10):
            await asyncio.sleep(60)
            at.server.put(heartbeat(at.server.documents["n1"], minute))

    assert at.server.patches == ["n1/status"], "the condition, written in the first pass"
    assert len(at.cloud.calls) == 12, "after 0.25 s, 0.5 s, 1 s and so on to 256 s"
    lines = [each for each in caplog.records if "Pass failed" in each.getMessage()]
    assert len(lines) == 12


async def test_a_change_of_a_stuck_node_is_tried_at_once() -> None:
    at = site([document("n1")], {"n1": Failure(Unauthorized("token expired"))})

    async with running(at):
        await asyncio.sleep(300)
        at.cloud.answers["n1"] = instance("n1")
        at.server.put(document("n1", provider_id="fake://i-n1"))
        await asyncio.sleep(5)

    assert not at.uninitialized()


async def test_defect_9_nothing_is_done_before_all_nodes_are_known() -> None:
    at = site([document("n1", taints=[])], {"n1": instance("n1")})
    at.server.open = False

    async with running(at):
        await asyncio.sleep(300)
        before = len(at.cloud.calls)
        at.server.open = True
        await asyncio.sleep(60)

    assert before == 0
    assert len(at.cloud.calls) == 1


@pytest.mark.parametrize("workers", [0, -1])
def test_defect_5_a_controller_without_workers_is_refused(workers: int) -> None:
    with pytest.raises(ValueError, match="concurrent-node-syncs must be at least 1"):
        NodeSettings(workers=workers)


def nodes_of(server: ApiServer, table: Table[Node]) -> ClusterNodes[Write]:
    metrics = Metrics(MetricRegistry())
    client = Client(ScriptedTransport(server.respond), user_agent="test", metrics=metrics)
    return ClusterNodes(client, table, patch_of)


async def test_what_was_written_is_seen_before_the_watch_brings_it() -> None:
    server, table = ApiServer([document("n1")]), Table[Node]()
    seen = typed(server.documents["n1"])
    table.apply(Added(seen))
    nodes = nodes_of(server, table)

    await nodes.write(seen, ObjectWrite(untaint=True))

    (listed,) = nodes.nodes()
    assert not is_uninitialized(listed)
    table.apply(Deleted(seen))
    assert nodes.node("n1") is None


async def test_nodes_are_found_by_their_machine_before_and_after_the_watch_brings_it() -> None:
    server = ApiServer([document("n1"), document("n2"), document("n3")])
    table = Table[Node](MACHINE_INDEX)
    first, second, third = (typed(each) for each in server.documents.values())
    for each in (first, second, third):
        table.apply(Added(each))
    nodes = nodes_of(server, table)
    assert nodes.of_machine("fake://m1") == []

    for each in (first, second):
        await nodes.write(each, ObjectWrite(provider_id="fake://m1"))
    await nodes.write(third, ObjectWrite(provider_id="fake://m3"))
    assert sorted(each.metadata.name for each in nodes.of_machine("fake://m1")) == ["n1", "n2"]

    written = typed(server.documents["n1"])
    table.apply(Updated(first, written))
    table.apply(Deleted(second))
    assert nodes.of_machine("fake://m1") == [written]


async def test_a_watch_that_never_brings_it_is_believed_after_a_while() -> None:
    server, table = ApiServer([document("n1")]), Table[Node]()
    seen = typed(server.documents["n1"])
    table.apply(Added(seen))
    nodes = nodes_of(server, table)
    await nodes.write(seen, ObjectWrite(untaint=True))

    await asyncio.sleep(CATCH_UP + 1)

    assert nodes.node("n1") == seen


async def test_a_node_registered_anew_is_told_from_the_old_one() -> None:
    server = ApiServer([document("n1")])
    old = msgspec.convert({"metadata": {"name": "n1", "uid": "old"}}, Node)

    with pytest.raises(NodeReplaced):
        await nodes_of(server, Table()).write(old, ObjectWrite(labels={"a": "b"}))

    assert not server.patches


async def test_a_node_read_afresh_is_what_the_next_pass_sees() -> None:
    server, table = ApiServer([document("n1")]), Table[Node]()
    table.apply(Added(typed(server.documents["n1"])))
    nodes = nodes_of(server, table)
    server.put(document("n1", taints=[]))

    read = await nodes.read("n1")

    assert nodes.node("n1") == read
    assert not is_uninitialized(read)


async def test_any_other_invalid_write_is_told_as_it_is() -> None:
    transport = ScriptedTransport(in_order(refused(422, "Invalid", "metadata.labels: bad")))
    client = Client(transport, user_agent="test", metrics=Metrics(MetricRegistry()))
    nodes = ClusterNodes(client, Table(), patch_of)

    with pytest.raises(Invalid, match=r"metadata\.labels"):
        await nodes.write(typed(document("n1")), ObjectWrite(labels={"a": "b"}))


async def test_a_look_up_that_hangs_ends_by_its_own_deadline_and_is_no_stuck_pass() -> None:
    at = site([document("n1")], {"n1": instance("n1")})
    at.cloud.takes = 1e6

    async with running(at) as controller:
        await asyncio.sleep(LOOK_UP + 20)
        assert controller.stuck(60) is None

    assert at.events.messages("CloudUnavailable") == []
    assert len(at.cloud.calls) == 2, "tried again once its time was over"

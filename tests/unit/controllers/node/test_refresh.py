import asyncio
from itertools import pairwise

import pytest

from pileus.cloud.errors import Unavailable
from pileus.cloud.model import Absent, Address
from pileus.controllers.node.patches import StatusWrite, Write
from pileus.controllers.node.settings import NodeSettings
from pileus.fence import Fenced
from pileus.kube.errors import Invalid
from pileus.objects.node_ips import PROVIDED_NODE_IP
from pileus.objects.nodes import addresses_of
from tests.unit.controllers.node.harness import World, api_error
from tests.unit.controllers.node.objects import Document, document, external, instance, internal

SETTLED = [("InternalIP", "10.0.0.1"), ("Hostname", "n1")]


async def test_addresses_follow_the_cloud() -> None:
    before = document(taints=[], addresses=SETTLED)
    found = instance(addresses=(internal("10.0.0.1"), external("1.2.3.4")))
    world = World([before], {"n1": found})

    await world.refresher.round()

    assert [each.address for each in addresses_of(world.node())] == ["10.0.0.1", "1.2.3.4", "n1"]
    assert [type(write) for _, write in world.nodes.writes] == [StatusWrite]


async def test_an_address_of_an_unknown_type_neither_stops_the_others_nor_is_reported_each_round():
    floating = Address("FloatingIP", "203.0.113.9")
    found = instance(addresses=(floating, internal("10.0.0.1"), external("1.2.3.4")))
    world = World([document(taints=[], addresses=SETTLED)], {"n1": found})

    await world.refresher.round()

    assert [each.address for each in addresses_of(world.node())] == ["10.0.0.1", "1.2.3.4", "n1"]
    assert world.events.told == []


async def test_defect_1_a_dual_stack_node_is_not_written_again() -> None:
    dual = instance(addresses=(internal("fd00::1"), internal("10.0.0.1")))
    world = World([document(taints=[], addresses=SETTLED)], {"n1": dual})

    await world.refresher.round()
    await world.refresher.round()

    assert len(world.nodes.writes) == 1


@pytest.mark.parametrize("answer", [None, Absent("none"), "nonsense"])
async def test_defect_2_a_node_without_an_answer_harms_neither_itself_nor_the_others(
    answer: object,
) -> None:
    nodes = [document("n1", taints=[], addresses=SETTLED), document("n2", taints=[])]
    world = World(nodes, {"n1": answer, "n2": instance("n2")})

    await world.refresher.round()

    assert [name for name, _ in world.nodes.writes] == ["n2"]


async def test_uninitialized_and_odd_nodes_are_not_refreshed() -> None:
    unreadable: Document = {"metadata": {"name": "n2", "uid": "2", "resourceVersion": "1"}}
    world = World([document("n1"), unreadable], {"n1": instance(), "n2": instance("n2")})

    await world.refresher.round()

    assert not world.cloud.calls
    assert not world.nodes.writes


async def test_a_node_that_is_being_deleted_is_not_refreshed() -> None:
    leaving = document(taints=[], addresses=SETTLED)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"  # type: ignore[index]
    found = instance(addresses=(internal("10.0.0.1"), external("1.2.3.4")))
    world = World([leaving], {"n1": found})

    await world.refresher.round()

    assert not world.cloud.calls
    assert not world.nodes.writes


async def test_the_cloud_is_asked_about_hundreds_of_nodes_at_once() -> None:
    names = [f"n{number}" for number in range(1200)]
    world = World([document(name, taints=[]) for name in names], {})

    await world.refresher.round()

    assert [len(call) for call in world.cloud.calls] == [500, 500, 200]


async def test_the_calls_of_a_round_are_spread_and_the_pause_between_rounds_is_lengthened() -> None:
    names = [f"n{number}" for number in range(5000)]
    world = World([document(name, taints=[]) for name in names], {})

    running = asyncio.create_task(world.refresher.run())
    await asyncio.sleep(2000)
    running.cancel()

    times, period = world.cloud.times, 300.0
    rounds = [times[first : first + 10] for first in range(0, len(times), 10)]
    spans = [each[-1] - each[0] for each in rounds[:-1]]
    pauses = [after[0] - before[-1] for before, after in pairwise(rounds)]
    assert len(pauses) >= 5
    assert sum(spans) / len(spans) == pytest.approx(period / 10, rel=0.3)
    assert all(period <= pause <= 1.1 * period + 1 for pause in pauses)
    assert max(pauses) - min(pauses) > period / 50


async def test_defect_6_labels_follow_the_cloud_when_asked_to() -> None:
    before = document(taints=[], addresses=SETTLED, labels={"rack": "1", "own": "x"})
    found = instance(type="m2", labels={"rack": "2"})
    world = World([before], {"n1": found}, sync_labels=True)

    await world.refresher.round()
    await world.refresher.round()

    labels = world.node().metadata.labels or {}
    assert labels["node.kubernetes.io/instance-type"] == "m2"
    assert labels["beta.kubernetes.io/instance-type"] == "m2"
    assert (labels["rack"], labels["own"]) == ("2", "x")
    assert len(world.nodes.writes) == 1


async def test_labels_are_left_alone_unless_asked_for() -> None:
    world = World([document(taints=[], addresses=SETTLED)], {"n1": instance(type="m2")})

    await world.refresher.round()

    assert not world.nodes.writes


async def test_a_wish_that_cannot_be_met_leaves_the_node_and_is_told_once_an_hour() -> None:
    wish = {PROVIDED_NODE_IP: "10.9.9.9"}
    before = document(taints=[], addresses=SETTLED, annotations=wish)
    world = World([before], {"n1": instance()})

    for _ in range(12):
        await world.refresher.round()
        await asyncio.sleep(300)

    assert not world.nodes.writes
    assert world.events.reasons() == ["ProvidedNodeIPRefused"]


async def test_a_refused_write_harms_no_other_node() -> None:
    nodes = [document("n1", taints=[]), document("n2", taints=[])]
    world = World(nodes, {"n1": instance("n1"), "n2": instance("n2")})

    def refuse(name: str, write: Write) -> None:
        raise api_error(Invalid, 422, "status.addresses[0]: Invalid value")

    world.nodes.before_write = [refuse]

    await world.refresher.round()

    assert len(world.nodes.writes) == 1
    assert world.events.reasons() == ["NodeWriteInvalid"]


async def test_rounds_go_on_when_the_cloud_is_down_or_we_do_not_lead() -> None:
    world = World([document(taints=[])], {"n1": instance()})
    world.cloud.whole = Unavailable("down")

    def fence(name: str, write: Write) -> None:
        raise Fenced

    world.nodes.before_write = [fence]
    async with asyncio.timeout(1000), asyncio.TaskGroup() as group:
        rounds = group.create_task(world.refresher.run())
        await asyncio.sleep(100)
        world.cloud.whole = None
        await asyncio.sleep(800)
        rounds.cancel()

    assert len(world.cloud.calls) == 3, "one at once, then one per period"
    assert len(world.nodes.writes) == 1
    assert not world.events.told


async def test_what_was_said_of_nodes_that_are_gone_is_forgotten() -> None:
    wish = {PROVIDED_NODE_IP: "10.9.9.9"}
    gone = document(taints=[], annotations=wish)
    world = World([gone], {"n1": instance()})
    await world.refresher.round()

    del world.nodes.documents["n1"]
    await world.refresher.round()
    world.nodes.documents["n1"] = gone
    await world.refresher.round()

    assert world.events.reasons() == ["ProvidedNodeIPRefused"] * 2


@pytest.mark.parametrize(
    "settings", [{"refresh_period": 0.0}, {"refresh_period": -1.0}, {"workers": 0}]
)
def test_settings_that_would_do_nothing_or_spin_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        NodeSettings(**settings)  # type: ignore[arg-type]


async def test_an_unexpected_error_at_one_node_harms_no_other_and_the_round_is_made_again() -> None:
    nodes = [document("n1", taints=[]), document("n2", taints=[])]
    world = World(nodes, {"n1": instance("n1"), "n2": instance("n2")})

    def fail(name: str, write: Write) -> None:
        raise KeyError("a bug")

    world.nodes.before_write = [fail]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await world.refresher.run()

    assert {name for name, _ in world.nodes.writes} == {"n1", "n2"}

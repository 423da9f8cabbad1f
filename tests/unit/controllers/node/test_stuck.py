"""What becomes of a node that cannot be initialized, and what its users get to know."""

import asyncio

import pytest

from pileus.cloud.errors import CloudError, NotFound, Throttled, Unauthorized, Unavailable
from pileus.cloud.model import Absent, Failure
from pileus.controllers.node.patches import Write
from pileus.controllers.node.plan import CONDITION
from pileus.kube.errors import Invalid, TooLarge, Unreachable
from pileus.objects.node_ips import PROVIDED_NODE_IP, NodeIpRefused
from pileus.objects.nodes import condition_of, is_uninitialized
from pileus.runtime.failure import PassTooLong
from tests.unit.controllers.node.harness import World, api_error
from tests.unit.controllers.node.objects import document, instance


async def fail(world: World, *, times: int = 1, apart: float = 0.0) -> None:
    for _ in range(times):
        with pytest.raises(CloudError):
            await world.reconciler.reconcile("n1")
        await asyncio.sleep(apart)


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param({}, id="unknown"),
        pytest.param({"n1": None}, id="nothing"),
        pytest.param({"n1": Absent("no server n1")}, id="absent"),
        pytest.param({"n1": Failure(Unavailable("502"))}, id="failure"),
        pytest.param({"n1": "nonsense"}, id="a wrong type"),
    ],
)
async def test_defect_3_what_is_not_found_is_retried_until_it_is(
    answers: dict[str, object],
) -> None:
    world = World([document()], answers)
    await fail(world)
    assert world.samples("pileus_nodes_failing_initialization") == 1

    world.cloud.answers["n1"] = instance()
    await world.reconciler.reconcile("n1")

    assert not is_uninitialized(world.node())
    assert world.samples("pileus_nodes_failing_initialization") == 0
    assert world.events.reasons() == ["Synced"], "a hiccup is not worth a warning"
    assert len(world.nodes.writes) == 2


async def test_the_age_of_the_oldest_uninitialized_node_is_measured() -> None:
    nodes = [
        document("n1"),
        document("initialized", taints=()),
        document("foreign", provider_id="other://x"),
    ]
    world = World(nodes, {})
    await asyncio.sleep(590)
    assert world.samples("pileus_oldest_uninitialized_node_seconds") == 600

    world.cloud.answers["n1"] = instance()
    await world.reconciler.reconcile("n1")

    assert is_uninitialized(world.node("foreign"))
    assert world.samples("pileus_oldest_uninitialized_node_seconds") == 0


async def test_a_hint_of_the_cloud_reaches_the_queue() -> None:
    world = World([document()], {"n1": Failure(Throttled("slow down", retry_after=42))})

    with pytest.raises(Throttled) as caught:
        await world.reconciler.reconcile("n1")

    assert caught.value.retry_after == 42


async def test_defect_4_a_node_that_stays_stuck_says_why_by_event_and_condition() -> None:
    world = World([document()], {"n1": Absent("GET /servers?name=n1: empty")})

    await fail(world, times=5, apart=6)

    assert world.events.reasons() == ["InstanceNotFound"]
    assert world.events.told[0].kind == "Warning"
    assert "GET /servers?name=n1: empty" in world.events.told[0].message
    condition = condition_of(world.node(), CONDITION)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "InstanceNotFound")
    assert len(world.nodes.writes) == 1


async def test_a_day_of_failing_costs_few_events_and_one_write() -> None:
    world = World([document()], {})

    await fail(world, times=24 * 12, apart=300)

    assert world.events.reasons() == ["CloudUnavailable"] * 24
    assert len(world.nodes.writes) == 1


async def test_what_only_a_human_can_mend_is_told_at_once() -> None:
    world = World([document()], {})
    world.cloud.whole = Unauthorized("token expired; renew it in cloud.conf")

    await fail(world)

    assert world.events.reasons() == ["CloudUnauthorized"]
    assert condition_of(world.node(), CONDITION) is not None


async def test_a_stuck_node_that_recovers_is_cleared_without_an_extra_write() -> None:
    world = World([document()], {})
    await fail(world, times=3, apart=11)
    told = len(world.nodes.writes)

    world.cloud.answers["n1"] = instance()
    await world.reconciler.reconcile("n1")

    condition = condition_of(world.node(), CONDITION)
    assert condition is not None
    assert condition.status == "False"
    assert len(world.nodes.writes) == told + 2
    assert world.events.reasons() == ["CloudUnavailable", "Synced"]


async def test_a_stuck_node_without_addresses_is_cleared_too() -> None:
    world = World([document(addresses=[])], {})
    await fail(world, times=3, apart=11)

    world.cloud.answers["n1"] = instance()
    await world.reconciler.reconcile("n1")

    condition = condition_of(world.node(), CONDITION)
    assert condition is not None
    assert condition.status == "False"


async def test_a_wish_for_an_address_that_cannot_be_met_is_told_at_once() -> None:
    wish = {PROVIDED_NODE_IP: "10.9.9.9"}
    world = World([document(annotations=wish)], {"n1": instance()})

    with pytest.raises(NodeIpRefused):
        await world.reconciler.reconcile("n1")

    assert world.events.reasons() == ["ProvidedNodeIPRefused"]
    assert "10.9.9.9" in world.events.told[0].message
    assert is_uninitialized(world.node())


@pytest.mark.parametrize(
    ("kind", "status", "reason"),
    [(Invalid, 422, "NodeWriteInvalid"), (TooLarge, 413, "NodeTooLarge")],
)
async def test_a_write_that_the_api_server_refuses_is_explained_on_the_node(
    kind: type[Invalid], status: int, reason: str
) -> None:
    world = World([document()], {"n1": instance()})

    def refuse(name: str, write: Write) -> None:
        raise api_error(kind, status, "metadata.labels: Invalid value")

    world.nodes.before_write = [refuse]

    with pytest.raises(kind):
        await world.reconciler.reconcile("n1")

    assert world.events.reasons() == [reason]
    assert "metadata.labels: Invalid value" in world.events.told[0].message


async def test_a_condition_that_cannot_be_written_does_not_hide_the_reason() -> None:
    world = World([document()], {"n1": Failure(Unauthorized("no"))})

    def refuse(name: str, write: Write) -> None:
        raise api_error(TooLarge, 413)

    world.nodes.before_write = [refuse]

    with pytest.raises(Unauthorized):
        await world.reconciler.reconcile("n1")


async def test_a_node_that_was_absent_raises_what_the_queue_takes_for_expected() -> None:
    world = World([document()], {"n1": Absent("none")})

    with pytest.raises(NotFound):
        await world.reconciler.reconcile("n1")


async def test_a_pass_that_ran_out_of_time_is_reported_at_once() -> None:
    world = World([document()], {})

    await world.reconciler.report("n1", PassTooLong("the pass was cancelled after 300 s"))

    assert world.events.reasons() == ["TimedOut"]
    condition = condition_of(world.node(), CONDITION)
    assert condition is not None
    assert condition.reason == "TimedOut"


async def test_a_bug_is_reported_without_its_details() -> None:
    world = World([document()], {})

    await world.reconciler.report("n1", ZeroDivisionError("internals"))

    assert world.events.messages("InitializationFailed") == [
        "Node cannot be initialized: internal error ZeroDivisionError (see the manager's log)"
    ]


async def test_a_condition_that_cannot_be_written_is_tried_again_with_a_back_off_of_its_own() -> (
    None
):
    world = World([document()], {"n1": Failure(Throttled("slow down", retry_after=1))})
    tried: list[float] = []

    def refuse(name: str, write: Write) -> None:
        tried.append(asyncio.get_running_loop().time())
        raise Unreachable("/api/v1/nodes/n1/status", "in-process", "connection lost")

    world.nodes.before_write = [refuse] * 600
    await fail(world, times=600, apart=1.0)

    assert 8 <= len(tried) <= 16, "600 passes in ten minutes"
    world.nodes.before_write = []
    await fail(world, times=61, apart=1.0)
    assert condition_of(world.node(), CONDITION)


async def test_the_back_off_is_over_once_the_node_was_initialized() -> None:
    world = World([document()], {"n1": Failure(Throttled("slow down", retry_after=1))})

    def refuse(name: str, write: Write) -> None:
        raise Unreachable("/api/v1/nodes/n1/status", "in-process", "connection lost")

    world.nodes.before_write = [refuse] * 8
    await fail(world, times=600, apart=1.0)
    world.nodes.before_write = []
    world.cloud.answers["n1"] = instance()
    await world.reconciler.reconcile("n1")

    assert not is_uninitialized(world.node())
    assert world.reconciler.performer._pacing == {}


async def test_a_condition_that_the_watch_has_not_delivered_is_turned_off() -> None:
    world = World([document()], {"n1": Absent("GET /servers?name=n1: empty")})
    before = world.nodes.documents["n1"]
    await fail(world, times=5, apart=6)
    world.nodes.stale["n1"] = before

    world.cloud.answers["n1"] = instance()
    await world.reconciler.reconcile("n1")

    condition = condition_of(world.node(), CONDITION)
    assert condition is not None
    assert condition.status == "False"

import asyncio

import pytest

from pileus.cloud.errors import CloudError, NotFound, Throttled, Unauthorized, Unavailable
from pileus.cloud.model import Absent, Failure
from pileus.controllers.node.addresses import PROVIDED_NODE_IP, NodeIpRefused, addresses_of
from pileus.controllers.node.plan import (
    ObjectWrite,
    StatusWrite,
    Write,
    condition_of,
    is_uninitialized,
    taints_of,
)
from pileus.fence import Fenced
from pileus.kube.errors import Conflict, Invalid, TooLarge
from pileus.kube.errors import NotFound as NodeNotFound
from pileus.runtime.reconcile import DONE
from tests.unit.controllers.node.harness import World, api_error
from tests.unit.controllers.node.objects import OTHER_TAINT, TAINT, document, instance, typed

AGE = "node_controller_initial_node_sync_delay_seconds_sum"
TAINT_AGE = "node_controller_cloud_provider_taint_removal_delay_seconds_sum"


def let_pass(name: str, write: Write) -> None:
    return


async def fail(world: World, *, times: int = 1, apart: float = 0.0) -> None:
    for _ in range(times):
        with pytest.raises(CloudError):
            await world.reconciler.reconcile("n1")
        await asyncio.sleep(apart)


async def test_a_new_node_is_initialized_in_two_writes_and_one_event() -> None:
    world = World([document()], {"n1": instance()})

    assert await world.reconciler.reconcile("n1") == DONE

    node = world.node()
    assert not is_uninitialized(node)
    assert node.spec
    assert node.spec.provider_id == "fake://i-n1"
    assert [each.address for each in addresses_of(node)] == ["10.0.0.1", "n1"]
    assert (node.metadata.labels or {})["topology.kubernetes.io/zone"] == "z1"
    assert len(world.nodes.writes) == 2
    assert len(world.cloud.calls) == 1
    assert world.nodes.reads == 0


async def test_the_event_and_the_delays_are_upstreams() -> None:
    world = World([document()], {"n1": instance()})

    await world.reconciler.reconcile("n1")

    (event,) = world.events.told
    assert (event.kind, event.reason) == ("Normal", "Synced")
    assert event.message == "Node synced successfully"
    about = event.about
    assert (about.api_version, about.kind, about.name, about.uid) == ("v1", "Node", "n1", "uid-n1")
    assert not about.namespace
    assert world.samples(AGE) == pytest.approx(10.01)
    assert world.samples(TAINT_AGE) == pytest.approx(10.01)


async def test_the_taint_goes_last() -> None:
    world = World([document()], {"n1": instance()})

    await world.reconciler.reconcile("n1")

    assert [type(write) for _, write in world.nodes.writes] == [StatusWrite, ObjectWrite]


async def test_dying_between_the_writes_leaves_the_taint_and_the_next_pass_finishes() -> None:
    world = World([document()], {"n1": instance()})

    def die(name: str, write: Write) -> None:
        raise asyncio.CancelledError

    world.nodes.before_write = [let_pass, die]
    with pytest.raises(asyncio.CancelledError):
        await world.reconciler.reconcile("n1")
    assert is_uninitialized(world.node())

    await world.reconciler.reconcile("n1")

    assert not is_uninitialized(world.node())
    assert len(world.nodes.writes) == 2
    assert world.events.reasons == ["Synced"]


async def test_an_initialized_node_costs_no_request_at_all() -> None:
    world = World([document()], {"n1": instance()})
    await world.reconciler.reconcile("n1")
    writes, calls = len(world.nodes.writes), len(world.cloud.calls)

    await world.reconciler.reconcile("n1")

    assert len(world.nodes.writes) == writes
    assert len(world.cloud.calls) == calls
    assert world.events.reasons == ["Synced"]


async def test_an_initialized_node_gets_the_stable_label_that_it_lacks() -> None:
    labels = {"beta.kubernetes.io/instance-type": "m1"}
    world = World([document(taints=[], labels=labels)], {})

    await world.reconciler.reconcile("n1")

    assert world.nodes.writes == [
        ("n1", ObjectWrite(labels={"node.kubernetes.io/instance-type": "m1"}))
    ]
    assert not world.cloud.calls


async def test_defect_7_an_edited_stable_label_is_not_undone() -> None:
    labels = {
        "failure-domain.beta.kubernetes.io/zone": "z1",
        "topology.kubernetes.io/zone": "mine",
    }
    world = World([document(taints=[], labels=labels)], {})

    await world.reconciler.reconcile("n1")

    assert not world.nodes.writes


async def test_a_node_that_is_gone_or_going_is_left_alone() -> None:
    going = document()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"  # type: ignore[index]
    world = World([going], {"n1": instance()})

    assert await world.reconciler.reconcile("n1") == DONE
    assert await world.reconciler.reconcile("never-seen") == DONE

    assert not world.cloud.calls
    assert not world.nodes.writes


async def test_a_taint_that_someone_adds_meanwhile_is_not_lost() -> None:
    world = World([document()], {"n1": instance()})

    def add_taint(name: str, write: Write) -> None:
        world.nodes.change(name, spec={"taints": [TAINT, OTHER_TAINT]})

    world.nodes.before_write = [let_pass, add_taint]

    await world.reconciler.reconcile("n1")

    assert [taint.key for taint in taints_of(world.node())] == ["other"]
    assert world.nodes.reads == 1, "after the conflict it was read afresh"
    assert world.events.reasons == ["Synced"]


async def test_a_node_that_everyone_writes_to_is_given_up_for_now() -> None:
    world = World([document()], {"n1": instance()})

    def contend(name: str, write: Write) -> None:
        if isinstance(write, ObjectWrite):
            raise api_error(Conflict, 409)

    world.nodes.before_write = [contend] * 1000

    with pytest.raises(Conflict):
        await world.reconciler.reconcile("n1")

    assert len(world.nodes.before_write) > 900, "the tries are few"
    assert is_uninitialized(world.node())


async def test_someone_else_who_removes_the_taint_first_gets_the_credit() -> None:
    world = World([document()], {"n1": instance()})
    world.nodes.stale["n1"] = world.nodes.documents["n1"]
    world.nodes.change("n1", spec={"taints": None})

    await world.reconciler.reconcile("n1")

    assert not world.events.told
    assert world.samples(AGE) == 0.0


async def test_a_node_that_goes_during_the_pass_is_no_failure() -> None:
    world = World([document()], {"n1": instance()})

    def vanish(name: str, write: Write) -> None:
        raise api_error(NodeNotFound, 404)

    world.nodes.before_write = [vanish]

    assert await world.reconciler.reconcile("n1") == DONE
    assert not world.events.told


async def test_a_node_registered_anew_does_not_get_the_old_ones_facts() -> None:
    world = World([document()], {"n1": instance()})
    world.nodes.stale["n1"] = world.nodes.documents["n1"]
    anew = document()
    anew["metadata"]["uid"] = "another"  # type: ignore[index]
    world.nodes.replace(anew)

    assert await world.reconciler.reconcile("n1") == DONE

    assert not world.nodes.writes
    assert not addresses_of(typed(anew))[1:]


async def test_a_process_that_does_not_lead_writes_nothing_and_says_nothing() -> None:
    world = World([document()], {"n1": instance()})

    def fence(name: str, write: Write) -> None:
        raise Fenced

    world.nodes.before_write = [fence]

    with pytest.raises(Fenced):
        await world.reconciler.reconcile("n1")

    assert not world.nodes.writes
    assert not world.events.told


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
    assert world.events.reasons == ["Synced"], "a hiccup is not worth a warning"
    assert len(world.nodes.writes) == 2


async def test_a_hint_of_the_cloud_reaches_the_queue() -> None:
    world = World([document()], {"n1": Failure(Throttled("slow down", retry_after=42))})

    with pytest.raises(Throttled) as caught:
        await world.reconciler.reconcile("n1")

    assert caught.value.retry_after == 42


async def test_defect_4_a_node_that_stays_stuck_says_why_by_event_and_condition() -> None:
    world = World([document()], {"n1": Absent("GET /servers?name=n1: empty")})

    await fail(world, times=5, apart=6)

    assert world.events.reasons == ["InstanceNotFound"]
    assert world.events.told[0].kind == "Warning"
    assert "GET /servers?name=n1: empty" in world.events.told[0].message
    condition = condition_of(world.node())
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", "InstanceNotFound")
    assert len(world.nodes.writes) == 1


async def test_a_day_of_failing_costs_few_events_and_one_write() -> None:
    world = World([document()], {})

    await fail(world, times=24 * 12, apart=300)

    assert world.events.reasons == ["CloudUnavailable"] * 24
    assert len(world.nodes.writes) == 1


async def test_what_only_a_human_can_mend_is_told_at_once() -> None:
    world = World([document()], {})
    world.cloud.whole = Unauthorized("token expired; renew it in cloud.conf")

    await fail(world)

    assert world.events.reasons == ["CloudUnauthorized"]
    assert condition_of(world.node()) is not None


async def test_a_stuck_node_that_recovers_is_cleared_without_an_extra_write() -> None:
    world = World([document()], {})
    await fail(world, times=3, apart=11)
    told = len(world.nodes.writes)

    world.cloud.answers["n1"] = instance()
    await world.reconciler.reconcile("n1")

    condition = condition_of(world.node())
    assert condition is not None
    assert condition.status == "False"
    assert len(world.nodes.writes) == told + 2
    assert world.events.reasons == ["CloudUnavailable", "Synced"]


async def test_a_stuck_node_without_addresses_is_cleared_too() -> None:
    world = World([document(addresses=[])], {})
    await fail(world, times=3, apart=11)

    world.cloud.answers["n1"] = instance()
    await world.reconciler.reconcile("n1")

    condition = condition_of(world.node())
    assert condition is not None
    assert condition.status == "False"


async def test_a_wish_for_an_address_that_cannot_be_met_is_told_at_once() -> None:
    wish = {PROVIDED_NODE_IP: "10.9.9.9"}
    world = World([document(annotations=wish)], {"n1": instance()})

    with pytest.raises(NodeIpRefused):
        await world.reconciler.reconcile("n1")

    assert world.events.reasons == ["ProvidedNodeIPRefused"]
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

    assert world.events.reasons == [reason]
    assert "metadata.labels: Invalid value" in world.events.told[0].message


async def test_a_condition_that_cannot_be_written_does_not_hide_the_reason() -> None:
    world = World([document()], {"n1": Failure(Unauthorized("no"))})

    def refuse(name: str, write: Write) -> None:
        raise api_error(TooLarge, 413)

    world.nodes.before_write = [refuse]

    with pytest.raises(Unauthorized):
        await world.reconciler.reconcile("n1")


async def test_a_label_that_kubernetes_refuses_is_left_out_with_a_warning() -> None:
    labels = {"rack": "not valid", "row": "3"}
    world = World([document()], {"n1": instance(labels=labels)})

    await world.reconciler.reconcile("n1")

    assert (world.node().metadata.labels or {})["row"] == "3"
    assert world.events.reasons == ["Synced", "CloudLabelSkipped"]
    assert "rack" in world.events.told[1].message


async def test_a_node_that_was_absent_raises_what_the_queue_takes_for_expected() -> None:
    world = World([document()], {"n1": Absent("none")})

    with pytest.raises(NotFound):
        await world.reconciler.reconcile("n1")


async def test_a_node_without_birth_is_initialized_without_a_delay_being_measured() -> None:
    odd = document()
    del odd["metadata"]["creationTimestamp"]  # type: ignore[attr-defined]
    world = World([odd], {"n1": instance()})

    await world.reconciler.reconcile("n1")

    assert not is_uninitialized(world.node())
    assert world.samples("node_controller_initial_node_sync_delay_seconds_count") == 0

import asyncio

import pytest

from pileus.controllers.node.patches import ObjectWrite, StatusWrite, Write
from pileus.fence import Fenced
from pileus.kube.errors import Conflict
from pileus.kube.errors import NotFound as NodeNotFound
from pileus.objects.nodes import addresses_of, is_uninitialized, taints_of
from pileus.runtime.reconcile import DONE
from tests.unit.controllers.node.harness import World, api_error
from tests.unit.controllers.node.objects import OTHER_TAINT, TAINT, document, instance, typed

AGE = "node_controller_initial_node_sync_delay_seconds_sum"
TAINT_AGE = "node_controller_cloud_provider_taint_removal_delay_seconds_sum"


def let_pass(name: str, write: Write) -> None:
    return


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
    assert world.events.reasons() == ["Synced"]


async def test_an_initialized_node_costs_no_request_at_all() -> None:
    world = World([document()], {"n1": instance()})
    await world.reconciler.reconcile("n1")
    writes, calls = len(world.nodes.writes), len(world.cloud.calls)

    await world.reconciler.reconcile("n1")

    assert len(world.nodes.writes) == writes
    assert len(world.cloud.calls) == calls
    assert world.events.reasons() == ["Synced"]


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
    assert world.events.reasons() == ["Synced"]


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


async def test_a_node_registered_anew_during_a_conflict_is_left_to_its_own_pass() -> None:
    world = World([document()], {"n1": instance()})

    def replace_it(name: str, write: Write) -> None:
        anew = document()
        anew["metadata"]["uid"] = "another"  # type: ignore[index]
        world.nodes.replace(anew)
        raise api_error(Conflict, 409)

    world.nodes.before_write = [replace_it]

    assert await world.reconciler.reconcile("n1") == DONE

    assert not world.nodes.writes
    assert not world.events.told


async def test_addresses_that_something_changes_before_the_taint_goes_are_written_again() -> None:
    world = World([document()], {"n1": instance()})

    def tamper(name: str, write: Write) -> None:
        world.nodes.replace(document(addresses=[("InternalIP", "192.0.2.8"), ("Hostname", "n1")]))
        raise api_error(Conflict, 409)

    world.nodes.before_write = [let_pass, tamper]

    assert await world.reconciler.reconcile("n1") == DONE

    node = world.node()
    assert not is_uninitialized(node)
    assert [each.address for each in addresses_of(node)] == ["10.0.0.1", "n1"]
    kinds = [type(write) for _, write in world.nodes.writes]
    assert kinds == [StatusWrite, StatusWrite, ObjectWrite]


async def test_a_process_that_does_not_lead_writes_nothing_and_says_nothing() -> None:
    world = World([document()], {"n1": instance()})

    def fence(name: str, write: Write) -> None:
        raise Fenced

    world.nodes.before_write = [fence]

    with pytest.raises(Fenced):
        await world.reconciler.reconcile("n1")

    assert not world.nodes.writes
    assert not world.events.told


async def test_a_label_that_kubernetes_refuses_is_left_out_with_a_warning() -> None:
    labels = {"rack": "not valid", "row": "3"}
    world = World([document()], {"n1": instance(labels=labels)})

    await world.reconciler.reconcile("n1")

    assert (world.node().metadata.labels or {})["row"] == "3"
    assert world.events.reasons() == ["Synced", "CloudLabelSkipped"]
    assert "rack" in world.events.told[1].message


async def test_a_provider_id_of_a_scheme_that_the_provider_does_not_own_is_reported() -> None:
    world = World([document()], {"n1": instance(provider_id="other://i-1")})

    await world.reconciler.reconcile("n1")

    assert world.events.reasons() == ["Synced", "ProviderIDNotOwned"]
    assert "other://i-1" in world.events.told[-1].message


async def test_a_node_without_birth_is_initialized_without_a_delay_being_measured() -> None:
    odd = document()
    del odd["metadata"]["creationTimestamp"]  # type: ignore[attr-defined]
    world = World([odd], {"n1": instance()})

    await world.reconciler.reconcile("n1")

    assert not is_uninitialized(world.node())
    assert world.samples("node_controller_initial_node_sync_delay_seconds_count") == 0

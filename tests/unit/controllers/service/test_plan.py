"""Decisions about a Service, over all inputs."""

from collections.abc import Mapping
from datetime import timedelta
from typing import cast

from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.balancer import Balancer, BalancerState, Effect, Ingress, Part
from pileus.controllers.service.annotations import MANAGE, Classes, Mode, class_of, is_load_balancer
from pileus.controllers.service.plan import (
    Invalid,
    Leave,
    Serve,
    Withdraw,
    course,
    doable,
    is_worth_a_pass,
    loses_too_many,
    needs_finalizer,
)
from pileus.controllers.service.status import (
    CONDITION,
    FINALIZER,
    NOTHING,
    READY,
    SERVED,
    Finalizer,
    State,
    Verdict,
    Wording,
    Write,
    condition,
    condition_write,
    finalizer_addition,
    finalizer_removal,
    has_finalizer,
    patch_of,
    pending,
    published,
    without_finalizer,
)
from pileus.kube.model.core_v1 import (
    LoadBalancerIngress,
    LoadBalancerStatus,
    Service,
    ServiceSpec,
    ServiceStatus,
)
from pileus.kube.model.meta import Condition, ObjectMeta
from pileus.testing.virtual_time import EPOCH
from tests.unit.controllers.service.plain import Change

OURS = Classes.of("local", ["example.com/fast"])
ONLY_NAMED = Classes.of("local", default=False)

SERVICES = st.builds(
    lambda kind, named, finalizers, deleting, mode: Service(
        metadata=ObjectMeta(
            name="web",
            namespace="shop",
            uid="u1",
            resource_version="7",
            finalizers=finalizers,
            deletion_timestamp=EPOCH if deleting else None,
            annotations=None if mode is None else {MANAGE: mode},
        ),
        spec=ServiceSpec(type=kind, load_balancer_class=named),
    ),
    st.sampled_from(["LoadBalancer", "ClusterIP", "NodePort", "ExternalName", ""]),
    st.sampled_from([None, "pileus.dev/local", "example.com/fast", "example.com/other"]),
    st.sampled_from([None, (), (FINALIZER,), ("x",), ("x", FINALIZER)]),
    st.booleans(),
    st.sampled_from([None, *Mode, "odd"]),
)
CLASSES = st.sampled_from([OURS, ONLY_NAMED])
NOTED = st.sampled_from([None, "", "pileus.dev/local", "example.com/fast", "example.com/other"])


def as_noted(service: Service, name: str | None) -> Service:
    """The Service with the note that it was served under that class."""
    conditions = () if name is None else (Condition(type=SERVED, status="True", message=name),)
    status = ServiceStatus(conditions=conditions)
    return Service(metadata=service.metadata, spec=service.spec, status=status)


@given(SERVICES, CLASSES, st.booleans())
def test_who_is_being_deleted_is_never_served(service: Service, classes: Classes, known: bool):
    if service.metadata.deletion_timestamp:
        assert not isinstance(course(service, classes, known=known), Serve)


@given(SERVICES, CLASSES)
def test_another_classes_service_is_left_alone_unless_there_is_evidence(
    service: Service, classes: Classes
):
    assert service.spec is not None
    if service.spec.type == "LoadBalancer" and not classes.serve(service):
        assert course(service, classes, known=False) == Leave()


@given(SERVICES, CLASSES, NOTED)
def test_a_note_of_the_class_that_it_has_or_of_one_that_is_not_ours_changes_nothing(
    service: Service, classes: Classes, name: str | None
):
    if name in {None, class_of(service)} or not classes.has(name or ""):
        noted = course(as_noted(service, name), classes, known=False)
        assert noted == course(service, classes, known=False)


@given(SERVICES, CLASSES, NOTED)
def test_what_was_served_and_went_to_another_class_is_not_just_left(
    service: Service, classes: Classes, name: str | None
):
    went = name is not None and name != class_of(service) and classes.has(name)
    if went and has_finalizer(service):
        assert course(as_noted(service, name), classes, known=False) != Leave()


@given(SERVICES)
def test_the_default_cloud_leaves_a_service_to_the_cloud_that_served_it_last(service: Service):
    classes = Classes.of("local", of_others=["pileus.dev/b"])
    if not is_load_balancer(service):
        assert course(as_noted(service, "pileus.dev/b"), classes, known=False) == Leave()


@given(SERVICES, NOTED)
def test_a_release_of_another_class_holds_only_for_the_version_that_was_seen(
    service: Service, name: str | None
):
    write = finalizer_removal(as_noted(service, name), Mode.FULL)

    went = name is not None and name != class_of(service) and is_load_balancer(service)
    assert write.only_this_version == went
    assert ("resourceVersion" in metadata_of(service, write)) == went


@given(SERVICES, st.sampled_from([mode for mode in Mode if mode is not Mode.FULL]))
def test_a_balancer_is_left_unguarded_only_if_the_service_still_says_so(
    service: Service, mode: Mode
):
    writes = [finalizer_removal(service, mode), without_finalizer(NOTHING, service, mode)]

    for write in writes:
        is_taken_off = write.finalizer is Finalizer.REMOVE
        assert ("resourceVersion" in metadata_of(service, write)) == is_taken_off


def test_where_nothing_of_ours_is_left_on_a_service_its_release_is_no_write():
    bare = Service(metadata=ObjectMeta(name="web", uid="u1"), spec=ServiceSpec(type="LoadBalancer"))

    assert not any(finalizer_removal(bare, mode) for mode in Mode)


def metadata_of(service: Service, write: Write) -> Mapping[str, object]:
    return cast("Mapping[str, object]", patch_of(service, write).body["metadata"])


@given(SERVICES, CLASSES)
def test_what_is_known_to_be_in_the_cloud_is_never_just_left(service: Service, classes: Classes):
    assert course(service, classes, known=True) != Leave()


@given(SERVICES, CLASSES, st.booleans())
def test_what_is_not_understood_leads_to_nothing(service: Service, classes: Classes, known: bool):
    decided = course(service, classes, known=known)

    if (service.metadata.annotations or {}).get(MANAGE) == "odd":
        assert isinstance(decided, Leave | Invalid)
    else:
        assert not isinstance(decided, Invalid)


@given(SERVICES, CLASSES, st.booleans())
def test_the_mode_none_is_never_served(service: Service, classes: Classes, known: bool):
    assert course(service, classes, known=known) != Serve(Mode.NONE)


@given(SERVICES)
def test_a_claimed_service_of_ours_that_goes_is_withdrawn(service: Service):
    gone = service.metadata.deletion_timestamp is not None or not OURS.serve(service)
    mode = (service.metadata.annotations or {}).get(MANAGE)
    if gone and has_finalizer(service) and OURS.may_have_served(service) and mode != "odd":
        assert isinstance(course(service, OURS, known=False), Withdraw)


CHANGES = st.lists(
    st.builds(Change, st.sampled_from(Effect), st.just("x"), st.none(), st.sampled_from(Part))
)


@given(CHANGES, st.sampled_from(Mode))
def test_a_mode_allows_no_more_than_it_says(changes: list[Change], mode: Mode):
    allowed = doable(changes, mode)

    assert [change for change in changes if change in allowed] == list(allowed)
    if mode is Mode.FULL:
        assert list(allowed) == changes
    elif mode is Mode.MEMBERS:
        assert all(change.part is Part.MEMBERS for change in allowed)
    else:
        assert not allowed


@given(SERVICES, st.sampled_from(Mode), st.booleans())
def test_who_changes_nothing_in_the_cloud_needs_no_finalizer(
    service: Service, mode: Mode, at_stake: bool
):
    if needs_finalizer(service, mode, at_stake=at_stake):
        assert mode.writes
        assert not has_finalizer(service)
        assert at_stake
    if not mode.writes and has_finalizer(service):
        assert without_finalizer(NOTHING, service, mode).finalizer is Finalizer.REMOVE


def balancer(members: int | None, state: BalancerState = BalancerState.READY) -> Balancer:
    return Balancer(id="lb", state=state, ingress=(Ingress(ip="192.0.2.1"),), members=members)


@given(st.none() | st.integers(0, 100), st.integers(0, 100))
def test_members_are_never_emptied_nor_halved_without_a_second_look(had: int | None, wanted: int):
    held = loses_too_many(balancer(had), wanted)

    if had is None:
        assert held is (wanted == 0)
    else:
        assert held is (had > 0 and wanted < had / 2)
    assert not loses_too_many(None, wanted)


def served(*ingress: LoadBalancerIngress, conditions: tuple[Condition, ...] = ()) -> Service:
    return Service(
        metadata=ObjectMeta(
            name="web", namespace="shop", uid="u1", resource_version="7", finalizers=("x",)
        ),
        spec=ServiceSpec(type="LoadBalancer"),
        status=ServiceStatus(
            load_balancer=LoadBalancerStatus(ingress=ingress), conditions=conditions
        ),
    )


SET = Condition(
    type=CONDITION,
    status="True",
    reason=READY.reason,
    message=READY.message,
    last_transition_time=EPOCH,
)
LATER = Wording(EPOCH + timedelta(hours=1))


def test_what_is_published_already_is_not_written():
    service = served(LoadBalancerIngress(ip="192.0.2.1"), conditions=(SET,))

    assert not published(service, balancer(1), READY, LATER)
    assert not condition_write(service, READY, LATER)


def test_addresses_of_a_balancer_that_is_not_ready_stay():
    service = served(LoadBalancerIngress(ip="192.0.2.9"), conditions=(SET,))

    for state in (BalancerState.PENDING, BalancerState.FAILED):
        assert published(service, balancer(1, state), pending(""), LATER).ingress is None
    assert published(service, None, pending(""), LATER).ingress is None


def test_a_condition_keeps_its_time_while_its_state_does():
    word = Verdict(State.TRUE, "Other", "x")

    turned = condition(SET, Verdict(State.FALSE, "Bad", "y"), LATER.now, reword=True)
    reworded = condition(SET, word, LATER.now, reword=False)

    assert turned is not None
    assert turned.last_transition_time == LATER.now
    assert reworded is not None
    assert reworded.last_transition_time == EPOCH


def test_a_message_is_reworded_only_when_it_may_be():
    word = Verdict(State.TRUE, READY.reason, "in other words")

    assert condition(SET, word, LATER.now, reword=False) is None
    assert condition(SET, word, LATER.now, reword=True) is not None
    assert condition(None, word, LATER.now, reword=False) is not None


def test_a_claim_names_the_version_that_was_seen_and_keeps_others():
    patch = patch_of(served(), finalizer_addition(served(), OURS, EPOCH)).body

    assert patch == {
        "metadata": {
            "uid": "u1",
            "resourceVersion": "7",
            "finalizers": [FINALIZER],
            "$setElementOrder/finalizers": ["x", FINALIZER],
        },
        "status": {
            "conditions": [
                {
                    "type": SERVED,
                    "status": "True",
                    "reason": "NoClass",
                    "message": "",
                    "lastTransitionTime": "2030-01-01T00:00:00Z",
                }
            ]
        },
    }


def test_a_release_takes_all_of_ours_in_one_write():
    claimed = Service(
        metadata=ObjectMeta(name="web", uid="u1", finalizers=("x", FINALIZER)),
        spec=ServiceSpec(type="LoadBalancer"),
        status=served(LoadBalancerIngress(ip="192.0.2.1"), conditions=(SET,)).status,
    )

    assert patch_of(claimed, finalizer_removal(claimed, Mode.FULL)).body == {
        "metadata": {"uid": "u1", "$deleteFromPrimitiveList/finalizers": [FINALIZER]},
        "status": {
            "loadBalancer": {"ingress": None},
            "conditions": [{"$patch": "delete", "type": CONDITION}],
        },
    }
    assert finalizer_removal(claimed, Mode.NONE).ingress is None


def test_a_status_is_written_whole_and_only_where_it_differs():
    write = published(served(), balancer(1), READY, LATER)

    assert patch_of(served(), write).body == {
        "metadata": {"uid": "u1"},
        "status": {
            "loadBalancer": {"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]},
            "conditions": [
                {
                    "type": CONDITION,
                    "status": "True",
                    "reason": READY.reason,
                    "message": READY.message,
                    "lastTransitionTime": "2030-01-01T01:00:00Z",
                }
            ],
        },
    }


def test_what_nobody_decides_by_is_no_reason_for_a_pass():
    old = served(LoadBalancerIngress(ip="192.0.2.1"), conditions=(SET,))
    new = served(LoadBalancerIngress(ip="192.0.2.1"))

    assert not is_worth_a_pass(old, new)
    assert is_worth_a_pass(old, served())

"""The decisions about one node; what the API server makes of them is modelled in the harness."""

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.model import Address, AddressType, Instance
from pileus.controllers.node.labels import INSTANCE_TYPE, ZONE
from pileus.controllers.node.observation import examine
from pileus.controllers.node.patches import ObjectWrite, StatusWrite, Write, patch_of
from pileus.controllers.node.plan import (
    CONDITION,
    age,
    condition_of,
    initial_object,
    initial_status,
    is_worth_a_pass,
    refreshed_object,
    refreshed_status,
    settled_object,
    settled_status,
    stuck_status,
)
from pileus.kube.model.core_v1 import Node
from pileus.objects.node_ips import PROVIDED_NODE_IP, NodeIpRefused
from pileus.objects.nodes import addresses_of, is_uninitialized, taints_of
from tests.unit.controllers.node.objects import (
    OTHER_TAINT,
    START,
    TAINT,
    Document,
    document,
    instance,
    internal,
    node,
    patched,
    typed,
)

FACTS = examine(instance())


def after(before: Document, decide: Callable[[Node], Write | None]) -> Document:
    write = decide(typed(before))
    return before if write is None else patched(before, *patch_of(typed(before), write))


def initialized(before: Document, found: Instance) -> Document:
    facts = examine(found)
    addressed = after(before, lambda seen: initial_status(seen, facts, START))
    return after(addressed, lambda seen: initial_object(seen, facts))


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute", ""])
@pytest.mark.parametrize("value", ["true", "", None])
def test_any_taint_with_the_key_means_uninitialized(effect: str, value: str | None) -> None:
    taint = {"key": TAINT["key"], "value": value, "effect": effect}

    assert is_uninitialized(node(taints=[OTHER_TAINT, taint]))


READY: Document = {"type": "Ready", "status": "True"}
STUCK: Document = {"type": CONDITION, "status": "True"}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"taints": [TAINT, OTHER_TAINT]}, id="taints"),
        pytest.param({"taints": []}, id="initialized by another"),
        pytest.param({"labels": {"a": "b"}}, id="labels"),
        pytest.param({"annotations": {"a": "b"}}, id="annotations"),
        pytest.param({"addresses": [("Hostname", "other")]}, id="addresses"),
        pytest.param({"provider_id": "fake://i-n1"}, id="provider ID"),
    ],
)
def test_a_change_of_what_is_looked_at_is_worth_a_pass(change: dict[str, object]) -> None:
    assert is_worth_a_pass(node(), node("n1", **change))


@pytest.mark.parametrize("taints", [[TAINT], []])
def test_a_heartbeat_is_not_worth_a_pass(taints: list[object]) -> None:
    beat = document(taints=taints, conditions=[{**READY, "status": "Unknown"}])
    beat["metadata"] = {**cast("Document", beat["metadata"]), "resourceVersion": "2"}

    assert not is_worth_a_pass(node(taints=taints), typed(beat))


def test_our_condition_is_worth_a_pass_only_on_a_node_that_is_not_stuck() -> None:
    both = [READY, STUCK]

    assert not is_worth_a_pass(node(), node(conditions=both))
    assert is_worth_a_pass(node(taints=[]), node(taints=[], conditions=both))


def test_another_node_of_the_same_name_is_worth_a_pass() -> None:
    anew = document()
    anew["metadata"] = {**cast("Document", anew["metadata"]), "uid": "another"}

    assert is_worth_a_pass(node(), typed(anew))


def test_all_taints_with_the_key_go_and_all_others_stay() -> None:
    twice = [TAINT, OTHER_TAINT, {**TAINT, "effect": "NoExecute"}]

    result = initialized(document(taints=twice), instance())

    assert result["spec"] == {"taints": [OTHER_TAINT], "providerID": "fake://i-n1"}


def test_a_node_with_a_provider_id_keeps_it() -> None:
    write = initial_object(node(provider_id="mine://7"), FACTS)

    assert write is not None
    assert not write.provider_id


def test_a_cloud_without_provider_ids_gives_none() -> None:
    result = initialized(document(), instance(provider_id=""))

    assert result["spec"] == {}


def test_standard_labels_are_overwritten_and_additional_ones_are_not() -> None:
    before = node(labels={"topology.kubernetes.io/zone": "old", "rack": "mine"})
    facts = examine(instance(zone="z1", type="", region="", labels={"rack": "7", "row": "3"}))

    write = initial_object(before, facts)

    assert write == ObjectWrite(
        provider_id="fake://i-n1",
        labels={
            "topology.kubernetes.io/zone": "z1",
            "failure-domain.beta.kubernetes.io/zone": "z1",
            "row": "3",
        },
        untaint=True,
    )


def test_a_node_that_someone_else_initialized_meanwhile_is_left_alone() -> None:
    assert initial_object(node(taints=[OTHER_TAINT]), FACTS) is None


def test_a_new_node_whose_addresses_are_right_costs_no_status_write() -> None:
    before = node(addresses=[("Hostname", "n1"), ("InternalIP", "10.0.0.1")])

    assert initial_status(before, FACTS, START) is None


def test_a_new_node_whose_wish_for_an_address_cannot_be_met_is_refused() -> None:
    before = node(annotations={PROVIDED_NODE_IP: "10.9.9.9"})

    with pytest.raises(NodeIpRefused):
        initial_status(before, FACTS, START)


def test_a_wrong_address_among_right_ones_does_not_take_addresses_away() -> None:
    before = node(taints=[], addresses=[("InternalIP", "10.0.0.1"), ("ExternalIP", "1.2.3.4")])
    broken = Address(AddressType.EXTERNAL_IP, "garbage")

    assert (
        refreshed_status(before, examine(instance(addresses=(internal("10.0.0.1"), broken))))
        is None
    )


def test_label_sync_updates_and_adds_but_never_removes() -> None:
    before = node(taints=[], labels={"topology.kubernetes.io/zone": "old", "rack": "1", "own": "x"})
    facts = examine(instance(zone="z2", type="", region="", labels={"rack": "2", "row": "3"}))

    assert refreshed_object(before, facts) == ObjectWrite(
        labels={
            "topology.kubernetes.io/zone": "z2",
            "failure-domain.beta.kubernetes.io/zone": "z2",
            "rack": "2",
            "row": "3",
        }
    )


def test_a_settled_node_without_beta_labels_needs_nothing() -> None:
    assert settled_object(node(taints=[])) is None
    assert settled_status(node(taints=[]), START) is None


def test_defect_4_a_stuck_node_says_why_in_a_condition_once() -> None:
    before = document()

    stuck = after(before, lambda seen: stuck_status(seen, "InstanceNotFound", "no i-n1", START))

    condition = condition_of(typed(stuck), CONDITION)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == (
        "True",
        "InstanceNotFound",
        "no i-n1",
    )
    assert condition.last_transition_time == START
    later = START + timedelta(hours=1)
    assert stuck_status(typed(stuck), "InstanceNotFound", "no i-n1", later) is None
    assert len(typed(stuck).status.conditions or ()) == 2  # type: ignore[union-attr]


def test_a_condition_is_reworded_only_after_a_while_but_a_new_reason_is_told_at_once() -> None:
    stuck = typed(after(document(), lambda seen: stuck_status(seen, "A", "request 1", START)))
    soon, late = START + timedelta(minutes=1), START + timedelta(minutes=6)

    assert stuck_status(stuck, "A", "request 2", soon) is None
    assert stuck_status(stuck, "A", "request 2", late) is not None
    other = stuck_status(stuck, "B", "request 3", soon)
    assert other is not None
    assert other.condition is not None
    assert other.condition.last_transition_time == START, "it was bad all the time"


def test_a_stuck_node_that_gets_initialized_is_cleared_in_the_same_write() -> None:
    stuck = after(document(), lambda seen: stuck_status(seen, "A", "b", START))

    result = typed(initialized(stuck, instance()))

    assert [each.address for each in addresses_of(result)] == ["10.0.0.1", "n1"]
    condition = condition_of(result, CONDITION)
    assert condition is not None
    assert condition.status == "False"
    assert settled_status(result, START) is None


def test_a_stuck_node_without_addresses_is_cleared_afterwards() -> None:
    stuck = after(document(addresses=[]), lambda seen: stuck_status(seen, "A", "b", START))

    write = initial_status(typed(stuck), FACTS, START)

    assert write is not None
    assert write.condition is None
    assert settled_status(typed(initialized(stuck, instance())), START) is not None


def test_a_condition_on_a_node_whose_taint_others_removed_is_cleared() -> None:
    stuck = {"type": CONDITION, "status": "True", "reason": "A"}

    write = settled_status(node(taints=[], conditions=[stuck]), START)

    assert isinstance(write, StatusWrite)
    assert write.addresses is None


def test_the_age_of_a_node_is_never_negative_and_unknown_without_a_birth() -> None:
    assert age(node(), START) == 10.0
    assert age(node(), START - timedelta(hours=1)) == 0.0
    assert age(Node(), START) is None


@pytest.mark.parametrize("bare", [Node(), Node(spec=None, status=None)])
def test_a_node_without_anything_is_settled_and_harmless(bare: Node) -> None:
    assert not is_uninitialized(bare)
    assert settled_object(bare) is None
    assert initial_object(bare, FACTS) is None
    assert taints_of(bare) == ()


IPS = st.one_of(
    st.ip_addresses(network="10.0.0.0/30").map(str),
    st.ip_addresses(network="fd00::/126").map(str),
    st.sampled_from(["fd00:0:0::1", "::ffff:10.0.0.1", "010.0.0.1"]),
)
ADDRESSES = st.one_of(
    st.builds(Address, st.sampled_from([AddressType.INTERNAL_IP, AddressType.EXTERNAL_IP]), IPS),
    st.builds(
        Address,
        st.sampled_from([AddressType.HOSTNAME, AddressType.INTERNAL_DNS]),
        st.sampled_from(["n1", "n1.local", "10.0.0.1"]),
    ),
)
KEYS = st.sampled_from(["rack", "row", "k8s.io/x", "bad key", *INSTANCE_TYPE, *ZONE])
LABELS = st.dictionaries(KEYS, st.sampled_from(["", "1", "2", "not valid"]))
ANNOTATIONS = st.one_of(
    st.just({}), st.fixed_dictionaries({PROVIDED_NODE_IP: st.one_of(IPS, st.just("nonsense"))})
)
INSTANCES = st.builds(
    instance,
    provider_id=st.sampled_from(["", "fake://1"]),
    type=st.sampled_from(["", "m1", "not valid"]),
    zone=st.sampled_from(["", "z1"]),
    region=st.sampled_from(["", "r1"]),
    addresses=st.lists(ADDRESSES, max_size=5).map(tuple),
    labels=LABELS,
)
DOCUMENTS = st.builds(
    document,
    taints=st.lists(st.sampled_from([TAINT, OTHER_TAINT, {**TAINT, "effect": "NoExecute"}])),
    labels=LABELS,
    annotations=ANNOTATIONS,
    addresses=st.lists(ADDRESSES, max_size=4).map(
        lambda found: [(each.type, each.address) for each in found]
    ),
    provider_id=st.sampled_from(["", "mine://7"]),
    conditions=st.sampled_from([[], [{"type": CONDITION, "status": "True", "reason": "A"}]]),
)


@given(before=DOCUMENTS, found=INSTANCES)
def test_a_second_start_writes_nothing(before: Document, found: Instance) -> None:
    facts = examine(found)
    try:
        result = initialized(before, found)
    except NodeIpRefused:
        return

    result = after(result, lambda seen: settled_status(seen, START))
    result = after(result, settled_object)

    seen = typed(result)
    assert not is_uninitialized(seen)
    assert initial_status(seen, facts, START) is None
    assert initial_object(seen, facts) is None
    assert settled_status(seen, START) is None
    assert settled_object(seen) is None
    assert refreshed_status(seen, facts) is None


@given(before=DOCUMENTS, found=INSTANCES)
def test_a_second_round_of_label_sync_writes_nothing(before: Document, found: Instance) -> None:
    facts = examine(found)

    once = typed(after(before, lambda seen: refreshed_object(seen, facts)))

    assert refreshed_object(once, facts) is None
    assert set(once.metadata.labels or {}) >= set(typed(before).metadata.labels or {})


@given(before=DOCUMENTS, found=INSTANCES)
def test_nothing_foreign_is_touched(before: Document, found: Instance) -> None:
    try:
        result = typed(initialized(before, found))
    except NodeIpRefused:
        return

    was = typed(before)
    others = [taint for taint in taints_of(was) if taint.key != TAINT["key"]]
    assert list(taints_of(result)) == others
    assert set(result.metadata.labels or {}) >= set(was.metadata.labels or {})
    assert (was.spec and was.spec.provider_id) in {None, result.spec and result.spec.provider_id}


@given(before=DOCUMENTS, found=INSTANCES)
def test_every_type_that_the_cloud_reports_is_on_the_node(
    before: Document, found: Instance
) -> None:
    try:
        result = typed(initialized(before, found))
    except NodeIpRefused:
        return

    if examine(found).addresses:
        expected = {each.type for each in examine(found).addresses} | {
            each.type for each in addresses_of(typed(before)) if each.type == "Hostname"
        }
        assert {each.type for each in addresses_of(result)} == expected

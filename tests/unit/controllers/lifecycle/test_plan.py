"""Decisions about one node, for all states that it may be in."""

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cloud.model import Absent, Instance, InstanceId, InstanceState
from pileus.controllers.lifecycle.annotations import DELETION, OUT_OF_SERVICE_MARK
from pileus.controllers.lifecycle.guard import Share, Standing
from pileus.controllers.lifecycle.patches import (
    CONDITION,
    OUT_OF_SERVICE,
    RECOVERED,
    Marks,
    needs_recovery,
    object_write,
    patch_of,
    status_write,
)
from pileus.controllers.lifecycle.plan import Case, Delete, Wait, on_absence, on_presence
from pileus.controllers.lifecycle.settings import Policy
from pileus.kube.model.core_v1 import Node, NodeCondition, Taint
from pileus.objects.nodes import is_ready, taints_of
from pileus.objects.ownership import Ownership, ownership
from tests.unit.controllers.node.objects import Document, patched, typed

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GONE = Absent("no server n1")
SHUTDOWN_KEY = "node.cloudprovider.kubernetes.io/shutdown"
UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "effect": "NoSchedule"}

our_taints = st.sampled_from([
    {"key": SHUTDOWN_KEY, "effect": "NoSchedule"},
    {"key": SHUTDOWN_KEY, "effect": "NoExecute"},
    {"key": "pileus.dev/instance-gone", "effect": "NoSchedule"},
    {"key": OUT_OF_SERVICE.key, "value": "nodeshutdown", "effect": "NoExecute"},
    {"key": OUT_OF_SERVICE.key, "value": "byhand", "effect": "NoExecute"},
    {"key": "example.com/mine", "value": "x", "effect": "NoSchedule"},
])
annotations = st.fixed_dictionaries(
    {},
    optional={
        DELETION: st.sampled_from(["approved", "never", "maybe", ""]),
        OUT_OF_SERVICE_MARK: st.just("true"),
        "pileus.dev/deletoin": st.just("never"),
        "example.com/note": st.just("mine"),
    },
)
conditions = st.lists(
    st.sampled_from([
        {"type": "Ready", "status": "True"},
        {"type": "Ready", "status": "Unknown"},
        {"type": CONDITION, "status": "True", "reason": "A", "message": "b"},
        {"type": CONDITION, "status": "False", "reason": "A", "message": "b"},
        {"type": "DiskPressure", "status": "False"},
    ]),
    unique_by=lambda each: each["type"],
)


@st.composite
def documents(draw: st.DrawFn) -> Document:
    taints = draw(st.lists(our_taints, unique_by=lambda t: (t["key"], t["effect"])))
    return {
        "metadata": {
            "name": "n1",
            "uid": "uid-1",
            "resourceVersion": "7",
            "annotations": draw(annotations),
        },
        "spec": {"taints": taints},
        "status": {"conditions": draw(conditions)},
    }


cases = st.builds(
    Case,
    ownership=st.sampled_from([Ownership.OURS, Ownership.UNPROVEN]),
    standing=st.sampled_from(Standing),
    share=st.just(Share(3, 2, 10)),
    policy=st.sampled_from(Policy),
    is_overdue=st.booleans(),
)
instances = st.builds(
    Instance,
    id=st.just(InstanceId("n1")),
    provider_id=st.just("fake://n1"),
    state=st.sampled_from(InstanceState),
)
wishes = st.one_of(
    st.just(RECOVERED),
    st.builds(
        lambda instance, standing: on_presence(Node(), instance, standing, Share(3, 2, 10)),
        instances,
        st.sampled_from(Standing),
    ),
    st.builds(lambda case: on_absence(Node(), GONE, case), cases).filter(
        lambda step: isinstance(step, Marks)
    ),
)


def performed(document: Document, wanted: Marks) -> Document:
    """The node after the writes, as the API server would leave it."""
    for decide in (lambda n: object_write(n, wanted), lambda n: status_write(n, wanted, NOW)):
        write = decide(typed(document))
        if write is not None:
            document = patched(document, *patch_of(typed(document), write))
    return document


def conditions_of(of: Node) -> tuple[NodeCondition, ...]:
    return (of.status and of.status.conditions) or ()


def node(**parts: object) -> Node:
    return msgspec.convert(
        {"metadata": {"name": "n1", "uid": "uid-1", "resourceVersion": "7"}} | parts, Node
    )


@given(documents(), wishes)
def test_what_was_written_is_met(document: Document, wanted: Marks) -> None:
    after = typed(performed(document, wanted))

    assert object_write(after, wanted) is None
    assert status_write(after, wanted, NOW) is None


@given(documents(), wishes)
def test_what_is_not_ours_is_never_changed(document: Document, wanted: Marks) -> None:
    before, after = typed(document), typed(performed(document, wanted))

    def others(of: Node) -> list[Taint]:
        ours = {SHUTDOWN_KEY + "NoSchedule", "pileus.dev/instance-goneNoSchedule"}
        kept = [t for t in taints_of(of) if t.key + t.effect not in ours]
        marked = OUT_OF_SERVICE_MARK in (before.metadata.annotations or {})
        by_us = marked or not any(t.key == OUT_OF_SERVICE.key for t in taints_of(before))
        return [t for t in kept if not (by_us and t == OUT_OF_SERVICE)]

    assert others(after) == others(before)
    assert (after.metadata.annotations or {}).get("example.com/note") == (
        before.metadata.annotations or {}
    ).get("example.com/note")
    assert [c for c in conditions_of(after) if c.type != CONDITION] == [
        c for c in conditions_of(before) if c.type != CONDITION
    ]


@pytest.mark.parametrize("value", ["nodeshutdown", "byhand"])
def test_an_out_of_service_taint_that_a_user_set_is_neither_doubled_nor_taken_over(
    value: str,
) -> None:
    taint = {"key": OUT_OF_SERVICE.key, "value": value, "effect": "NoExecute"}
    stopped = {"conditions": [{"type": "Ready", "status": "Unknown"}]}

    write = object_write(node(spec={"taints": [taint]}, status=stopped), Marks(out_of_service=True))

    assert write is None


@given(documents(), wishes)
def test_a_ready_node_is_never_tainted_nor_said_to_be_gone(
    document: Document, wanted: Marks
) -> None:
    before = typed(document)
    after = typed(performed(document, wanted))
    if not is_ready(before):
        return

    assert set(taints_of(after)) <= set(taints_of(before))
    assert not any(c.type == CONDITION and c.status == "True" for c in conditions_of(after))


@given(documents())
def test_a_recovered_node_carries_nothing_of_ours(document: Document) -> None:
    after = typed(performed(document, RECOVERED))

    assert not needs_recovery(after)
    assert OUT_OF_SERVICE_MARK not in (after.metadata.annotations or {})
    assert (after.metadata.annotations or {}).get(DELETION) != "approved"
    assert not any(t.key == SHUTDOWN_KEY and t.effect == "NoSchedule" for t in taints_of(after))


@given(documents(), cases)
def test_what_may_be_deleted(document: Document, case: Case) -> None:
    given: dict[str, str] = document["metadata"]["annotations"]  # type: ignore[index]
    word = given.get(DELETION)

    step = on_absence(typed(document), GONE, case)

    if not isinstance(step, Delete):
        return
    assert word in {None, "approved"}
    assert "pileus.dev/deletoin" not in given
    assert case.policy in {Policy.GUARDED, Policy.IMMEDIATE}
    if case.policy is Policy.GUARDED:
        assert case.standing in {Standing.CONFIRMED, Standing.TOO_MANY}
        ours = case.ownership is Ownership.OURS or case.is_overdue
        proven = ours and case.standing is Standing.CONFIRMED
        assert proven or word == "approved"


@given(documents(), cases)
def test_whoever_is_kept_for_good_says_why(document: Document, case: Case) -> None:
    step = on_absence(typed(document), GONE, case)

    if isinstance(step, Marks):
        assert step.kept is not None
        assert "no server n1" in step.kept.message
    waits = case.standing in {Standing.CLEAR, Standing.WAITING}
    assert not isinstance(step, Wait) or waits


@pytest.mark.parametrize(
    ("provider_id", "initialized", "owns", "whose"),
    [
        ("fake://1", True, None, Ownership.OURS),
        ("fake://1", False, None, Ownership.OURS),
        ("fake:///zone/1", True, None, Ownership.OURS),
        ("metal://1", True, None, Ownership.FOREIGN),
        ("metal://1", True, True, Ownership.OURS),
        ("fake://1", True, False, Ownership.FOREIGN),
        ("", True, False, Ownership.FOREIGN),
        ("region.i-1", True, None, Ownership.OURS),
        ("region.i-1", False, None, Ownership.UNPROVEN),
        ("", True, None, Ownership.UNPROVEN),
        ("", False, None, Ownership.UNPROVEN),
        ("", False, True, Ownership.OURS),
    ],
)
def test_whose_machine_it_is(
    provider_id: str, initialized: bool, owns: bool | None, whose: Ownership
) -> None:
    taints = [] if initialized else [UNINITIALIZED]

    given_node = node(spec={"providerID": provider_id, "taints": taints})

    assert ownership(given_node, "fake", owns) is whose


def test_a_patch_of_taints_names_the_version_that_it_was_made_from() -> None:
    stopped = on_presence(Node(), instance(InstanceState.STOPPED), Standing.CLEAR, Share())
    write = object_write(node(), stopped)
    assert write is not None

    patch, subresource = patch_of(node(), write)

    assert subresource == ""
    assert patch.body == {
        "metadata": {"uid": "uid-1", "resourceVersion": "7"},
        "spec": {"taints": ({"key": SHUTDOWN_KEY, "effect": "NoSchedule"},)},
    }


@pytest.mark.parametrize("state", [InstanceState.PENDING, InstanceState.UNKNOWN])
def test_a_state_that_is_neither_running_nor_stopped_changes_no_service(
    state: InstanceState,
) -> None:
    wanted = on_presence(Node(), instance(state), Standing.CONFIRMED, Share())

    assert wanted == replace(Marks(), gone=False)


def instance(state: InstanceState) -> Instance:
    return Instance(id=InstanceId("n1"), provider_id="fake://n1", state=state)

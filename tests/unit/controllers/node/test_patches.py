from pileus.controllers.node.patches import ObjectWrite, StatusWrite, object_patch, status_patch
from pileus.kube.model.core_v1 import Node, NodeAddress, NodeCondition
from pileus.kube.patch import MergePatch, StrategicPatch
from tests.unit.controllers.node.objects import OTHER_TAINT, START, TAINT, node

ADDRESS = NodeAddress(type="InternalIP", address="10.0.0.1")
CONDITION = NodeCondition(type="X", status="False", last_heartbeat_time=START)
WIRE_CONDITION = {"type": "X", "status": "False", "lastHeartbeatTime": "2030-01-01T00:00:00Z"}


def test_the_taint_is_removed_from_the_very_version_that_was_seen() -> None:
    patch = object_patch(
        node(taints=[TAINT, OTHER_TAINT]),
        ObjectWrite(provider_id="fake://1", labels={"a": "b"}, untaint=True),
    )

    assert patch == MergePatch({
        "metadata": {"uid": "uid-n1", "resourceVersion": "1", "labels": {"a": "b"}},
        "spec": {"providerID": "fake://1", "taints": [OTHER_TAINT]},
    })


def test_the_version_is_named_also_if_the_kubelet_gave_the_provider_id() -> None:
    patch = object_patch(
        node(taints=[TAINT, OTHER_TAINT], provider_id="fake://1"), ObjectWrite(untaint=True)
    )

    assert patch == MergePatch({
        "metadata": {"uid": "uid-n1", "resourceVersion": "1"},
        "spec": {"taints": [OTHER_TAINT]},
    })


def test_the_last_taint_takes_the_list_with_it() -> None:
    patch = object_patch(node(taints=[TAINT]), ObjectWrite(untaint=True))

    assert patch.body["spec"] == {"taints": None}


def test_labels_alone_need_no_version() -> None:
    patch = object_patch(node(), ObjectWrite(labels={"a": "b"}))

    assert patch == MergePatch({"metadata": {"uid": "uid-n1", "labels": {"a": "b"}}})


def test_addresses_alone_replace_the_list() -> None:
    patch = status_patch(node(), StatusWrite(addresses=(ADDRESS,)))

    assert patch == MergePatch({
        "metadata": {"uid": "uid-n1"},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    })


def test_a_condition_is_merged_beside_those_of_others() -> None:
    patch = status_patch(node(), StatusWrite(condition=CONDITION))

    assert patch == StrategicPatch({
        "metadata": {"uid": "uid-n1"},
        "status": {"conditions": [WIRE_CONDITION]},
    })


def test_with_a_condition_the_addresses_are_replaced_by_directive_and_guarded() -> None:
    patch = status_patch(node(), StatusWrite(addresses=(ADDRESS,), condition=CONDITION))

    assert patch == StrategicPatch({
        "metadata": {"uid": "uid-n1", "resourceVersion": "1"},
        "status": {
            "conditions": [WIRE_CONDITION],
            "addresses": [
                {"type": "InternalIP", "address": "10.0.0.1"},
                {"$patch": "replace"},
            ],
        },
    })


def test_a_node_without_a_uid_is_patched_by_name() -> None:
    patch = status_patch(Node(), StatusWrite(addresses=(ADDRESS,)))

    assert patch.body == {
        "metadata": {},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    }

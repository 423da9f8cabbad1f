"""The life of an object: created, changed, deleted, as the real server does it."""

from typing import Any

import pytest

from tests.unit.apiserver.caller import (
    DEFAULT,
    JSON_PATCH,
    LEASES,
    MAPS,
    MERGE,
    NODES,
    STRATEGIC,
    caller,
    config_map,
    node,
)


def test_a_new_object_gets_what_only_the_server_can_give():
    call = caller()

    made = call.create(MAPS, config_map("a", x="y"))

    assert made["kind"] == "ConfigMap"
    assert made["metadata"]["namespace"] == "default"
    assert made["metadata"]["creationTimestamp"] == "2026-01-01T00:00:00Z"
    assert made["metadata"]["uid"]
    assert int(made["metadata"]["resourceVersion"]) > 1
    assert call.get(f"{MAPS}/a") == made


def test_names_are_generated():
    call = caller()

    names = {
        call.create(MAPS, {"metadata": {"generateName": "x-"}})["metadata"]["name"]
        for _ in range(20)
    }

    assert len(names) == 20
    assert all(name.startswith("x-") and len(name) == 7 for name in names)


def test_what_the_client_may_not_set_is_ignored():
    call = caller()
    wishes = {"name": "a", "uid": "mine", "deletionTimestamp": "2020-01-01T00:00:00Z"}

    made = call.create(MAPS, {"metadata": wishes, "status": {"x": 1}})

    assert made["metadata"]["uid"] != "mine"
    assert "deletionTimestamp" not in made["metadata"]


def test_a_write_that_changes_nothing_is_no_write():
    call = caller()
    made = call.create(MAPS, config_map("a", x="y"))

    again = call("PUT", f"{MAPS}/a", made).body
    patched = call.patch(f"{MAPS}/a", {"data": {"x": "y"}})

    assert again == patched == made


def test_a_stale_write_is_refused():
    call = caller()
    made = call.create(MAPS, config_map("a", x="1"))
    call.patch(f"{MAPS}/a", {"data": {"x": "2"}})

    answer = call("PUT", f"{MAPS}/a", made)
    patched = call("PATCH", f"{MAPS}/a", {"metadata": {"resourceVersion": "1"}}, media=MERGE)

    assert (answer.status, answer.body["reason"]) == (409, "Conflict")
    assert patched.status == 409
    assert "the object has been modified" in answer.message


def test_a_write_without_a_version_is_taken_unless_it_is_a_lease():
    call = caller()
    call.create(MAPS, config_map("a", x="1"))
    call.create(LEASES, {"metadata": {"name": "a"}})

    answer = call("PUT", f"{MAPS}/a", config_map("a", x="2"))
    lease = call("PUT", f"{LEASES}/a", {"metadata": {"name": "a"}})

    assert answer.body["data"] == {"x": "2"}
    assert lease.status == 422
    assert lease.message == (
        'leases.coordination.k8s.io "a" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update"
    )


def test_a_lease_is_created_by_an_update():
    call = caller()

    answer = call("PUT", f"{LEASES}/new", {"metadata": {"name": "new"}})

    assert answer.status == 201


def test_status_and_the_rest_are_written_apart():
    call = caller()
    call.create(NODES, node("n", providerID="x://1"))
    conditions = [{"type": "Ready", "status": "True"}]

    call.patch(f"{NODES}/n", {"status": {"conditions": conditions}})
    untouched = call.get(f"{NODES}/n")
    change = {"status": {"conditions": conditions}, "spec": {"unschedulable": True}}
    changed = call.patch(f"{NODES}/n/status", {**change, "metadata": {"labels": {"a": "b"}}})

    assert "conditions" not in untouched["status"]
    assert changed["status"]["conditions"][0]["status"] == "True"
    assert "unschedulable" not in changed["spec"]
    assert changed["metadata"]["labels"] == {"a": "b"}


def test_a_new_node_is_tainted_not_ready():
    call = caller()

    made = call.create(NODES, node("n", taints=[{"key": "mine", "effect": "NoExecute"}]))

    assert made["spec"]["taints"] == [
        {"key": "mine", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
    ]


def test_a_finalizer_holds_an_object_until_it_goes():
    call = caller()
    call.create(MAPS, {"metadata": {"name": "a", "finalizers": ["x.y/z"]}})

    first = call("DELETE", f"{MAPS}/a")
    again = call("DELETE", f"{MAPS}/a")
    more = call("PATCH", f"{MAPS}/a", {"metadata": {"finalizers": ["x.y/z", "q.r/s"]}}, media=MERGE)
    last = call.patch(f"{MAPS}/a", {"metadata": {"finalizers": None}})

    assert first.body["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:00Z"
    assert again.body == first.body
    assert more.status == 422
    assert 'found new finalizers []string{"q.r/s"}' in more.message
    assert last["metadata"]["deletionTimestamp"]
    assert call("GET", f"{MAPS}/a").status == 404


def test_a_deletion_tells_what_was_deleted():
    call = caller()
    uid = call.create(MAPS, config_map("a"))["metadata"]["uid"]

    answer = call("DELETE", f"{MAPS}/a")

    details = {"name": "a", "kind": "configmaps", "uid": uid}
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == details


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"uid": "x"}, "the UID in the precondition (x) does not match"),
        ({"resourceVersion": "1"}, "the ResourceVersion in the precondition (1) does not match"),
    ],
)
def test_preconditions_protect_from_a_wrong_deletion(wanted: dict[str, str], told: str):
    call = caller()
    call.create(MAPS, config_map("a"))

    answer = call("DELETE", f"{MAPS}/a", {"preconditions": wanted})

    assert answer.status == 409
    assert told in answer.message
    assert call("GET", f"{MAPS}/a").status == 200


def test_a_dry_run_changes_nothing():
    call = caller()
    call.create(MAPS, config_map("kept"))
    before = call.get(MAPS)

    answers = [
        call("POST", MAPS, config_map("a"), dryRun="All"),
        call("PATCH", f"{MAPS}/kept", {"data": {"x": "y"}}, media=MERGE, dryRun="All"),
        call("DELETE", f"{MAPS}/kept", dryRun="All"),
    ]

    assert [a.status for a in answers] == [201, 200, 200]
    assert answers[1].body["data"] == {"x": "y"}
    assert call.get(MAPS) == before


def test_a_collection_is_deleted_by_selector():
    call = caller()
    for name, label in (("a", "1"), ("b", "1"), ("c", "2")):
        call.create(MAPS, {"metadata": {"name": name, "labels": {"x": label}}})

    call("DELETE", MAPS, labelSelector="x=1")

    assert [i["metadata"]["name"] for i in call.get(MAPS)["items"]] == ["c"]


def test_a_namespace_empties_itself_and_goes():
    call = caller()
    call.create("/api/v1/namespaces", {"metadata": {"name": "ns"}})
    call.create("/api/v1/namespaces/ns/configmaps", config_map("a"))
    held = {"metadata": {"name": "b", "finalizers": ["x.y/z"]}}
    call.create("/api/v1/namespaces/ns/configmaps", held)

    gone = call("DELETE", "/api/v1/namespaces/ns")
    refused = call("POST", "/api/v1/namespaces/ns/configmaps", config_map("late"))
    waiting = call.get("/api/v1/namespaces/ns")
    left = call.get("/api/v1/namespaces/ns/configmaps")["items"]
    call.patch("/api/v1/namespaces/ns/configmaps/b", {"metadata": {"finalizers": None}})

    assert gone.body["status"]["phase"] == "Terminating"
    assert waiting["status"]["phase"] == "Terminating"
    assert [i["metadata"]["name"] for i in left] == ["b"]
    assert refused.status == 403
    assert refused.body["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert call("GET", "/api/v1/namespaces/ns").status == 404


def test_some_namespaces_stay():
    answer = caller()("DELETE", "/api/v1/namespaces/default")

    assert answer.message == 'namespaces "default" is forbidden: this namespace may not be deleted'


def test_generations_count_changes_of_what_is_wanted():
    call = caller()
    path = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    made = call.create(path, {"metadata": {"name": "s"}, "addressType": "IPv4", "endpoints": []})

    labelled = call.patch(f"{path}/s", {"metadata": {"labels": {"a": "b"}}})
    changed = call.patch(f"{path}/s", {"endpoints": [{"addresses": ["10.0.0.1"]}]})

    generations = [o["metadata"]["generation"] for o in (made, labelled, changed)]
    assert generations == [1, 1, 2]


def test_an_event_has_two_faces():
    call = caller()
    about = {"kind": "Node", "name": "n", "namespace": "default"}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "message": "m", "count": 2}
    call.create(f"{DEFAULT}/events", event)

    path = "/apis/events.k8s.io/v1/namespaces/default/events/e"
    seen = call.get(path)
    refused = call("PATCH", path, {"note": "n"}, media=MERGE)
    call.patch(f"{DEFAULT}/events/e", {"message": "n"})

    assert seen["apiVersion"] == "events.k8s.io/v1"
    assert (seen["note"], seen["regarding"], seen["deprecatedCount"]) == ("m", about, 2)
    assert refused.message.endswith('message: Invalid value: "n": field is immutable')
    assert call.get(path)["note"] == "n"


def test_a_pod_that_runs_nowhere_goes_at_once_and_another_waits_for_its_kubelet():
    call = caller()
    pods = f"{DEFAULT}/pods"
    containers = [{"name": "c", "image": "i"}]
    call.create(pods, {"metadata": {"name": "idle"}, "spec": {"containers": containers}})
    spec = {"containers": containers, "nodeName": "n"}
    call.create(pods, {"metadata": {"name": "busy"}, "spec": spec})

    call("DELETE", f"{pods}/idle")
    eviction = {"metadata": {"name": "busy"}}
    evicted = call("POST", f"{pods}/busy/eviction", eviction)
    marked = call.get(f"{pods}/busy")
    call("DELETE", f"{pods}/busy", {"gracePeriodSeconds": 0})

    assert evicted.status == 201
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    assert marked["metadata"]["deletionTimestamp"] == "2026-01-01T00:00:30Z"
    assert call.get(pods)["items"] == []


@pytest.mark.parametrize("media", [MERGE, STRATEGIC])
def test_the_three_patches_agree_on_a_label(media: str):
    call = caller()
    call.create(NODES, node("a"))
    call.create(NODES, node("b"))

    by_merge = call.patch(f"{NODES}/a", {"metadata": {"labels": {"x": "y"}}}, media)
    operation = {"op": "add", "path": "/metadata/labels", "value": {"x": "y"}}
    by_operation = call.patch(f"{NODES}/b", [operation], JSON_PATCH)

    assert labels(by_merge) == labels(by_operation) == {"x": "y"}


def labels(value: Any) -> dict[str, str]:
    return value["metadata"]["labels"]

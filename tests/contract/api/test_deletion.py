"""Deletion: preconditions, finalizers, collections, namespaces."""

import time

from tests.contract.api.http import Api, Namespace


def test_a_deleted_object_is_gone_and_the_answer_says_so(namespace: Namespace) -> None:
    made = namespace.config_map()

    answer = namespace.api.delete(namespace.path("configmaps", "one"))

    assert answer.status == 200
    assert answer.body["kind"] == "Status"
    assert answer.body["status"] == "Success"
    assert answer.body["details"] == {
        "name": "one",
        "kind": "configmaps",
        "uid": made["metadata"]["uid"],
    }
    assert namespace.api.get(namespace.path("configmaps", "one")).status == 404


def test_deleting_what_is_not_there_is_not_found(namespace: Namespace) -> None:
    answer = namespace.api.delete(namespace.path("configmaps", "none"))

    assert (answer.status, answer.reason) == (404, "NotFound")


def test_a_matching_uid_precondition_lets_it_go(namespace: Namespace) -> None:
    uid = namespace.config_map()["metadata"]["uid"]

    answer = namespace.api.delete(
        namespace.path("configmaps", "one"), {"preconditions": {"uid": uid}}
    )

    assert answer.status == 200


def test_another_uid_precondition_conflicts(namespace: Namespace) -> None:
    namespace.config_map()

    answer = namespace.api.delete(
        namespace.path("configmaps", "one"), {"preconditions": {"uid": "another"}}
    )

    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the UID in the precondition (another) does not match" in answer.message


def test_another_version_precondition_conflicts(namespace: Namespace) -> None:
    namespace.config_map()

    answer = namespace.api.delete(
        namespace.path("configmaps", "one"), {"preconditions": {"resourceVersion": "1"}}
    )

    assert (answer.status, answer.reason) == (409, "Conflict")


def test_a_finalizer_keeps_the_object_until_it_is_released(namespace: Namespace) -> None:
    namespace.config_map(metadata={"finalizers": ["example.com/wait"]})

    answer = namespace.api.delete(namespace.path("configmaps", "one"))
    kept = namespace.api.get(namespace.path("configmaps", "one")).body

    assert answer.status == 200
    assert answer.body["kind"] == "ConfigMap"
    assert kept["metadata"]["deletionTimestamp"]
    assert kept["metadata"]["deletionGracePeriodSeconds"] == 0

    released = namespace.api.patch(
        namespace.path("configmaps", "one"), {"metadata": {"finalizers": None}}
    )

    assert released.status == 200
    assert namespace.api.get(namespace.path("configmaps", "one")).status == 404


def test_no_finalizer_can_be_added_to_an_object_being_deleted(namespace: Namespace) -> None:
    namespace.config_map(metadata={"finalizers": ["example.com/wait"]})
    namespace.api.delete(namespace.path("configmaps", "one"))

    answer = namespace.api.patch(
        namespace.path("configmaps", "one"),
        {"metadata": {"finalizers": ["example.com/wait", "example.com/more"]}},
    )

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("FieldValueForbidden", "metadata.finalizers")}


def test_deleting_twice_keeps_the_first_time(namespace: Namespace) -> None:
    namespace.config_map(metadata={"finalizers": ["example.com/wait"]})
    first = namespace.api.delete(namespace.path("configmaps", "one")).body

    second = namespace.api.delete(namespace.path("configmaps", "one"))

    assert second.status == 200
    assert second.body["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]
    assert second.body["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_malformed_finalizer_is_invalid(namespace: Namespace) -> None:
    body = {"metadata": {"name": "one", "finalizers": ["no good"]}}

    answer = namespace.api.post(namespace.path("configmaps"), body)

    assert (answer.status, answer.reason) == (422, "Invalid")


def test_a_dry_deletion_keeps_the_object(namespace: Namespace) -> None:
    namespace.config_map()

    answer = namespace.api.delete(namespace.path("configmaps", "one"), {"dryRun": ["All"]})

    assert answer.status == 200
    assert namespace.api.get(namespace.path("configmaps", "one")).status == 200


def test_a_collection_is_deleted_by_selector(namespace: Namespace) -> None:
    namespace.config_map("one", metadata={"labels": {"go": "yes"}})
    namespace.config_map("two", metadata={"labels": {"go": "no"}})

    answer = namespace.api.delete(namespace.path("configmaps"), labelSelector="go=yes")

    assert answer.status == 200
    left = namespace.api.get(namespace.path("configmaps")).body["items"]
    assert [item["metadata"]["name"] for item in left] == ["two"]


def test_a_namespace_that_is_going_takes_nothing_new(api: Api, fresh: str) -> None:
    api.post("/api/v1/namespaces", {"metadata": {"name": fresh}})
    path = f"/api/v1/namespaces/{fresh}"
    api.post(f"{path}/configmaps", {"metadata": {"name": "keep", "finalizers": ["a.b/c"]}})

    going = api.delete(path)
    refused = api.post(f"{path}/configmaps", {"metadata": {"name": "late"}})

    assert going.status == 200
    assert going.body["status"]["phase"] == "Terminating"
    assert (refused.status, refused.reason) == (403, "Forbidden")
    assert "because it is being terminated" in refused.message
    api.patch(f"{path}/configmaps/keep", {"metadata": {"finalizers": None}})


def test_a_node_can_be_deleted_with_a_uid(api: Api, fresh: str) -> None:
    made = api.post("/api/v1/nodes", {"metadata": {"name": fresh}}).body

    answer = api.delete(
        f"/api/v1/nodes/{fresh}", {"preconditions": {"uid": made["metadata"]["uid"]}}
    )

    assert answer.status == 200
    assert api.get(f"/api/v1/nodes/{fresh}").status == 404


def test_time_is_not_turned_back(namespace: Namespace) -> None:
    namespace.config_map("first")
    time.sleep(1.1)

    second = namespace.config_map("second")

    first = namespace.api.get(namespace.path("configmaps", "first")).body
    assert second["metadata"]["creationTimestamp"] > first["metadata"]["creationTimestamp"]

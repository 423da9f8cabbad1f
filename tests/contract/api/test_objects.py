"""Creating, reading, replacing and deleting objects."""

import re

import pytest

from tests.contract.api.http import Api, Namespace


def test_a_created_object_gets_its_system_fields(namespace: Namespace) -> None:
    made = namespace.config_map(data={"a": "1"})

    meta = made["metadata"]
    assert made["kind"] == "ConfigMap"
    assert made["apiVersion"] == "v1"
    assert made["data"] == {"a": "1"}
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert int(meta["resourceVersion"]) > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert meta["namespace"] == namespace.name
    assert "generation" not in meta


def test_what_was_created_is_what_is_read(namespace: Namespace) -> None:
    made = namespace.config_map(data={"a": "1"}, metadata={"labels": {"x": "y"}})

    read = namespace.api.get(namespace.path("configmaps", "one"))

    assert read.status == 200
    assert read.body == made


def test_clients_cannot_choose_system_fields(namespace: Namespace) -> None:
    made = namespace.config_map(
        metadata={"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z"}
    )

    assert made["metadata"]["uid"] != "mine"
    assert not made["metadata"]["creationTimestamp"].startswith("2001")


def test_a_resource_version_on_creation_is_refused(namespace: Namespace) -> None:
    body = {"metadata": {"name": "one", "resourceVersion": "5"}}

    answer = namespace.api.post(namespace.path("configmaps"), body)

    assert answer.status == 500
    assert "resourceVersion should not be set on objects to be created" in answer.message


def test_the_same_name_twice_already_exists(namespace: Namespace) -> None:
    namespace.config_map()

    answer = namespace.api.post(namespace.path("configmaps"), {"metadata": {"name": "one"}})

    assert (answer.status, answer.reason) == (409, "AlreadyExists")
    assert answer.message == 'configmaps "one" already exists'
    assert answer.body["details"] == {"name": "one", "kind": "configmaps"}


def test_what_is_not_there_is_not_found(namespace: Namespace) -> None:
    answer = namespace.api.get(namespace.path("configmaps", "none"))

    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'configmaps "none" not found'
    assert answer.body["kind"] == "Status"
    assert answer.body["apiVersion"] == "v1"
    assert answer.body["status"] == "Failure"
    assert answer.body["code"] == 404


def test_a_name_in_a_group_is_not_found_with_its_group(namespace: Namespace) -> None:
    path = namespace.path("leases", "none", group="coordination.k8s.io/v1")

    answer = namespace.api.get(path)

    assert answer.message == 'leases.coordination.k8s.io "none" not found'
    assert answer.body["details"] == {
        "name": "none",
        "group": "coordination.k8s.io",
        "kind": "leases",
    }


def test_generate_name_makes_a_new_name_each_time(namespace: Namespace) -> None:
    body = {"metadata": {"generateName": "some-"}}

    names = {
        namespace.api.post(namespace.path("configmaps"), body).body["metadata"]["name"]
        for _ in range(3)
    }

    assert len(names) == 3
    assert all(re.fullmatch(r"some-[a-z0-9]{5}", name) for name in names)


def test_an_object_without_any_name_is_invalid(namespace: Namespace) -> None:
    answer = namespace.api.post(namespace.path("configmaps"), {"metadata": {}})

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.message == (
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
    )
    assert answer.causes == {("FieldValueRequired", "metadata.name")}


@pytest.mark.parametrize("name", ["Upper", "under_score", "-dash", "dash-", "a" * 254, "two..dots"])
def test_a_bad_name_is_invalid(namespace: Namespace, name: str) -> None:
    answer = namespace.api.post(namespace.path("configmaps"), {"metadata": {"name": name}})

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("FieldValueInvalid", "metadata.name")}


@pytest.mark.parametrize("name", ["a.b-c", "0", "a" * 253])
def test_a_good_name_is_taken(namespace: Namespace, name: str) -> None:
    assert namespace.config_map(name)["metadata"]["name"] == name


def test_a_namespace_must_be_a_label(api: Api) -> None:
    answer = api.post("/api/v1/namespaces", {"metadata": {"name": "a.b"}})

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("FieldValueInvalid", "metadata.name")}


@pytest.mark.parametrize(
    ("labels", "field"),
    [
        pytest.param({"-bad": "x"}, "metadata.labels", id="key"),
        pytest.param({"a/b/c": "x"}, "metadata.labels", id="two-slashes"),
        pytest.param({"good": "bad value"}, "metadata.labels", id="value"),
        pytest.param({"good": "x" * 64}, "metadata.labels", id="long-value"),
        pytest.param({"x" * 64: ""}, "metadata.labels", id="long-key"),
    ],
)
def test_a_bad_label_is_invalid(namespace: Namespace, labels: dict[str, str], field: str) -> None:
    body = {"metadata": {"name": "one", "labels": labels}}

    answer = namespace.api.post(namespace.path("configmaps"), body)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("FieldValueInvalid", field)}


def test_a_namespace_that_is_not_there_is_not_found(api: Api) -> None:
    answer = api.post("/api/v1/namespaces/nowhere/configmaps", {"metadata": {"name": "one"}})

    assert (answer.status, answer.reason) == (404, "NotFound")
    assert answer.message == 'namespaces "nowhere" not found'


def test_the_body_s_namespace_must_be_the_path_s(namespace: Namespace) -> None:
    body = {"metadata": {"name": "one", "namespace": "other"}}

    answer = namespace.api.post(namespace.path("configmaps"), body)

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "does not match the namespace" in answer.message


def test_another_kind_in_the_body_is_a_bad_request(namespace: Namespace) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}}

    answer = namespace.api.post(namespace.path("configmaps"), body)

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'Secret in version "v1" cannot be handled as a ConfigMap' in answer.message


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"{", id="cut"),
        pytest.param(b"[]", id="list"),
        pytest.param(b'{"metadata": {"name": 5}}', id="wrong-type"),
        pytest.param(b'{"metadata": []}', id="wrong-shape"),
        pytest.param(b"", id="empty"),
    ],
)
def test_what_cannot_be_decoded_is_a_bad_request(namespace: Namespace, body: bytes) -> None:
    answer = namespace.api.post(namespace.path("configmaps"), body)

    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_an_unknown_content_type_is_unsupported(namespace: Namespace) -> None:
    answer = namespace.api.send(
        "POST", namespace.path("configmaps"), b"x", content_type="text/plain"
    )

    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


def test_an_unknown_accept_is_not_acceptable(namespace: Namespace) -> None:
    answer = namespace.api.send("GET", namespace.path("configmaps"), accept="text/csv")

    assert (answer.status, answer.reason) == (406, "NotAcceptable")


def test_a_body_of_many_megabytes_is_too_large(namespace: Namespace) -> None:
    body = {"metadata": {"name": "one"}, "data": {"big": "x" * 4_000_000}}

    answer = namespace.api.post(namespace.path("configmaps"), body)

    assert (answer.status, answer.reason) == (413, "RequestEntityTooLarge")


def test_a_config_map_of_over_a_mebibyte_is_invalid(namespace: Namespace) -> None:
    body = {"metadata": {"name": "one"}, "data": {"big": "x" * 1_100_000}}

    answer = namespace.api.post(namespace.path("configmaps"), body)

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert ("FieldValueTooLong", "[]") in answer.causes


def test_replacing_changes_the_version_and_nothing_of_the_identity(namespace: Namespace) -> None:
    made = namespace.config_map(data={"a": "1"})

    answer = namespace.api.put(namespace.path("configmaps", "one"), made | {"data": {"b": "2"}})

    assert answer.status == 200
    assert answer.body["data"] == {"b": "2"}
    assert answer.body["metadata"]["uid"] == made["metadata"]["uid"]
    assert answer.body["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert int(answer.body["metadata"]["resourceVersion"]) > int(
        made["metadata"]["resourceVersion"]
    )


def test_replacing_by_the_same_changes_nothing(namespace: Namespace) -> None:
    made = namespace.config_map(data={"a": "1"})

    answer = namespace.api.put(namespace.path("configmaps", "one"), made)

    assert answer.status == 200
    assert answer.body["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_replacing_from_a_stale_version_conflicts(namespace: Namespace) -> None:
    made = namespace.config_map(data={"a": "1"})
    namespace.api.put(namespace.path("configmaps", "one"), made | {"data": {"a": "2"}})

    answer = namespace.api.put(namespace.path("configmaps", "one"), made | {"data": {"a": "3"}})

    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "the object has been modified" in answer.message


def test_replacing_without_a_version_overwrites(namespace: Namespace) -> None:
    namespace.config_map(data={"a": "1"})
    body = {"metadata": {"name": "one"}, "data": {"b": "2"}}

    answer = namespace.api.put(namespace.path("configmaps", "one"), body)

    assert answer.status == 200
    assert answer.body["data"] == {"b": "2"}


def test_replacing_with_another_uid_conflicts(namespace: Namespace) -> None:
    namespace.config_map()
    body = {"metadata": {"name": "one", "uid": "another"}}

    answer = namespace.api.put(namespace.path("configmaps", "one"), body)

    assert (answer.status, answer.reason) == (409, "Conflict")
    assert "Precondition failed: UID in precondition: another" in answer.message


def test_replacing_under_another_name_is_a_bad_request(namespace: Namespace) -> None:
    namespace.config_map()

    answer = namespace.api.put(namespace.path("configmaps", "one"), {"metadata": {"name": "two"}})

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "does not match the name on the URL (one)" in answer.message


def test_replacing_what_is_not_there_is_not_found(namespace: Namespace) -> None:
    answer = namespace.api.put(namespace.path("configmaps", "no"), {"metadata": {"name": "no"}})

    assert (answer.status, answer.reason) == (404, "NotFound")


def test_a_malformed_resource_version_changes_nothing(namespace: Namespace) -> None:
    made = namespace.config_map(data={"a": "1"})
    meta = made["metadata"] | {"resourceVersion": "yesterday"}
    body = made | {"metadata": meta, "data": {"a": "2"}}

    answer = namespace.api.put(namespace.path("configmaps", "one"), body)

    assert answer.status == 500
    assert namespace.api.get(namespace.path("configmaps", "one")).body == made


def test_unknown_fields_are_dropped(namespace: Namespace) -> None:
    made = namespace.config_map(nonsense={"a": 1})

    assert "nonsense" not in made


def test_unknown_fields_are_refused_when_asked_to_be_strict(namespace: Namespace) -> None:
    body = {"metadata": {"name": "one"}, "nonsense": 1}

    answer = namespace.api.post(namespace.path("configmaps"), body, fieldValidation="Strict")

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert 'unknown field "nonsense"' in answer.message


def test_a_dry_run_answers_and_keeps_nothing(namespace: Namespace) -> None:
    body = {"metadata": {"name": "one"}}

    answer = namespace.api.post(namespace.path("configmaps"), body, dryRun="All")

    assert answer.status == 201
    assert namespace.api.get(namespace.path("configmaps", "one")).status == 404


def test_another_dry_run_is_refused(namespace: Namespace) -> None:
    body = {"metadata": {"name": "one"}}

    answer = namespace.api.post(namespace.path("configmaps"), body, dryRun="Some")

    assert (answer.status, answer.reason) == (422, "Invalid")


@pytest.mark.parametrize(
    "path",
    ["/api/v1/gadgets", "/apis/gadgets.io/v1/gadgets", "/api/v2/nodes", "/nonsense"],
)
def test_an_unknown_path_is_not_found(api: Api, path: str) -> None:
    assert api.get(path).status == 404


def test_a_wrong_method_is_not_allowed(api: Api) -> None:
    answer = api.put("/api/v1/nodes", {})

    assert (answer.status, answer.reason) == (405, "MethodNotAllowed")


def test_immutable_config_maps_cannot_change(namespace: Namespace) -> None:
    namespace.config_map(data={"a": "1"}, immutable=True)

    answer = namespace.api.patch(namespace.path("configmaps", "one"), {"data": {"a": "2"}})

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("FieldValueForbidden", "data")}

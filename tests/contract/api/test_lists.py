"""Lists: pages, versions, selectors."""

import pytest

from tests.contract.api.http import Api, Namespace


def names(items: list[dict[str, dict[str, str]]]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


@pytest.fixture
def five(namespace: Namespace) -> Namespace:
    for number in range(5):
        parity = "even" if number % 2 == 0 else "odd"
        namespace.config_map(f"m{number}", metadata={"labels": {"n": str(number), "p": parity}})
    return namespace


def test_a_list_has_its_kind_its_version_and_plain_items(five: Namespace) -> None:
    answer = five.api.get(five.path("configmaps"))

    assert answer.status == 200
    assert answer.body["kind"] == "ConfigMapList"
    assert answer.body["apiVersion"] == "v1"
    assert int(answer.body["metadata"]["resourceVersion"]) > 0
    assert names(answer.body["items"]) == ["m0", "m1", "m2", "m3", "m4"]
    assert "kind" not in answer.body["items"][0]


def test_an_empty_list_has_no_items(namespace: Namespace) -> None:
    answer = namespace.api.get(namespace.path("leases", group="coordination.k8s.io/v1"))

    assert answer.body["items"] == []
    assert answer.body["kind"] == "LeaseList"


def test_all_namespaces_are_one_list(five: Namespace) -> None:
    answer = five.api.get("/api/v1/configmaps")

    mine = [i for i in answer.body["items"] if i["metadata"]["namespace"] == five.name]
    assert len(mine) == 5


def test_a_list_of_a_namespace_that_is_not_there_is_empty(api: Api) -> None:
    answer = api.get("/api/v1/namespaces/nowhere/configmaps")

    assert answer.status == 200
    assert answer.body["items"] == []


def test_pages_are_walked_with_continue(five: Namespace) -> None:
    first = five.api.get(five.path("configmaps"), limit=2).body
    token = first["metadata"]["continue"]
    second = five.api.get(five.path("configmaps"), **{"limit": 2, "continue": token}).body
    token = second["metadata"]["continue"]
    third = five.api.get(five.path("configmaps"), **{"limit": 2, "continue": token}).body

    assert names(first["items"]) == ["m0", "m1"]
    assert names(second["items"]) == ["m2", "m3"]
    assert names(third["items"]) == ["m4"]
    assert first["metadata"]["remainingItemCount"] == 3
    assert second["metadata"]["remainingItemCount"] == 1
    assert "continue" not in third["metadata"]


def test_pages_show_one_moment(five: Namespace) -> None:
    first = five.api.get(five.path("configmaps"), limit=2).body
    five.config_map("m9")
    five.api.delete(five.path("configmaps", "m3"))

    token = first["metadata"]["continue"]
    rest = five.api.get(five.path("configmaps"), **{"continue": token}).body

    assert names(rest["items"]) == ["m2", "m3", "m4"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_limit_that_is_not_reached_leaves_no_continue(five: Namespace) -> None:
    answer = five.api.get(five.path("configmaps"), limit=10).body

    assert "continue" not in answer["metadata"]
    assert "remainingItemCount" not in answer["metadata"]


def test_with_a_selector_the_remaining_count_is_unknown(five: Namespace) -> None:
    answer = five.api.get(five.path("configmaps"), limit=1, labelSelector="p=even").body

    assert names(answer["items"]) == ["m0"]
    assert answer["metadata"]["continue"]
    assert "remainingItemCount" not in answer["metadata"]


@pytest.mark.parametrize("token", ["nonsense", "e30"])
def test_a_bad_continue_is_a_bad_request(five: Namespace, token: str) -> None:
    answer = five.api.get(five.path("configmaps"), **{"limit": 2, "continue": token})

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert "continue key is not valid" in answer.message


def test_continue_and_a_version_exclude_each_other(five: Namespace) -> None:
    token = five.api.get(five.path("configmaps"), limit=2).body["metadata"]["continue"]

    answer = five.api.get(
        five.path("configmaps"), **{"limit": 2, "continue": token, "resourceVersion": "5"}
    )

    assert answer.status == 400


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("p=even", ["m0", "m2", "m4"]),
        ("p==odd", ["m1", "m3"]),
        ("p!=even", ["m1", "m3"]),
        ("n in (1,2)", ["m1", "m2"]),
        ("n notin (1, 2)", ["m0", "m3", "m4"]),
        ("p", ["m0", "m1", "m2", "m3", "m4"]),
        ("!p", []),
        ("!absent", ["m0", "m1", "m2", "m3", "m4"]),
        ("absent!=x", ["m0", "m1", "m2", "m3", "m4"]),
        ("p=even,n=2", ["m2"]),
        ("n>1", ["m2", "m3", "m4"]),
        ("n<1", ["m0"]),
        ("p=", []),
        ("", ["m0", "m1", "m2", "m3", "m4"]),
        ("p in (even),n!=0", ["m2", "m4"]),
    ],
)
def test_label_selectors(five: Namespace, selector: str, expected: list[str]) -> None:
    answer = five.api.get(five.path("configmaps"), labelSelector=selector)

    assert answer.status == 200
    assert names(answer.body["items"]) == expected


@pytest.mark.parametrize("selector", ["p=(", "=x", "p in even", "a b", "n>x", "p=bad value!"])
def test_a_bad_label_selector_is_a_bad_request(five: Namespace, selector: str) -> None:
    answer = five.api.get(five.path("configmaps"), labelSelector=selector)

    assert (answer.status, answer.reason) == (400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("metadata.name=m1", ["m1"]),
        ("metadata.name!=m1", ["m0", "m2", "m3", "m4"]),
        ("metadata.name==m1", ["m1"]),
        ("metadata.name=absent", []),
    ],
)
def test_field_selectors(five: Namespace, selector: str, expected: list[str]) -> None:
    answer = five.api.get(five.path("configmaps"), fieldSelector=selector)

    assert names(answer.body["items"]) == expected


def test_a_field_that_cannot_be_selected_is_a_bad_request(five: Namespace) -> None:
    answer = five.api.get(five.path("configmaps"), fieldSelector="data.a=1")

    assert (answer.status, answer.reason) == (400, "BadRequest")
    assert '"data.a" is not a known field selector' in answer.message


def test_nodes_are_selected_by_being_unschedulable(api: Api, fresh: str) -> None:
    api.post("/api/v1/nodes", {"metadata": {"name": fresh}, "spec": {"unschedulable": True}})

    selector = f"spec.unschedulable=true,metadata.name={fresh}"
    answer = api.get("/api/v1/nodes", fieldSelector=selector)

    assert names(answer.body["items"]) == [fresh]
    api.delete(f"/api/v1/nodes/{fresh}")


def test_events_are_selected_by_what_they_are_about(namespace: Namespace) -> None:
    for name in ("a", "b"):
        about = {"kind": "Node", "name": name, "namespace": namespace.name}
        body = {"metadata": {"name": f"e-{name}"}, "involvedObject": about, "reason": "R"}
        made = namespace.api.post(namespace.path("events"), body)
        assert made.status == 201, made

    answer = namespace.api.get(
        namespace.path("events"), fieldSelector="involvedObject.name=b,reason=R"
    )

    assert names(answer.body["items"]) == ["e-b"]


def test_the_newest_version_is_shown_unless_another_is_asked_for(five: Namespace) -> None:
    five.config_map("m5")

    assert len(five.api.get(five.path("configmaps")).body["items"]) == 6
    assert five.api.get(five.path("configmaps"), resourceVersion="0").status == 200


def test_an_exact_version_shows_that_moment(five: Namespace) -> None:
    version = five.api.get(five.path("configmaps")).body["metadata"]["resourceVersion"]
    five.config_map("m5")

    then = five.api.get(
        five.path("configmaps"), resourceVersion=version, resourceVersionMatch="Exact"
    )

    assert then.status == 200
    assert len(then.body["items"]) == 5
    assert then.body["metadata"]["resourceVersion"] == version


def test_a_match_without_a_version_is_invalid(five: Namespace) -> None:
    answer = five.api.get(five.path("configmaps"), resourceVersionMatch="Exact")

    assert (answer.status, answer.reason) == (422, "Invalid")
    assert answer.causes == {("FieldValueForbidden", "resourceVersionMatch")}


def test_a_version_that_is_no_number_is_a_bad_request(five: Namespace) -> None:
    answer = five.api.get(five.path("configmaps"), resourceVersion="yesterday")

    assert (answer.status, answer.reason) == (400, "BadRequest")


def test_a_version_from_the_future_times_out(five: Namespace) -> None:
    answer = five.api.get(five.path("configmaps"), resourceVersion="999999999999")

    assert (answer.status, answer.reason) == (504, "Timeout")
    assert "Too large resource version" in answer.message
    assert answer.causes == {("ResourceVersionTooLarge", "")}


TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def test_a_table_has_columns_and_rows(five: Namespace) -> None:
    answer = five.api.send("GET", five.path("configmaps"), accept=TABLE).body

    assert answer["kind"] == "Table"
    assert answer["apiVersion"] == "meta.k8s.io/v1"
    assert [column["name"] for column in answer["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert [row["cells"][0] for row in answer["rows"]] == ["m0", "m1", "m2", "m3", "m4"]
    assert answer["rows"][0]["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("/api/v1/nodes", ["Name", "Status", "Roles", "Age", "Version", "Internal-IP"]),
        ("/api/v1/services", ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age"]),
        ("/api/v1/namespaces", ["Name", "Status", "Age"]),
        ("/api/v1/events", ["Last Seen", "Type", "Reason", "Object", "Subobject", "Source"]),
        ("/api/v1/pods", ["Name", "Ready", "Status", "Restarts", "Age", "IP"]),
        ("/apis/coordination.k8s.io/v1/leases", ["Name", "Holder", "Age"]),
        ("/api/v1/secrets", ["Name", "Type", "Data", "Age"]),
        ("/api/v1/serviceaccounts", ["Name", "Age"]),
    ],
)
def test_tables_have_the_usual_columns(api: Api, path: str, columns: list[str]) -> None:
    answer = api.send("GET", path, accept=TABLE).body

    assert [c["name"] for c in answer["columnDefinitions"]][: len(columns)] == columns


def test_metadata_alone_can_be_asked_for(five: Namespace) -> None:
    answer = five.api.send("GET", five.path("configmaps"), accept=PARTIAL).body

    assert answer["kind"] == "PartialObjectMetadataList"
    assert set(answer["items"][0]) <= {"kind", "apiVersion", "metadata"}

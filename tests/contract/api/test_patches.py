"""The three kinds of patch."""

from typing import Any

import pytest

from tests.contract.api.http import APPLY, JSON_PATCH, MERGE, STRATEGIC, Api, Namespace

Object = dict[str, Any]


@pytest.fixture
def node(api: Api, fresh: str) -> Any:
    taints = [
        {"key": "a", "value": "1", "effect": "NoSchedule"},
        {"key": "b", "effect": "NoExecute"},
    ]
    made = api.post(
        "/api/v1/nodes",
        {"metadata": {"name": fresh, "labels": {"x": "1", "y": "2"}}, "spec": {"taints": taints}},
    )
    assert made.status == 201, made
    yield made.body
    api.delete(f"/api/v1/nodes/{fresh}")


def path_of(node: Object, subresource: str = "") -> str:
    return f"/api/v1/nodes/{node['metadata']['name']}{subresource}"


def taints_of(node: Object) -> list[tuple[str, str]]:
    """The taints but for the one that admission adds to every new node."""
    taints = node["spec"].get("taints", [])
    return [(t["key"], t["effect"]) for t in taints if t["key"] != "node.kubernetes.io/not-ready"]


class TestMerge:
    def test_null_removes_and_values_are_set(self, api: Api, node: Object) -> None:
        patch = {"metadata": {"labels": {"x": None, "z": "3"}}}

        answer = api.patch(path_of(node), patch, MERGE)

        assert answer.status == 200
        assert answer.body["metadata"]["labels"] == {"y": "2", "z": "3"}

    def test_lists_are_replaced_whole(self, api: Api, node: Object) -> None:
        patch = {"spec": {"taints": [{"key": "c", "effect": "NoSchedule"}]}}

        answer = api.patch(path_of(node), patch, MERGE)

        assert answer.body["spec"]["taints"] == [{"key": "c", "effect": "NoSchedule"}]

    def test_no_difference_changes_no_version(self, api: Api, node: Object) -> None:
        answer = api.patch(path_of(node), {"metadata": {"labels": {"x": "1"}}}, MERGE)

        assert answer.status == 200
        assert answer.body["metadata"]["resourceVersion"] == node["metadata"]["resourceVersion"]

    def test_a_stale_version_in_the_patch_conflicts(self, api: Api, node: Object) -> None:
        api.patch(path_of(node), {"metadata": {"labels": {"x": "9"}}}, MERGE)
        version = node["metadata"]["resourceVersion"]

        answer = api.patch(
            path_of(node), {"metadata": {"resourceVersion": version, "labels": {"x": "8"}}}, MERGE
        )

        assert (answer.status, answer.reason) == (409, "Conflict")

    def test_the_uid_cannot_be_changed(self, api: Api, node: Object) -> None:
        answer = api.patch(path_of(node), {"metadata": {"uid": "another"}}, MERGE)

        assert (answer.status, answer.reason) == (422, "Invalid")
        assert answer.causes == {("FieldValueInvalid", "metadata.uid")}

    def test_the_name_cannot_be_changed(self, api: Api, node: Object) -> None:
        answer = api.patch(path_of(node), {"metadata": {"name": "other"}}, MERGE)

        assert (answer.status, answer.reason) == (400, "BadRequest")

    @pytest.mark.parametrize("body", [b"[]", b"{", b'"x"'])
    def test_a_patch_must_be_an_object(self, api: Api, node: Object, body: bytes) -> None:
        answer = api.patch(path_of(node), body, MERGE)

        assert (answer.status, answer.reason) == (400, "BadRequest")

    def test_what_it_makes_must_be_valid(self, api: Api, node: Object) -> None:
        answer = api.patch(path_of(node), {"metadata": {"labels": {"x": "not good"}}}, MERGE)

        assert (answer.status, answer.reason) == (422, "Invalid")

    def test_a_wrong_type_is_refused(self, api: Api, node: Object) -> None:
        answer = api.patch(path_of(node), {"spec": {"unschedulable": "yes"}}, MERGE)

        assert answer.status in {400, 422}
        assert api.get(path_of(node)).body["spec"].get("unschedulable") is None

    def test_patching_what_is_not_there_is_not_found(self, api: Api) -> None:
        assert api.patch("/api/v1/nodes/none", {"metadata": {}}, MERGE).status == 404


class TestStrategicMerge:
    def test_taints_have_no_key_and_are_replaced_whole(self, api: Api, node: Object) -> None:
        patch = {"spec": {"taints": [{"key": "c", "effect": "NoSchedule"}]}}

        answer = api.patch(path_of(node), patch, STRATEGIC)

        assert answer.body["spec"]["taints"] == [{"key": "c", "effect": "NoSchedule"}]

    def test_an_element_is_deleted_by_directive(self, api: Api, node: Object) -> None:
        conditions = [{"type": "Ready", "status": "True"}, {"type": "Other", "status": "True"}]
        path = path_of(node, "/status")
        api.patch(path, {"status": {"conditions": conditions}}, STRATEGIC)

        answer = api.patch(
            path, {"status": {"conditions": [{"$patch": "delete", "type": "Ready"}]}}, STRATEGIC
        )

        assert [c["type"] for c in answer.body["status"]["conditions"]] == ["Other"]

    def test_a_map_is_replaced_by_directive(self, api: Api, node: Object) -> None:
        patch = {"metadata": {"labels": {"$patch": "replace", "only": "this"}}}

        answer = api.patch(path_of(node), patch, STRATEGIC)

        assert answer.body["metadata"]["labels"] == {"only": "this"}

    def test_the_order_of_elements_can_be_set(self, api: Api, node: Object) -> None:
        path = path_of(node, "/status")
        conditions = [{"type": kind, "status": "True"} for kind in ("A", "B")]
        api.patch(path, {"status": {"conditions": conditions}}, STRATEGIC)
        patch = {
            "status": {
                "$setElementOrder/conditions": [{"type": "B"}, {"type": "N"}, {"type": "A"}],
                "conditions": [{"type": "N", "status": "True"}],
            }
        }

        answer = api.patch(path, patch, STRATEGIC)

        assert [c["type"] for c in answer.body["status"]["conditions"]] == ["B", "N", "A"]

    def test_addresses_are_merged_by_type(self, api: Api, node: Object) -> None:
        first = [{"type": "InternalIP", "address": "10.0.0.1"}]
        second = [
            {"type": "InternalIP", "address": "10.0.0.2"},
            {"type": "Hostname", "address": "h"},
        ]
        api.patch(path_of(node, "/status"), {"status": {"addresses": first}}, STRATEGIC)

        answer = api.patch(path_of(node, "/status"), {"status": {"addresses": second}}, STRATEGIC)

        addresses = {a["type"]: a["address"] for a in answer.body["status"]["addresses"]}
        assert addresses == {"InternalIP": "10.0.0.2", "Hostname": "h"}

    def test_addresses_are_replaced_by_directive(self, api: Api, node: Object) -> None:
        two = [
            {"type": "InternalIP", "address": "10.0.0.1"},
            {"type": "InternalIP", "address": "fd00::1"},
        ]
        api.patch(path_of(node, "/status"), {"status": {"addresses": two}}, MERGE)
        patch = {"status": {"addresses": [*two[::-1], {"$patch": "replace"}]}}

        answer = api.patch(path_of(node, "/status"), patch, STRATEGIC)

        assert answer.body["status"]["addresses"] == two[::-1]

    def test_conditions_are_merged_by_type(self, api: Api, node: Object) -> None:
        for kind, status in (("Ready", "True"), ("NetworkUnavailable", "True"), ("Ready", "False")):
            condition = {"type": kind, "status": status}
            api.patch(path_of(node, "/status"), {"status": {"conditions": [condition]}}, STRATEGIC)

        conditions = api.get(path_of(node)).body["status"]["conditions"]
        assert {c["type"]: c["status"] for c in conditions} == {
            "Ready": "False",
            "NetworkUnavailable": "True",
        }

    def test_finalizers_are_added_and_taken_singly(self, namespace: Namespace) -> None:
        namespace.config_map(metadata={"finalizers": ["a.b/one"]})
        path = namespace.path("configmaps", "one")

        added = namespace.api.patch(path, {"metadata": {"finalizers": ["a.b/two"]}}, STRATEGIC)
        taken = namespace.api.patch(
            path, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.b/one"]}}, STRATEGIC
        )

        assert sorted(added.body["metadata"]["finalizers"]) == ["a.b/one", "a.b/two"]
        assert taken.body["metadata"]["finalizers"] == ["a.b/two"]
        namespace.api.patch(path, {"metadata": {"finalizers": None}}, MERGE)

    def test_finalizers_as_the_go_manager_sends_them(self, namespace: Namespace) -> None:
        namespace.config_map(metadata={"finalizers": ["a.b/one"]})
        path = namespace.path("configmaps", "one")
        patch = {
            "metadata": {
                "$setElementOrder/finalizers": ["a.b/one", "a.b/two"],
                "finalizers": ["a.b/two"],
            }
        }

        answer = namespace.api.patch(path, patch, STRATEGIC)

        assert answer.body["metadata"]["finalizers"] == ["a.b/one", "a.b/two"]
        namespace.api.patch(path, {"metadata": {"finalizers": None}}, MERGE)

    def test_service_ports_are_merged_by_port(self, namespace: Namespace) -> None:
        ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
        body = {"metadata": {"name": "web"}, "spec": {"ports": ports}}
        namespace.api.post(namespace.path("services"), body)

        answer = namespace.api.patch(
            namespace.path("services", "web"),
            {"spec": {"ports": [{"port": 80, "name": "renamed"}]}},
            STRATEGIC,
        )

        assert {p["port"]: p["name"] for p in answer.body["spec"]["ports"]} == {
            80: "renamed",
            81: "b",
        }

    def test_an_element_without_its_key_is_refused(self, api: Api, node: Object) -> None:
        path = path_of(node, "/status")
        condition = {"type": "Ready", "status": "True"}
        api.patch(path, {"status": {"conditions": [condition]}}, STRATEGIC)

        answer = api.patch(path, {"status": {"conditions": [{"status": "True"}]}}, STRATEGIC)

        assert answer.status == 500
        assert "does not contain declared merge key: type" in answer.message

    def test_an_unknown_directive_is_refused(self, api: Api, node: Object) -> None:
        answer = api.patch(path_of(node), {"metadata": {"$patch": "explode"}}, STRATEGIC)

        assert answer.status in {400, 422, 500}


class TestJsonPatch:
    @pytest.mark.parametrize(
        ("operations", "labels"),
        [
            (
                [{"op": "add", "path": "/metadata/labels/z", "value": "3"}],
                {"x": "1", "y": "2", "z": "3"},
            ),
            ([{"op": "replace", "path": "/metadata/labels/x", "value": "9"}], {"x": "9", "y": "2"}),
            ([{"op": "remove", "path": "/metadata/labels/x"}], {"y": "2"}),
            (
                [{"op": "move", "from": "/metadata/labels/x", "path": "/metadata/labels/w"}],
                {"w": "1", "y": "2"},
            ),
            (
                [{"op": "copy", "from": "/metadata/labels/x", "path": "/metadata/labels/w"}],
                {"x": "1", "y": "2", "w": "1"},
            ),
            (
                [{"op": "add", "path": "/metadata/labels/a.b~1c", "value": "1"}],
                {"x": "1", "y": "2", "a.b/c": "1"},
            ),
            (
                [
                    {"op": "test", "path": "/metadata/labels/x", "value": "1"},
                    {"op": "remove", "path": "/metadata/labels/y"},
                ],
                {"x": "1"},
            ),
        ],
    )
    def test_operations(
        self, api: Api, node: Object, operations: list[Object], labels: dict[str, str]
    ) -> None:
        answer = api.patch(path_of(node), operations, JSON_PATCH)

        assert answer.status == 200
        assert answer.body["metadata"]["labels"] == labels

    def test_an_element_of_a_list_is_removed_by_position(self, api: Api, node: Object) -> None:
        position = next(i for i, t in enumerate(node["spec"]["taints"]) if t["key"] == "a")

        answer = api.patch(
            path_of(node), [{"op": "remove", "path": f"/spec/taints/{position}"}], JSON_PATCH
        )

        assert taints_of(answer.body) == [("b", "NoExecute")]

    def test_an_element_is_added_at_the_end(self, api: Api, node: Object) -> None:
        taint = {"key": "z", "effect": "NoSchedule"}

        answer = api.patch(
            path_of(node), [{"op": "add", "path": "/spec/taints/-", "value": taint}], JSON_PATCH
        )

        assert answer.body["spec"]["taints"][-1] == taint

    @pytest.mark.parametrize(
        "operations",
        [
            pytest.param(
                [{"op": "test", "path": "/metadata/labels/x", "value": "other"}], id="test-fails"
            ),
            pytest.param([{"op": "remove", "path": "/metadata/labels/none"}], id="nothing-there"),
        ],
    )
    def test_what_cannot_be_done_is_invalid(
        self, api: Api, node: Object, operations: list[Object]
    ) -> None:
        answer = api.patch(path_of(node), operations, JSON_PATCH)

        assert (answer.status, answer.reason) == (422, "Invalid")
        assert api.get(path_of(node)).body == node

    @pytest.mark.parametrize("body", [b"{}", b"[", b"5"])
    def test_a_patch_must_be_a_list(self, api: Api, node: Object, body: bytes) -> None:
        answer = api.patch(path_of(node), body, JSON_PATCH)

        assert (answer.status, answer.reason) == (400, "BadRequest")

    def test_a_failed_step_leaves_nothing_done(self, api: Api, node: Object) -> None:
        steps = [
            {"op": "add", "path": "/metadata/labels/z", "value": "3"},
            {"op": "test", "path": "/metadata/labels/x", "value": "other"},
        ]

        api.patch(path_of(node), steps, JSON_PATCH)

        assert "z" not in api.get(path_of(node)).body["metadata"]["labels"]


class TestLimitsOfJsonPatches:
    BIG = 200 * 1024
    """Characters of a value; 15 copies stay below 3 MiB, 16 do not."""

    @pytest.fixture
    def path(self, namespace: Namespace) -> str:
        namespace.config_map("big", data={"a": "x" * self.BIG})
        return namespace.path("configmaps", "big")

    def test_copies_of_copies_do_not_exhaust_memory(self, api: Api, namespace: Namespace) -> None:
        namespace.config_map("small", data={"a": "x" * 1024})
        path = namespace.path("configmaps", "small")
        copies = [{"op": "copy", "from": "/data", "path": f"/data/c{step}"} for step in range(25)]

        answer = api.patch(path, copies, JSON_PATCH)

        assert (answer.status, answer.reason) == (422, "Invalid")
        assert answer.message == "the server rejected our request due to an error in our request"
        assert api.get(path).body["data"] == {"a": "x" * 1024}

    @pytest.mark.parametrize(("times", "status"), [(15, 200), (16, 422)])
    def test_copied_bytes_are_limited_although_the_result_is_small(
        self, api: Api, path: str, times: int, status: int
    ) -> None:
        step = [
            {"op": "copy", "from": "/data/a", "path": "/data/b"},
            {"op": "remove", "path": "/data/b"},
        ]

        assert api.patch(path, step * times, JSON_PATCH).status == status

    @pytest.mark.parametrize(
        ("count", "status", "reason"), [(10_000, 200, ""), (10_001, 413, "RequestEntityTooLarge")]
    )
    def test_operations_are_limited(
        self, api: Api, node: Object, count: int, status: int, reason: str
    ) -> None:
        steps = [{"op": "test", "path": "/metadata/labels/x", "value": "1"}] * count

        answer = api.patch(path_of(node), steps, JSON_PATCH)

        assert (answer.status, answer.reason) == (status, reason)


def test_an_unknown_patch_type_is_unsupported(api: Api, node: Object) -> None:
    answer = api.patch(path_of(node), {}, "application/json")

    assert (answer.status, answer.reason) == (415, "UnsupportedMediaType")


def test_apply_needs_a_field_manager(api: Api, node: Object) -> None:
    answer = api.patch(path_of(node), {"metadata": {}}, APPLY)

    assert answer.status in {400, 415, 422}

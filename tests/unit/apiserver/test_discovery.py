"""What kubectl asks for before and around its work: discovery, OpenAPI, tables."""

from datetime import UTC, datetime, timedelta

import pytest

from pileus_lab.apiserver.discovery import AGGREGATED
from pileus_lab.apiserver.representation import age
from tests.unit.apiserver.caller import DEFAULT, NODES, SERVICES, caller, node, service

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def test_resources_are_described_as_the_real_server_does():
    call = caller()

    listed = {r["name"]: r for r in call.get("/api/v1")["resources"]}

    assert listed["nodes"] == {
        "name": "nodes",
        "singularName": "node",
        "namespaced": False,
        "kind": "Node",
        "verbs": [
            "create",
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "update",
            "watch",
        ],
        "shortNames": ["no"],
    }
    assert listed["pods/eviction"]["group"] == "policy"
    assert "deletecollection" not in listed["namespaces"]["verbs"]


def test_discovery_comes_in_one_piece_to_those_who_ask():
    answer = caller()("GET", "/apis", accept=f"{AGGREGATED},application/json")

    groups = {item["metadata"]["name"]: item for item in answer.body["items"]}
    leases = groups["coordination.k8s.io"]["versions"][0]["resources"][0]
    assert answer.response.content_type == AGGREGATED
    assert (leases["resource"], leases["scope"]) == ("leases", "Namespaced")


def test_every_discovered_group_can_be_asked_for_its_resources_and_document():
    call = caller()

    for group in call.get("/apis")["groups"]:
        version = group["preferredVersion"]["groupVersion"]
        assert call.get(f"/apis/{group['name']}")["name"] == group["name"]
        assert call.get(f"/apis/{version}")["resources"]
        assert call.get(f"/openapi/v3/apis/{version}")["paths"]
    assert call("GET", "/apis/nope").status == 404


def test_openapi_has_what_kubectl_needs():
    document = caller().get("/openapi/v3/api/v1")

    patch = document["paths"]["/api/v1/namespaces/{namespace}/services/{name}"]["patch"]
    schemas = document["components"]["schemas"]
    ports = schemas["io.k8s.api.core.v1.ServiceSpec"]["properties"]["ports"]
    assert "fieldValidation" in [p["name"] for p in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Service"
    assert ports["x-kubernetes-patch-merge-key"] == "port"
    assert ports["x-kubernetes-patch-strategy"] == "merge"


def test_a_table_has_the_usual_columns():
    call = caller()
    call.create(NODES, node("n", unschedulable=True))
    call.create(SERVICES, service("s", type="LoadBalancer"))
    call.clock.advance(90)

    nodes = call("GET", NODES, accept=TABLE).body
    services = call("GET", SERVICES, accept=TABLE, fieldSelector="metadata.name=s").body

    shown = [c["name"] for c in nodes["columnDefinitions"] if c["priority"] == 0]
    assert shown == ["Name", "Status", "Roles", "Age", "Version"]
    assert nodes["rows"][0]["cells"][:4] == ["n", "Unknown,SchedulingDisabled", "<none>", "90s"]
    assert nodes["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert services["rows"][0]["cells"][3] == "<pending>"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-5, "<invalid>"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (310, "5m10s"),
        (700, "11m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 60, "5h1m"),
        (30 * 3600, "30h"),
        (3 * 86400 + 3600, "3d1h"),
        (100 * 86400, "100d"),
        (800 * 86400, "2y70d"),
        (4000 * 86400, "10y"),
    ],
)
def test_ages_are_short(seconds: int, shown: str):
    now = datetime(2030, 1, 1, tzinfo=UTC)

    assert age((now - timedelta(seconds=seconds)).isoformat(), now) == shown


def test_a_pod_has_no_logs_and_says_why():
    call = caller()
    spec = {"containers": [{"name": "c", "image": "i"}]}
    call.create(f"{DEFAULT}/pods", {"metadata": {"name": "p"}, "spec": spec})

    answer = call("GET", f"{DEFAULT}/pods/p/log")

    assert answer.status == 400
    assert "runs no containers" in answer.message

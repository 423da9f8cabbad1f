"""Nodes on a real control plane: from registration to ready for pods."""

import json

import pytest

from pileus.testing.control_plane import ControlPlane
from tests.real.manager import (
    Lab,
    events,
    eventually,
    is_initialized,
    is_told,
    node,
    register,
    running,
)

THOUSAND = 1000
ALONE = "--controllers=cloud-node-controller"
"""Nodes without kubelets are never ready, so that others would ask the cloud about them too."""


def test_a_tainted_node_is_initialized(clean: ControlPlane, lab: Lab) -> None:
    register(clean, "one")

    with running(clean, lab):
        eventually("initialized", lambda: is_initialized(clean, "one"))
        eventually("told", lambda: is_told(clean, "Synced"))

    seen = node(clean, "one")
    assert seen["spec"]["providerID"] == "lab://one"
    assert seen["status"]["addresses"][0]["type"] == "InternalIP"
    labels = seen["metadata"]["labels"]
    assert labels["kubernetes.io/hostname"] == "one"
    assert labels["lab.example.com/rack"] == "r7"
    for key, value in {
        "topology.kubernetes.io/zone": "zone-a",
        "failure-domain.beta.kubernetes.io/zone": "zone-a",
        "topology.kubernetes.io/region": "region-1",
        "failure-domain.beta.kubernetes.io/region": "region-1",
        "node.kubernetes.io/instance-type": "small",
        "beta.kubernetes.io/instance-type": "small",
    }.items():
        assert labels[key] == value
    event = json.loads(
        clean.kubectl("get", "events", "--field-selector=reason=Synced", "--output=json")
    )["items"][0]
    assert event["message"] == "Node synced successfully"
    assert event["source"]["component"] == "cloud-node-controller"
    assert event["involvedObject"]["name"] == "one"


def test_a_node_that_the_cloud_does_not_know_says_why_it_waits(
    clean: ControlPlane, lab: Lab
) -> None:
    lab.set(refuses="the cloud is on holiday")
    register(clean, "stuck")

    with running(clean, lab):
        eventually("a warning", lambda: "on holiday" in str(events(clean)))
        eventually(
            "a condition",
            lambda: "on holiday" in json.dumps(node(clean, "stuck")["status"]["conditions"]),
        )
        lab.set()
        eventually("initialized", lambda: is_initialized(clean, "stuck"))

    assert "on holiday" not in json.dumps(node(clean, "stuck")["status"].get("conditions", []))


@pytest.mark.long
def test_a_thousand_nodes_cost_a_few_look_ups_and_two_writes_each(
    clean: ControlPlane, lab: Lab
) -> None:
    lab.set(latency=0.05)
    register(clean, *(f"node-{number:04}" for number in range(THOUSAND)))

    with running(clean, lab, ALONE) as manager:
        done = "node_controller_initial_node_sync_delay_seconds_count"
        eventually("all initialized", lambda: manager.metric(done) == THOUSAND, limit=240)

        assert manager.metric("pileus_cloud_calls_total", method="find") <= 20
        assert manager.metric("rest_client_requests_total", method="PATCH") <= 2 * THOUSAND
        assert manager.metric("rest_client_requests_total", method="PUT", code="409") == 0
    assert len(lab.calls) <= 20

    with running(clean, lab, ALONE) as manager:
        looked = "pileus_cloud_call_items_total"
        eventually("looked at all", lambda: manager.metric(looked) >= THOUSAND, limit=60)
        assert manager.metric("rest_client_requests_total", method="PATCH") == 0


def test_labels_follow_the_cloud_when_asked_to(clean: ControlPlane, lab: Lab) -> None:
    register(clean, "grows")
    label = "node.kubernetes.io/instance-type"

    with running(clean, lab, "--node-label-sync", "--node-status-update-frequency=1s"):
        eventually("initialized", lambda: is_initialized(clean, "grows"))
        lab.set(type="large")
        eventually("resized", lambda: node(clean, "grows")["metadata"]["labels"][label] == "large")

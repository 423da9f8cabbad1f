"""Names that dashboards, alerts and other controllers depend on are those of the Go framework."""

import re
from pathlib import Path

import pytest
from tools import metrics_reference

ROOT = Path(__file__).resolve().parents[2]
NAMES = {
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "node.kubernetes.io/exclude-from-external-load-balancers",
    "node.cloudprovider.kubernetes.io/uninitialized",
    "node.cloudprovider.kubernetes.io/shutdown",
    "ToBeDeletedByClusterAutoscaler",
    "alpha.kubernetes.io/provided-node-ip",
    "service.beta.kubernetes.io/load-balancer-source-ranges",
    "service.kubernetes.io/load-balancer-cleanup",
    "NetworkUnavailable",
}
METRICS = [
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    "node_controller_initial_node_sync_delay_seconds",
    "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
    "cloud_node_lifecycle_controller_cloud_provider_calls_total",
    "service_controller_loadbalancer_sync_total",
    "service_controller_nodesync_error_total",
    "service_controller_nodesync_latency_seconds",
    "service_controller_update_loadbalancer_host_latency_seconds",
    "route_controller_route_sync_total",
    "running_managed_controllers",
    "leader_election_master_status",
    "leader_election_slowpath_total",
    "workqueue_depth",
    "workqueue_adds_total",
    "workqueue_queue_duration_seconds",
    "workqueue_work_duration_seconds",
    "workqueue_unfinished_work_seconds",
    "workqueue_longest_running_processor_seconds",
    "workqueue_retries_total",
    "rest_client_requests_total",
    "rest_client_request_duration_seconds",
    "rest_client_rate_limiter_duration_seconds",
    "rest_client_request_size_bytes",
    "rest_client_response_size_bytes",
    "node_ipam_controller_cidrset_cidrs_allocations_total",
    "node_ipam_controller_cidrset_cidrs_releases_total",
    "node_ipam_controller_cidrset_usage_cidrs",
    "node_ipam_controller_cirdset_max_cidrs",
    "node_ipam_controller_cidrset_allocation_tries_per_request",
    "kubernetes_build_info",
    "kubernetes_healthcheck",
    "kubernetes_healthchecks_total",
]
EVENTS = [
    ("Node", "Normal", "Synced", "Node synced successfully", "cloud-node-controller"),
    ("Node", "Normal", "DeletingNode", "Deleting node X", "cloud-node-lifecycle-controller"),
    ("Node", "Warning", "DeletingNodeFailed", "Failed deleting", "cloud-node-lifecycle-controller"),
    ("Node", "Warning", "FailedToCreateRoute", "Could not create route", "route_controller"),
    ("Node", "Normal", "CIDRNotAvailable", "Node … status is now:", "cidrAllocator"),
    ("Node", "Normal", "CIDRAssignmentFailed", "Node … status is now:", "cidrAllocator"),
    ("Lease", "Normal", "LeaderElection", "… became leader", "cloud-controller-manager"),
]
SERVICE_EVENTS = {
    "EnsuringLoadBalancer": "Normal",
    "EnsuredLoadBalancer": "Normal",
    "DeletingLoadBalancer": "Normal",
    "DeletedLoadBalancer": "Normal",
    "UpdatedLoadBalancer": "Normal",
    "UnAvailableLoadBalancer": "Warning",
    "SyncLoadBalancerFailed": "Warning",
    "UpdateLoadBalancerFailed": "Warning",
    "DeleteLoadBalancerFailed": "Warning",
}


def rows(page: str) -> list[list[str]]:
    text = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("name", sorted(NAMES))
def test_labels_taints_annotations_and_conditions_are_those_of_the_go_framework(name: str):
    places = (ROOT / "src" / "pileus" / each for each in ("controllers", "objects", "cloud"))
    quoted = re.compile(rf'"{re.escape(name)}"')

    assert any(quoted.search(path.read_text()) for each in places for path in each.rglob("*.py"))


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_of_the_go_framework_is_served(name: str):
    page = metrics_reference.PAGE.read_text(encoding="utf-8")

    assert f"`{name}`" in page


@pytest.mark.parametrize(("about", "kind", "reason", "message", "source"), EVENTS)
def test_events_are_those_of_the_go_framework(
    about: str, kind: str, reason: str, message: str, source: str
):
    found = [row for row in rows("events.md") if f"`{reason}`" in row[2]]

    assert len(found) == 1
    row = found[0]
    assert (row[0], row[1], row[4]) == (about, kind, source)
    assert row[3].startswith(message)


@pytest.mark.parametrize(("reason", "kind"), SERVICE_EVENTS.items())
def test_events_on_services_are_those_of_the_go_framework(reason: str, kind: str):
    found = [row for row in rows("services.md") if any(f"`{reason}`" in cell for cell in row)]

    assert found
    assert all(kind in row for row in found)

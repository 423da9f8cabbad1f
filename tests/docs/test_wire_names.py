"""Names that dashboards, alerts and other controllers depend on are those of the Go framework.

They are written here as the specification of the framework has them, never taken from our code.
Events, labels, taints, finalizer and condition: tests/unit/app/test_names_on_the_wire.py.
"""

import re
from functools import cache
from pathlib import Path

import msgspec
import pytest
from tools import metrics_reference

from pileus.classic.service_records import needs_ensure
from pileus.kube.model.core_v1 import Service
from pileus.server.build import this_build
from pileus.server.metrics import prometheus_text
from pileus.server.process_metrics import add_process_metrics
from pileus.settings.feature_gates import KNOWN, Gates
from pileus.telemetry.instruments import Counter, Gauge, Histogram, Labelled, MetricRegistry
from pileus.telemetry.metrics import Metrics
from tests.unit.app.test_names_on_the_wire import NODE as NODE_EVENTS
from tests.unit.app.test_names_on_the_wire import SERVICE as SERVICE_EVENTS

ROOT = Path(__file__).resolve().parents[2]
AGES = "1 4 16 64 256 1024"
SECONDS = "1 2 4 8 16 32 64 128 256 512 1024 2048 4096 8192 16384"
THOUSANDTHS = (
    "0.001 0.002 0.004 0.008 0.016 0.032 0.064 0.128 0.256 0.512 1.024 2.048 4.096 8.192 16.384"
)
QUEUED = "1e-08 1e-07 1e-06 9.999999999999999e-06 9.999999999999999e-05 0.001 0.01 0.1 1 10"
REQUESTS = "0.005 0.025 0.1 0.25 0.5 1 2 4 8 15 30 60"
SIZES = "64 256 512 1024 4096 16384 65536 262144 1.048576e+06 4.194304e+06 1.6777216e+07"
REVIEWS = "0.25 0.5 0.7 1 1.5 3 5 10"
EXPIRY = (
    "0 1800 3600 7200 21600 43200 86400 172800 345600 604800 2.592e+06 7.776e+06 1.5552e+07 "
    "3.1104e+07"
)
METRICS = [
    ("node_controller_cloud_provider_taint_removal_delay_seconds", "histogram", "", AGES),
    ("node_controller_initial_node_sync_delay_seconds", "histogram", "", AGES),
    (
        "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
        "histogram",
        "",
        THOUSANDTHS,
    ),
    (
        "cloud_node_lifecycle_controller_cloud_provider_calls_total",
        "counter",
        "operation result",
        "",
    ),
    ("service_controller_loadbalancer_sync_total", "counter", "", ""),
    ("service_controller_nodesync_error_total", "counter", "", ""),
    ("service_controller_nodesync_latency_seconds", "histogram", "", SECONDS),
    (
        "service_controller_update_loadbalancer_host_latency_seconds",
        "histogram",
        "",
        SECONDS,
    ),
    ("route_controller_route_sync_total", "counter", "outcome trigger", ""),
    ("running_managed_controllers", "gauge", "manager name", ""),
    ("leader_election_master_status", "gauge", "name", ""),
    ("leader_election_slowpath_total", "counter", "name", ""),
    ("workqueue_depth", "gauge", "name", ""),
    ("workqueue_adds_total", "counter", "name", ""),
    ("workqueue_queue_duration_seconds", "histogram", "name", QUEUED),
    ("workqueue_work_duration_seconds", "histogram", "name", QUEUED),
    ("workqueue_unfinished_work_seconds", "gauge", "name", ""),
    ("workqueue_longest_running_processor_seconds", "gauge", "name", ""),
    ("workqueue_retries_total", "counter", "name", ""),
    ("rest_client_requests_total", "counter", "code host method", ""),
    ("rest_client_request_duration_seconds", "histogram", "host verb", REQUESTS),
    ("rest_client_rate_limiter_duration_seconds", "histogram", "host verb", REQUESTS),
    ("rest_client_request_size_bytes", "histogram", "host verb", SIZES),
    ("rest_client_response_size_bytes", "histogram", "host verb", SIZES),
    ("cloud_provider_webhook_request_total", "counter", "code webhook", ""),
    ("cloud_provider_webhook_request_duration_seconds", "histogram", "code webhook", REVIEWS),
    ("node_ipam_controller_cidrset_cidrs_allocations_total", "counter", "clusterCIDR", ""),
    ("node_ipam_controller_cidrset_cidrs_releases_total", "counter", "clusterCIDR", ""),
    ("node_ipam_controller_cidrset_usage_cidrs", "gauge", "clusterCIDR", ""),
    ("node_ipam_controller_cirdset_max_cidrs", "gauge", "clusterCIDR", ""),
    (
        "node_ipam_controller_cidrset_allocation_tries_per_request",
        "histogram",
        "clusterCIDR",
        "1 5 25 125 625",
    ),
    ("authentication_attempts", "counter", "result", ""),
    ("authentication_duration_seconds", "histogram", "result", THOUSANDTHS),
    ("authenticated_user_requests", "counter", "username", ""),
    ("authorization_attempts_total", "counter", "result", ""),
    ("authorization_duration_seconds", "histogram", "result", THOUSANDTHS),
    ("apiserver_delegated_authz_request_total", "counter", "code", ""),
    ("apiserver_delegated_authz_request_duration_seconds", "histogram", "code", REVIEWS),
    ("apiserver_client_certificate_expiration_seconds", "histogram", "", EXPIRY),
    ("registered_metrics_total", "counter", "deprecated_version stability_level", ""),
    ("hidden_metrics_total", "counter", "", ""),
    ("disabled_metrics_total", "counter", "", ""),
    ("cardinality_enforcement_unexpected_categorizations_total", "counter", "", ""),
    ("process_cpu_seconds_total", "counter", "", ""),
    ("process_open_fds", "gauge", "", ""),
    ("process_max_fds", "gauge", "", ""),
    ("process_virtual_memory_bytes", "gauge", "", ""),
    ("process_virtual_memory_max_bytes", "gauge", "", ""),
    ("process_resident_memory_bytes", "gauge", "", ""),
    ("process_start_time_seconds", "gauge", "", ""),
    ("process_network_receive_bytes_total", "counter", "", ""),
    ("process_network_transmit_bytes_total", "counter", "", ""),
]
"""Name, type, labels in the order of the text format, and bounds as Go spells them."""
OTHER_METRICS = ["kubernetes_build_info", "kubernetes_healthcheck", "kubernetes_healthchecks_total"]
NOT_SERVED = [
    "go_",
    "rest_client_exec_plugin_",
    "rest_client_transport_",
    "rest_client_dns_resolution_duration_seconds",
    "rest_client_request_retries_total",
]
BETA = {
    "running_managed_controllers",
    "registered_metrics_total",
    "hidden_metrics_total",
    "disabled_metrics_total",
}
GATES = {
    "CloudControllerManagerWebhook": False,
    "ControllerManagerReleaseLeaderElectionLockOnExit": False,
    "LoggingAlphaOptions": False,
    "LoggingBetaOptions": True,
    "ContextualLogging": True,
}
"""Defaults. That of `CloudControllerManagerWatchBasedRoutesReconciliation` differs, as stated."""
SERVICE_FIELDS: dict[str, object] = {
    "type": "ClusterIP",
    "loadBalancerClass": "example.com/other",
    "loadBalancerSourceRanges": ["192.0.2.0/24"],
    "ports": [{"port": 81}],
    "sessionAffinity": "ClientIP",
    "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
    "loadBalancerIP": "192.0.2.1",
    "externalIPs": ["192.0.2.2"],
    "externalTrafficPolicy": "Local",
    "healthCheckNodePort": 31000,
    "ipFamilies": ["IPv4", "IPv6"],
}
"""Fields of a Service whose change makes the Go framework ensure the load balancer again."""
PORT_FIELDS: dict[str, object] = {
    "name": "web",
    "protocol": "UDP",
    "port": 81,
    "nodePort": 30001,
    "targetPort": 8080,
    "appProtocol": "http",
}
OTHER_FIELDS: dict[str, object] = {
    "selector": {"app": "web"},
    "clusterIPs": ["10.0.0.1"],
    "internalTrafficPolicy": "Local",
    "allocateLoadBalancerNodePorts": False,
    "trafficDistribution": "PreferClose",
}
"""Fields whose change means nothing to it."""


@cache
def scraped() -> str:
    """All metrics of a process, with one value each."""
    metrics = Metrics(MetricRegistry())
    add_process_metrics(metrics.registry, this_build())
    for each in vars(metrics).values():
        member = each.labels(*each.family.labels) if isinstance(each, Labelled) else each
        match member:
            case Counter() | Gauge():
                member.inc()
            case Histogram():
                member.observe(1)
            case _:
                pass
    return prometheus_text(metrics.registry).decode()


@pytest.mark.parametrize(("name", "kind", "labels", "bounds"), METRICS, ids=lambda each: each[:60])
def test_every_metric_of_the_go_framework_is_served(name: str, kind: str, labels: str, bounds: str):
    text = scraped()

    assert f"# TYPE {name} {kind}\n" in text
    series = f"{name}_count" if kind == "histogram" else name
    (found,) = {
        " ".join(re.findall(r'(\w+)="', shown))
        for shown in re.findall(rf"^{series}(?:{{(.*)}})? ", text, re.MULTILINE)
    }
    assert found == labels
    shown = re.findall(rf'^{name}_bucket{{.*\ble="([^"]*)"', text, re.MULTILINE)
    assert shown == (f"{bounds} +Inf".split() if bounds else [])
    if not name.startswith("process_"):
        level = "BETA" if name in BETA else "ALPHA"
        assert f"# HELP {name} [{level}] " in text


@pytest.mark.parametrize("name", [name for name, *_ in METRICS] + OTHER_METRICS)
def test_every_metric_of_the_go_framework_is_documented(name: str):
    page = metrics_reference.PAGE.read_text(encoding="utf-8")

    assert f"`{name}`" in page or (name.startswith("process_") and "`process_*`" in page)


@pytest.mark.parametrize("prefix", NOT_SERVED)
def test_metrics_of_go_s_own_parts_are_stated_and_not_served(prefix: str):
    page = (ROOT / "docs" / "explanation" / "differences.md").read_text(encoding="utf-8")

    assert f"`{prefix}" in page
    assert f"\n{prefix}" not in scraped()


@pytest.mark.parametrize(
    ("page", "row"),
    [
        *(("events.md", (reason, *row)) for reason, row in NODE_EVENTS.items()),
        *(("services.md", (reason, *row)) for reason, row in SERVICE_EVENTS.items()),
    ],
)
def test_every_event_of_the_go_framework_is_documented(page: str, row: tuple[str, ...]):
    reason, kind, *_ = row
    lines = (ROOT / "docs" / "reference" / page).read_text(encoding="utf-8").splitlines()

    assert any(f"`{reason}`" in line and kind in line for line in lines)


@pytest.mark.parametrize(("gate", "default"), GATES.items())
def test_feature_gates_have_the_names_and_defaults_of_the_go_framework(gate: str, default: bool):
    assert Gates(asked={}).enabled(KNOWN[gate]) is default


def served(**fields: object) -> Service:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}], **fields}
    return msgspec.convert({"metadata": {"name": "web", "uid": "u"}, "spec": spec}, Service)


@pytest.mark.parametrize("field", SERVICE_FIELDS)
def test_a_change_of_the_fields_that_the_go_framework_compares_is_seen(field: str):
    assert needs_ensure(served(), served(**{field: SERVICE_FIELDS[field]}))


@pytest.mark.parametrize("field", PORT_FIELDS)
def test_a_change_of_a_port_s_fields_is_seen(field: str):
    assert needs_ensure(served(), served(ports=[{"port": 80, field: PORT_FIELDS[field]}]))


@pytest.mark.parametrize("field", OTHER_FIELDS)
def test_a_change_of_other_fields_means_nothing(field: str):
    assert not needs_ensure(served(), served(**{field: OTHER_FIELDS[field]}))

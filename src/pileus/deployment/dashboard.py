"""The Grafana dashboard, made from the declarations of the metrics.

A panel names a metric; query, unit, legend and description follow from its declaration. A test
checks that every metric has a panel.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import count

from pileus.dataclass import dataclass
from pileus.deployment.alerts import JOB
from pileus.deployment.commented import Object
from pileus.server.health import Slis
from pileus.telemetry.instruments import Family, declarations
from pileus.telemetry.metrics import COUNTERS_WITHOUT_TOTAL, new_metrics

UID = "pileus-manager"
TITLE = "Pileus cloud-controller-manager"
_SCHEMA = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH = 24
_CHOSEN = f'job="{JOB}", cluster=~"$cluster"'
_UNNAMED = frozenset({"host"})
"""Labels that are the same for all series of a process."""
_QUANTILES = {"0.5": "median", "0.99": "99 %"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One graph of a metric."""

    title: str
    metric: str


@dataclass(frozen=True, slots=True)
class Stat:
    """One number of a metric in the overview; red from `red` on, or below it if `below`."""

    title: str
    metric: str
    red: float = 1
    below: bool = False


_PROCESS = (
    Family("process_cpu_seconds_total", "counter", ("instance",), "CPU time per second"),
    Family("process_resident_memory_bytes", "gauge", ("instance",), "Resident memory"),
    Family("process_open_fds", "gauge", ("instance",), "Open files and sockets"),
)
"""Metrics of Prometheus' client library; `instance` is a label that Prometheus adds."""
OVERVIEW = (
    Stat("Leaders", "leader_election_master_status", below=True),
    Stat("Services failing", "pileus_services_failing"),
    Stat("Oldest uninitialized node", "pileus_oldest_uninitialized_node_seconds", red=600),
    Stat("Node breaker open", "pileus_node_breaker_open"),
    Stat("Orphaned load balancers", "pileus_orphaned_load_balancers"),
    Stat("Cloud failing", "pileus_cloud_failing_seconds", red=300),
)
ROWS: Mapping[str, Sequence[Panel]] = {
    "Nodes": (
        Panel("Nodes failing initialization", "pileus_nodes_failing_initialization"),
        Panel("Node age at initialization", "node_controller_initial_node_sync_delay_seconds"),
        Panel(
            "Node age at removal of the taint",
            "node_controller_cloud_provider_taint_removal_delay_seconds",
        ),
        Panel("Nodes kept by the breaker", "pileus_nodes_held"),
        Panel("Nodes deleted", "pileus_nodes_deleted_total"),
        Panel("Nodes of other clouds", "pileus_nodes_ignored"),
        Panel(
            "Duration of node monitoring",
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
        ),
        Panel(
            "Lookups of nodes that are not ready",
            "cloud_node_lifecycle_controller_cloud_provider_calls_total",
        ),
    ),
    "Services": (
        Panel("Services pending", "pileus_services_pending"),
        Panel("Services that keep members", "pileus_services_held"),
        Panel("Drift repaired", "pileus_service_drift_repaired_total"),
        Panel("Member updates", "service_controller_loadbalancer_sync_total"),
        Panel("Failed member updates", "service_controller_nodesync_error_total"),
        Panel(
            "Duration of member updates",
            "service_controller_update_loadbalancer_host_latency_seconds",
        ),
        Panel(
            "Node change until all members updated", "service_controller_nodesync_latency_seconds"
        ),
        Panel("Deletion of orphans paused", "pileus_orphan_deletion_paused"),
        Panel("Vanished Services kept", "pileus_vanished_services_kept_total"),
    ),
    "Volumes": (
        Panel("Volumes failing", "pileus_volumes_failing"),
        Panel("Volumes missing in the cloud", "pileus_volumes_missing"),
        Panel("Orphaned volumes", "pileus_orphaned_volumes"),
    ),
    "Cloud": (
        Panel("Calls", "pileus_cloud_calls_total"),
        Panel("Duration of calls", "pileus_cloud_call_duration_seconds"),
        Panel("Items per second", "pileus_cloud_call_items_total"),
        Panel("Call budget", "pileus_cloud_budget_calls_per_second"),
        Panel("Waiting for the call budget", "pileus_cloud_budget_wait_seconds_total"),
        Panel("Invalid answers", "pileus_cloud_odd_answers_total"),
    ),
    "Routes, pod ranges, SSH keys": (
        Panel("Passes over routes", "route_controller_route_sync_total"),
        Panel("Pod ranges in use", "node_ipam_controller_cidrset_usage_cidrs"),
        Panel("Pod ranges in total", "node_ipam_controller_cirdset_max_cidrs"),
        Panel("Pod ranges assigned", "node_ipam_controller_cidrset_cidrs_allocations_total"),
        Panel("Pod ranges released", "node_ipam_controller_cidrset_cidrs_releases_total"),
        Panel("Tries per pod range", "node_ipam_controller_cidrset_allocation_tries_per_request"),
        Panel("Nodes by state of SSH keys", "pileus_ssh_keys_nodes"),
        Panel("SSH keys desired", "pileus_ssh_keys_wanted"),
        Panel("Problems of the SSH key source", "pileus_ssh_keys_problems"),
        Panel("SSH keys changed", "pileus_ssh_keys_changes_total"),
    ),
    "Webhooks": (
        Panel("Requests for admission", "cloud_provider_webhook_request_total"),
        Panel("Duration of admission", "cloud_provider_webhook_request_duration_seconds"),
        Panel("Answers of webhooks", "pileus_webhook_reviews_total"),
        Panel(
            "Expiry of the webhook certificate",
            "pileus_webhook_certificate_expiration_timestamp_seconds",
        ),
    ),
    "Work queues": (
        Panel("Keys waiting", "workqueue_depth"),
        Panel("Keys added", "workqueue_adds_total"),
        Panel("Keys retried", "workqueue_retries_total"),
        Panel("Time in the queue", "workqueue_queue_duration_seconds"),
        Panel("Duration of passes", "workqueue_work_duration_seconds"),
        Panel("Oldest pass", "workqueue_longest_running_processor_seconds"),
        Panel("Work in progress", "workqueue_unfinished_work_seconds"),
        Panel("Keys waiting, processed or due later", "pileus_workqueue_keys"),
        Panel("Failed rounds", "pileus_round_failures_total"),
    ),
    "API server": (
        Panel("Requests", "rest_client_requests_total"),
        Panel("Duration of requests", "rest_client_request_duration_seconds"),
        Panel("Waiting for the client's own limit", "rest_client_rate_limiter_duration_seconds"),
        Panel("Size of requests", "rest_client_request_size_bytes"),
        Panel("Size of answers", "rest_client_response_size_bytes"),
        Panel("Time since data on watches", "pileus_watch_last_contact_seconds"),
        Panel("Full lists of informers", "pileus_watch_relists_total"),
        Panel("Objects that do not decode", "pileus_unreadable_objects_total"),
        Panel("Events dropped", "pileus_events_dropped_total"),
    ),
    "Process": (
        Panel("CPU", "process_cpu_seconds_total"),
        Panel("Memory", "process_resident_memory_bytes"),
        Panel("Open files", "process_open_fds"),
        Panel("Health checks", "kubernetes_healthcheck"),
        Panel("Outcomes of health checks", "kubernetes_healthchecks_total"),
        Panel("Running controllers", "running_managed_controllers"),
        Panel("Changes of the leader", "pileus_lease_transitions"),
        Panel("Lease renewals that read first", "leader_election_slowpath_total"),
        Panel("Event loop blocked", "pileus_event_loop_standstills_total"),
        Panel("Remembered objects", "pileus_remembered_objects"),
        Panel("Planned changes (--dry-run)", "pileus_planned_changes_open"),
        Panel("New planned changes (--dry-run)", "pileus_planned_changes_total"),
    ),
    "Secure port": (
        Panel("Authentication", "authentication_attempts"),
        Panel("Duration of authentication", "authentication_duration_seconds"),
        Panel(
            "Remaining lifetime of client certificates",
            "apiserver_client_certificate_expiration_seconds",
        ),
        Panel("Requests by user", "authenticated_user_requests"),
        Panel("Token cache", "authentication_token_cache_request_total"),
        Panel("Authorization", "authorization_attempts_total"),
        Panel("Duration of authorization", "authorization_duration_seconds"),
        Panel("TokenReviews", "apiserver_delegated_authn_request_total"),
        Panel("Duration of TokenReviews", "apiserver_delegated_authn_request_duration_seconds"),
        Panel("SubjectAccessReviews", "apiserver_delegated_authz_request_total"),
        Panel(
            "Duration of SubjectAccessReviews", "apiserver_delegated_authz_request_duration_seconds"
        ),
    ),
}


@cache
def known() -> Mapping[str, Family]:
    """Returns every metric that a panel can show, by its name."""
    holders = (new_metrics(), Slis())
    declared = (each for holder in holders for each in declarations(holder).values())
    return {each.name: each for each in (*declared, *_PROCESS)}


def dashboard() -> Object:
    """Returns the dashboard as Grafana imports it."""
    return {
        "uid": UID,
        "title": TITLE,
        "description": "Generated from the declarations of the metrics.",
        "tags": ["kubernetes", "pileus"],
        "schemaVersion": _SCHEMA,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_data_source_variable(), _cluster_variable()]},
        "panels": [*_layout(count(1))],
    }


def _data_source_variable() -> Object:
    return {"name": "datasource", "label": "Data source", "type": "datasource"} | {
        "query": "prometheus",
        "current": {},
    }


def _cluster_variable() -> Object:
    """Selects clusters by the label that a shared Prometheus adds; without it, all are shown."""
    query = f'label_values(leader_election_master_status{{job="{JOB}"}}, cluster)'
    return {
        "name": "cluster",
        "label": "Cluster",
        "type": "query",
        "datasource": _SOURCE,
        "query": query,
        "definition": query,
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _layout(numbers: Iterator[int]) -> Iterator[Object]:
    """Yields the overview in one line, then a collapsed row per subject, three panels per line."""
    width = _WIDTH // len(OVERVIEW)
    for place, stat in enumerate(OVERVIEW):
        where = {"x": place * width, "y": 0, "w": width, "h": 4}
        yield {"id": next(numbers)} | _stat(stat) | {"gridPos": where}
    for top, (subject, panels) in enumerate(ROWS.items(), 4):
        yield {
            "id": next(numbers),
            "type": "row",
            "title": subject,
            "collapsed": True,
            "gridPos": {"x": 0, "y": top, "w": _WIDTH, "h": 1},
            "panels": [
                {"id": next(numbers)}
                | _graph(panel)
                | {"gridPos": {"x": at % 3 * 8, "y": top + 1 + at // 3 * 8, "w": 8, "h": 8}}
                for at, panel in enumerate(panels)
            ],
        }


def _stat(stat: Stat) -> Object:
    metric = known()[stat.metric]
    colours = ("red", "green") if stat.below else ("green", "red")
    steps = [
        {"color": colours[0], "value": None},
        {"color": colours[1], "value": stat.red},
    ]
    field = {"unit": _unit(metric), "thresholds": {"mode": "absolute", "steps": steps}}
    return {
        "type": "stat",
        "title": stat.title,
        "description": metric.text,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": field | {"noValue": "0"}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "colorMode": "background"},
        "targets": [_target(f"max({_selected(metric.name)})", "")],
    }


def _graph(panel: Panel) -> Object:
    metric = known()[panel.metric]
    return {
        "type": "timeseries",
        "title": panel.title,
        "description": metric.text,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": _unit(metric), "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            _target(query, legend) | {"refId": letter}
            for letter, (query, legend) in zip("AB", _queries(metric), strict=False)
        ],
    }


def _queries(metric: Family) -> Iterator[tuple[str, str]]:
    """Yields the queries of a metric, each with its legend."""
    labels = [*(each for each in metric.labels if each not in _UNNAMED), "cloud"]
    by = ", ".join(labels)
    legend = " ".join(f"{{{{{each}}}}}" for each in labels)
    if metric.kind == "histogram":
        selected = _selected(f"{metric.name}_bucket")
        buckets = f"sum by (le, {by}) (rate({selected}[$__rate_interval]))"
        for quantile, name in _QUANTILES.items():
            yield f"histogram_quantile({quantile}, {buckets})", f"{name} {legend}"
    elif metric.kind == "counter":
        yield f"sum by ({by}) (rate({_selected(metric.name)}[$__rate_interval]))", legend
    else:
        yield f"max by ({by}) ({_selected(metric.name)})", legend


def _selected(series: str) -> str:
    """Returns a selector. In OpenMetrics, which Prometheus asks for, all counters end in _total."""
    if series in COUNTERS_WITHOUT_TOTAL:
        return f'{{__name__=~"{series}(_total)?", {_CHOSEN}}}'
    return f"{series}{{{_CHOSEN}}}"


def _target(query: str, legend: str) -> Object:
    return {"datasource": _SOURCE, "expr": query, "legendFormat": legend, "refId": "A"}


def _unit(metric: Family) -> str:
    """Returns Grafana's name of the unit."""
    if metric.name.endswith("_per_second"):
        return "ops"
    if metric.kind == "counter":
        return "short" if "seconds" in metric.name else "ops"
    if "seconds" in metric.name:
        return "s"
    return "bytes" if metric.name.endswith("_bytes") else "short"

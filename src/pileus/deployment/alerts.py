"""The alerts on the manager, as values; each has a page of its name in docs/runbooks.

Gauges of a standby are 0 or missing, so that `max` over all replicas is the value of the leader.
With several clouds in one manager, series of a cloud have the label `cloud`; it is kept. Counters
with labels appear with their first value, which `increase` does not count: see `_grew`. Replicas
on one node share a port, so that a target of Prometheus may be any of them at any time.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from pileus.dataclass import dataclass

JOB = "cloud-controller-manager"
"""The label `job` of the manager's targets; other components have metrics of the same names."""
RUNBOOKS = "docs/runbooks/"
"""Where the pages of the alerts are: in this repository, as long as no site publishes them."""
_OURS = f'job="{JOB}"'
_LEASE = f'{_OURS}, name!="cloud-provider-extraction-migration"'
_ANSWERS = "success|NotFound|Conflict|Unsupported|Rejected|Misconfigured|cancelled"
"""Results of calls after which the cloud is not at fault."""
_OWN_ALERTS = "Throttled|Unauthorized|QuotaExceeded"


class Severity(StrEnum):
    CRITICAL = "critical"
    """The manager, or a part of its work, has stopped: act now."""
    WARNING = "warning"
    """Some objects are affected, or will be: act within the day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `lasting` is the time for which the expression has to hold; empty: at once."""

    name: str
    severity: Severity
    expression: str
    lasting: str
    summary: str
    description: str

    def rule(self, runbooks: str = RUNBOOKS) -> dict[str, object]:
        """Returns the alerting rule of Prometheus."""
        return {
            "alert": self.name,
            "expr": self.expression,
            **({"for": self.lasting} if self.lasting else {}),
            "labels": {"severity": self.severity.value},
            "annotations": {
                "summary": self.summary,
                "description": self.description,
                "runbook_url": f"{runbooks}{self.name}.md",
            },
        }


def groups(runbooks: str = RUNBOOKS) -> list[dict[str, object]]:
    """Returns the rule groups, as in a rule file of Prometheus and in a PrometheusRule."""
    return [
        {"name": f"pileus.{subject}", "rules": [alert.rule(runbooks) for alert in alerts]}
        for subject, alerts in ALERTS.items()
    ]


def _grew(series: str, window: str) -> str:
    """Returns an expression for counters that increased, or appeared, within the window."""
    return f"increase({series}[{window}]) > 0 or ({series} unless {series} offset {window}) > 0"


def _share(series: str, part: str, by: str, *, among: str = "") -> str:
    """Returns an expression for the share of the series that `part` selects, of all `among`."""
    chosen, whole = ", ".join(filter(None, (among, part))), f"{{{among}}}" if among else ""
    rates = [f"sum by ({by}) (rate({series}{each}[10m]))" for each in (f"{{{chosen}}}", whole)]
    return " / ".join(rates)


def _route_passes(outcome: str) -> str:
    return f"sum by (cloud) (rate(route_controller_route_sync_total{{{outcome}}}[15m])) > 0"


_MANAGER = (
    Alert(
        name="PileusAbsent",
        severity=Severity.CRITICAL,
        expression=f"absent(up{{{_OURS}}} == 1)",
        lasting="5m",
        summary="Prometheus reads no cloud-controller-manager.",
        description="No replica answers, or Prometheus is not allowed to read /metrics. Without a "
        "manager, new nodes stay tainted and Services get no load balancer.",
    ),
    Alert(
        name="PileusNoLeader",
        severity=Severity.CRITICAL,
        expression=f"max(leader_election_master_status{{{_LEASE}}}) == 0",
        lasting="5m",
        summary="No cloud-controller-manager is the leader.",
        description="Replicas run, but none holds the Lease, so nothing is done for nodes, "
        "Services and routes.",
    ),
    Alert(
        name="PileusSeveralLeaders",
        severity=Severity.CRITICAL,
        expression="sum by (name) "
        f"(max by (name, instance) (leader_election_master_status{{{_LEASE}}})) > 1",
        lasting="2m",
        summary="{{ $value }} managers are leaders of the lease {{ $labels.name }}.",
        description="Two managers that both act on the same cloud can undo each other's changes. "
        "Their Leases have the same name in different namespaces or clusters.",
    ),
    Alert(
        name="PileusLeaseFlapping",
        severity=Severity.WARNING,
        expression="max by (name) (max_over_time(pileus_lease_transitions[30m])) "
        "- min by (name) (min_over_time(pileus_lease_transitions[30m])) > 3",
        lasting="",
        summary="The leader changed {{ $value }} times within 30 minutes.",
        description="Each change costs up to 19 s without a leader. The API server is slow or "
        "overloaded, or the manager is restarted.",
    ),
    Alert(
        name="PileusRestarting",
        severity=Severity.WARNING,
        expression=f"changes(process_start_time_seconds{{{_OURS}}}[30m]) > 3 unless on (instance) "
        f'count by (instance) (up{{{_OURS}, metrics_path!="/metrics/slis"}}) > 1',
        lasting="",
        summary="{{ $labels.instance }} was restarted {{ $value }} times in 30 minutes.",
        description="The process ends or is killed again and again: see its exit code and last "
        "log lines.",
    ),
    Alert(
        name="PileusHealthCheckFailing",
        severity=Severity.WARNING,
        expression=f"kubernetes_healthcheck{{{_OURS}}} == 0",
        lasting="10m",
        summary="The health check {{ $labels.name }} of {{ $labels.instance }} fails.",
        description="{{ $labels.name }} in /{{ $labels.type }} has failed for 10 minutes.",
    ),
    Alert(
        name="PileusWorkQueueStuck",
        severity=Severity.WARNING,
        expression=f"workqueue_depth{{{_OURS}}} > 0 unless on (instance, name) "
        f"rate(workqueue_work_duration_seconds_count{{{_OURS}}}[15m]) > 0",
        lasting="15m",
        summary="The queue {{ $labels.name }} of {{ $labels.instance }} is stuck.",
        description="{{ $value }} keys wait in the queue {{ $labels.name }}, and no pass ended "
        "within 15 minutes.",
    ),
    Alert(
        name="PileusRoundsFailing",
        severity=Severity.WARNING,
        expression="sum by (round, cloud) (increase(pileus_round_failures_total[30m])) > 3",
        lasting="",
        summary="The periodic task {{ $labels.round }} fails.",
        description="{{ $labels.round }} failed {{ $value | humanize }} times in 30 minutes. It is "
        "retried with backoff; until it succeeds, its work is not done.",
    ),
    Alert(
        name="PileusEventLoopBlocked",
        severity=Severity.WARNING,
        expression="increase(pileus_event_loop_standstills_total[30m]) > 0",
        lasting="",
        summary="Code in {{ $labels.instance }} blocks the manager.",
        description="The event loop stood still for seconds. Meanwhile nothing is done and health "
        "checks do not answer. The log names the line of code.",
    ),
    Alert(
        name="PileusWatchSilent",
        severity=Severity.WARNING,
        expression="pileus_watch_last_contact_seconds > 300",
        lasting="2m",
        summary="{{ $labels.instance }} receives nothing on its watch of {{ $labels.resource }}.",
        description="Last data {{ $value | humanizeDuration }} ago. The manager works with an old "
        "view of the cluster, and deletes no node while it does.",
    ),
    Alert(
        name="PileusApiServerErrors",
        severity=Severity.WARNING,
        expression=_share(
            "rest_client_requests_total", 'code=~"5..|429|<error>"', "instance", among=_OURS
        )
        + " > 0.1",
        lasting="15m",
        summary="The API server fails requests of {{ $labels.instance }}.",
        description="{{ $value | humanizePercentage }} of the requests to the API server fail or "
        "are rejected because of their number.",
    ),
    Alert(
        name="PileusUnreadableObjects",
        severity=Severity.WARNING,
        expression=_grew("pileus_unreadable_objects_total", "1h"),
        lasting="",
        summary="{{ $labels.resource }} of the cluster cannot be decoded.",
        description="Objects that do not decode are skipped: nothing is done for them.",
    ),
)
_CLOUD = (
    Alert(
        name="PileusCloudFailing",
        severity=Severity.CRITICAL,
        expression="max by (provider, cloud) (pileus_cloud_failing_seconds) > 300",
        lasting="",
        summary="All calls to the cloud {{ $labels.provider }} fail.",
        description="The cloud has been unavailable, throttling all requests or refusing the "
        "credentials for {{ $value | humanizeDuration }}.",
    ),
    Alert(
        name="PileusCloudErrors",
        severity=Severity.WARNING,
        expression=_share(
            "pileus_cloud_calls_total",
            f'result!~"{_ANSWERS}|{_OWN_ALERTS}"',
            "provider, cloud, capability, method",
        )
        + " > 0.25",
        lasting="15m",
        summary="Calls of {{ $labels.capability }}.{{ $labels.method }} to {{ $labels.provider }} "
        "fail.",
        description="{{ $value | humanizePercentage }} of these calls fail because of the cloud or "
        "its provider. They are retried with backoff.",
    ),
    Alert(
        name="PileusCloudThrottled",
        severity=Severity.WARNING,
        expression=_share("pileus_cloud_calls_total", 'result="Throttled"', "provider, cloud")
        + " > 0.05",
        lasting="15m",
        summary="The cloud {{ $labels.provider }} throttles requests.",
        description="{{ $value | humanizePercentage }} of all calls are rejected because of their "
        "number. Changes of nodes and Services take longer.",
    ),
    Alert(
        name="PileusCloudUnauthorized",
        severity=Severity.CRITICAL,
        expression="sum by (provider, cloud, capability, method) "
        '(rate(pileus_cloud_calls_total{result="Unauthorized"}[15m])) > 0',
        lasting="10m",
        summary="The cloud {{ $labels.provider }} refuses {{ $labels.capability }}."
        "{{ $labels.method }}.",
        description="The credentials are invalid or expired, or their role does not permit these "
        "calls.",
    ),
    Alert(
        name="PileusCloudQuotaExceeded",
        severity=Severity.WARNING,
        expression="sum by (provider, cloud, capability, method) "
        '(rate(pileus_cloud_calls_total{result="QuotaExceeded"}[30m])) > 0',
        lasting="15m",
        summary="A quota in the cloud {{ $labels.provider }} is exceeded.",
        description="{{ $labels.capability }}.{{ $labels.method }} fails because a quota is "
        "exceeded. Affected Services have no complete load balancer.",
    ),
    Alert(
        name="PileusCloudAnswersInvalid",
        severity=Severity.WARNING,
        expression=_grew("pileus_cloud_odd_answers_total", "1h"),
        lasting="",
        summary="Answers of the cloud {{ $labels.provider }} are invalid.",
        description="Parts of the answers to {{ $labels.capability }}.{{ $labels.method }} made no "
        "sense and were dropped. The provider has a bug, or the cloud answers unexpectedly.",
    ),
)
_NODES = (
    Alert(
        name="PileusNodesUninitialized",
        severity=Severity.WARNING,
        expression="max by (cloud) (pileus_oldest_uninitialized_node_seconds) > 600",
        lasting="5m",
        summary="Nodes are not initialized.",
        description="A node that was created {{ $value | humanizeDuration }} ago still has the "
        "taint node.cloudprovider.kubernetes.io/uninitialized: no pod can run on it.",
    ),
    Alert(
        name="PileusNodeBreakerOpen",
        severity=Severity.CRITICAL,
        expression="max by (action, cloud) (pileus_node_breaker_open) == 1",
        lasting="5m",
        summary="Too many machines are missing or stopped: no node is acted on "
        "({{ $labels.action }}).",
        description="More nodes than the limit lost their machines at once. Nodes are kept until "
        "the machines are found or the deletions are approved.",
    ),
    Alert(
        name="PileusPodRangesUsedUp",
        severity=Severity.WARNING,
        expression=f"max by (clusterCIDR) (node_ipam_controller_cidrset_usage_cidrs{{{_OURS}}})"
        " > 0.9",
        lasting="15m",
        summary="Pod ranges of {{ $labels.clusterCIDR }} are used up.",
        description="{{ $value | humanizePercentage }} of the pod ranges are in use. When none is "
        "left, new nodes get no pods.",
    ),
    Alert(
        name="PileusRoutesFailing",
        severity=Severity.WARNING,
        expression=_route_passes('outcome="error"')
        + " unless "
        + _route_passes('outcome=~"changed|noop"'),
        lasting="15m",
        summary="Routes of nodes cannot be updated.",
        description="Every pass over the routes failed within 15 minutes. Pods on affected nodes "
        "may not be reachable.",
    ),
    Alert(
        name="PileusSshKeysFailing",
        severity=Severity.WARNING,
        expression='max by (cloud) (pileus_ssh_keys_nodes{state="failed"}) > 0 or '
        "max by (cloud) (pileus_ssh_keys_problems) > 0",
        lasting="15m",
        summary="SSH keys of nodes are not up to date.",
        description="The source of the keys is missing or partly invalid, or the cloud rejects "
        "changes. No key is withdrawn from affected nodes.",
    ),
)
_SERVICES = (
    Alert(
        name="PileusServicesFailing",
        severity=Severity.WARNING,
        expression="max by (cloud) (pileus_services_failing) > 0",
        lasting="15m",
        summary="{{ $value }} Services have a failing load balancer.",
        description="The load balancers of {{ $value }} Services do not match the desired state "
        "because of a failure.",
    ),
    Alert(
        name="PileusServicesPending",
        severity=Severity.WARNING,
        expression="max by (cloud) (pileus_services_pending) > 0",
        lasting="1h",
        summary="Load balancers stay pending.",
        description="The cloud has been provisioning load balancers for an hour, of {{ $value }} "
        "Services now.",
    ),
    Alert(
        name="PileusMembersKept",
        severity=Severity.WARNING,
        expression="max by (cloud) (pileus_services_held) > 0",
        lasting="30m",
        summary="Load balancers keep members that should leave.",
        description="{{ $value }} Services would lose so many members that a second check of the "
        "nodes has to confirm it, and the check has not agreed for 30 minutes.",
    ),
    Alert(
        name="PileusOrphanedLoadBalancers",
        severity=Severity.WARNING,
        expression="max by (cloud) (pileus_orphaned_load_balancers) > 0",
        lasting="1h",
        summary="{{ $value }} load balancers have no Service.",
        description="Load balancers with the tag of this cluster cost money and serve nothing.",
    ),
    Alert(
        name="PileusOrphanDeletionPaused",
        severity=Severity.WARNING,
        expression="max by (cloud) (pileus_orphan_deletion_paused) == 1",
        lasting="15m",
        summary="So many load balancers have no Service that none is deleted.",
        description="More than half of all load balancers are orphans. This looks like the wrong "
        "cluster rather than an intention, so --service-orphans=delete deletes none.",
    ),
    Alert(
        name="PileusServicesVanished",
        severity=Severity.WARNING,
        expression=_grew("pileus_vanished_services_kept_total", "1h"),
        lasting="",
        summary="Many Services vanished at once; their load balancers are kept.",
        description="Services were deleted without their finalizer, many at once. Their load "
        "balancers are kept as orphans.",
    ),
)
_VOLUMES = (
    Alert(
        name="PileusVolumesFailing",
        severity=Severity.WARNING,
        expression="max by (cloud) (pileus_volumes_failing) > 0",
        lasting="15m",
        summary="{{ $value }} volumes are failing.",
        description="{{ $value }} volumes cannot be created, attached, detached, resized or "
        "deleted. Their pods may not start.",
    ),
    Alert(
        name="PileusVolumesMissing",
        severity=Severity.CRITICAL,
        expression="max by (cloud) (pileus_volumes_missing) > 0",
        lasting="20m",
        summary="{{ $value }} PersistentVolumes do not match the cloud.",
        description="{{ $value }} PersistentVolumes have a volume that is missing in the cloud, or "
        "is not attached as reported. Data may be lost.",
    ),
    Alert(
        name="PileusOrphanedVolumes",
        severity=Severity.WARNING,
        expression="max by (cloud) (pileus_orphaned_volumes) > 0",
        lasting="1h",
        summary="{{ $value }} volumes have no PersistentVolume and no claim.",
        description="Volumes with the tag of this cluster cost money. They are kept, because "
        "their data may be needed.",
    ),
)
ALERTS: Mapping[str, Sequence[Alert]] = {
    "manager": _MANAGER,
    "cloud": _CLOUD,
    "nodes": _NODES,
    "services": _SERVICES,
    "volumes": _VOLUMES,
}
"""All alerts, by subject."""

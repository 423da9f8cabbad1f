"""Every alert fires when it should and not otherwise, as promtool evaluates the rules."""

import os
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.monitoring_files import rule_file

from pileus.deployment.alerts import ALERTS, Alert
from pileus.deployment.dashboard import dashboard
from pileus.server.build import this_build
from pileus.server.metrics import prometheus_text
from pileus.server.process_metrics import add_process_metrics
from pileus.telemetry.metrics import new_metrics

PROMTOOL = os.environ.get("PILEUS_PROMTOOL")
LIMIT = 60
JOB = 'job="cloud-controller-manager"'
ONE, TWO = f'{JOB}, instance="10.0.0.1:10258"', f'{JOB}, instance="10.0.0.2:10258"'
LEASE = 'name="cloud-controller-manager"'
MIGRATION = 'name="cloud-provider-extraction-migration"'
CALLS = 'provider="openstack", capability="balancers", method="apply"'

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not PROMTOOL, reason="no promtool: run `make test-monitoring` once"),
]


@dataclass(frozen=True)
class Case:
    """Series with which the alert fires at a time, and series with which it does not.

    The notation of values is promtool's; the interval is a minute.
    """

    fires: dict[str, str]
    at: str
    quiet: dict[str, str]
    before: str = ""
    """A time at which the first series do not make it fire yet."""
    labels: dict[str, str] = field(default_factory=dict[str, str])


def gauge(series: str, firing: str, at: str, quiet: str, before: str = "", **labels: str) -> Case:
    return Case({series: firing}, at, {series: quiet}, before, labels)


def calls(**results: str) -> dict[str, str]:
    return {
        f'pileus_cloud_calls_total{{{CALLS}, result="{result}"}}': values
        for result, values in results.items()
    }


def labels_of_calls() -> dict[str, str]:
    return dict(re.findall(r'(\w+)="(\w+)"', CALLS))


CASES = {
    "PileusAbsent": Case(
        {f"up{{{ONE}}}": "1x3 0x30"},
        "10m",
        {f"up{{{ONE}}}": "0x30", f"up{{{TWO}}}": "1x30"},
        before="7m",
    ),
    "PileusNoLeader": Case(
        {
            f"leader_election_master_status{{{ONE}, {LEASE}}}": "1x3 0x30",
            f"leader_election_master_status{{{TWO}, {LEASE}}}": "0x30",
            f"leader_election_master_status{{{ONE}, {MIGRATION}}}": "1x30",
        },
        "10m",
        {
            f"leader_election_master_status{{{ONE}, {LEASE}}}": "0x30",
            f"leader_election_master_status{{{TWO}, {LEASE}}}": "1x30",
            f"leader_election_master_status{{{ONE}, {MIGRATION}}}": "0x30",
        },
        before="7m",
    ),
    "PileusSeveralLeaders": Case(
        {
            f"leader_election_master_status{{{ONE}, {LEASE}}}": "1x30",
            f"leader_election_master_status{{{TWO}, {LEASE}}}": "1x30",
        },
        "4m",
        {
            f'leader_election_master_status{{{ONE}, {LEASE}, pod="a"}}': "1x30",
            f'leader_election_master_status{{{ONE}, {LEASE}, pod="b"}}': "1x30",
            f"leader_election_master_status{{{TWO}, {LEASE}}}": "0x30",
        },
        before="1m",
        labels={"name": "cloud-controller-manager"},
    ),
    "PileusLeaseFlapping": Case(
        {
            f"pileus_lease_transitions{{{ONE}, {LEASE}}}": "7x5 8x5 9x5 10x5 11x5",
            f"pileus_lease_transitions{{{TWO}, {LEASE}}}": "NaN NaN 8x20",
        },
        "25m",
        {f"pileus_lease_transitions{{{ONE}, {LEASE}}}": "7x5 8x5 9x20"},
        before="15m",
        labels={"name": "cloud-controller-manager"},
    ),
    "PileusRestarting": Case(
        {f"process_start_time_seconds{{{ONE}}}": "0+100x10", f"up{{{ONE}}}": "1x10"},
        "10m",
        {
            f"process_start_time_seconds{{{ONE}}}": "1 2 1 2 1 2 1 2 1 2 1",
            f'up{{{ONE}, pod="a"}}': "1x10",
            f'up{{{ONE}, pod="b"}}': "1x10",
        },
        before="2m",
        labels={"instance": "10.0.0.1:10258", "job": "cloud-controller-manager"},
    ),
    "PileusHealthCheckFailing": gauge(
        f'kubernetes_healthcheck{{{ONE}, name="informers", type="healthz"}}',
        "1x3 0x30",
        "15m",
        "0x8 1x20",
        "12m",
        name="informers",
        type="healthz",
        instance="10.0.0.1:10258",
        job="cloud-controller-manager",
    ),
    "PileusWorkQueueStuck": Case(
        {
            f'workqueue_depth{{{ONE}, name="Nodes"}}': "0x4 3x60",
            f'workqueue_work_duration_seconds_count{{{ONE}, name="Nodes"}}': "5x64",
        },
        "40m",
        {
            f'workqueue_depth{{{ONE}, name="Nodes"}}': "3x60",
            f'workqueue_work_duration_seconds_count{{{ONE}, name="Nodes"}}': "0+1x60",
        },
        before="10m",
        labels={"name": "Nodes", "instance": "10.0.0.1:10258", "job": "cloud-controller-manager"},
    ),
    "PileusRoundsFailing": gauge(
        f'pileus_round_failures_total{{{ONE}, round="route-check"}}',
        "0 1 2 3 4 5 6",
        "6m",
        "0 1x30",
        "2m",
        round="route-check",
    ),
    "PileusEventLoopBlocked": gauge(
        f"pileus_event_loop_standstills_total{{{ONE}}}",
        "0x5 1x5",
        "7m",
        "1x10",
        "5m",
        instance="10.0.0.1:10258",
        job="cloud-controller-manager",
    ),
    "PileusWatchSilent": gauge(
        f'pileus_watch_last_contact_seconds{{{ONE}, resource="nodes"}}',
        "0+60x20",
        "9m",
        "80x20",
        "6m",
        resource="nodes",
        instance="10.0.0.1:10258",
        job="cloud-controller-manager",
    ),
    "PileusApiServerErrors": Case(
        {
            f'rest_client_requests_total{{{ONE}, code="200", method="GET"}}': "0+10x60",
            f'rest_client_requests_total{{{ONE}, code="503", method="GET"}}': "0+2x60",
        },
        "30m",
        {
            f'rest_client_requests_total{{{ONE}, code="200", method="GET"}}': "0+10x60",
            f'rest_client_requests_total{{{ONE}, code="409", method="PATCH"}}': "0+9x60",
            f'rest_client_requests_total{{{ONE}, code="503", method="GET"}}': "0+1x60",
        },
        before="10m",
        labels={"instance": "10.0.0.1:10258"},
    ),
    "PileusUnreadableObjects": gauge(
        f'pileus_unreadable_objects_total{{{ONE}, resource="nodes"}}',
        "_x5 1x10",
        "8m",
        "1x200",
        "4m",
        resource="nodes",
        instance="10.0.0.1:10258",
        job="cloud-controller-manager",
    ),
    "PileusCloudFailing": gauge(
        'pileus_cloud_failing_seconds{provider="openstack", cloud="east"}',
        "0+60x20",
        "6m",
        "0+60x5 0x20",
        "5m",
        provider="openstack",
        cloud="east",
    ),
    "PileusCloudErrors": Case(
        calls(success="0+6x60", Unavailable="0+2x60", crash="0+2x60"),
        "30m",
        calls(success="0+6x60", Unavailable="0+1x60", Conflict="0+6x60", Throttled="0+6x60"),
        before="10m",
        labels=labels_of_calls(),
    ),
    "PileusCloudThrottled": Case(
        calls(success="0+10x60", Throttled="0+1x60"),
        "30m",
        calls(success="0+30x60", Throttled="0+1x60"),
        before="10m",
        labels={"provider": "openstack"},
    ),
    "PileusCloudUnauthorized": Case(
        calls(success="0+10x60", Unauthorized="0+1x60"),
        "20m",
        calls(success="0+10x60", Unauthorized="1x60"),
        before="8m",
        labels=labels_of_calls(),
    ),
    "PileusCloudQuotaExceeded": Case(
        calls(success="0+10x60", QuotaExceeded="0x4 1x4 2x4 3x4 4x40"),
        "25m",
        calls(success="0+10x60", QuotaExceeded="4x60"),
        before="10m",
        labels=labels_of_calls(),
    ),
    "PileusCloudAnswersInvalid": gauge(
        f"pileus_cloud_odd_answers_total{{{CALLS}}}",
        "_x5 1x10",
        "8m",
        "1x200",
        "4m",
        **labels_of_calls(),
    ),
    "PileusNodesUninitialized": gauge(
        f"pileus_oldest_uninitialized_node_seconds{{{ONE}}}", "0+60x60", "17m", "590x60", "14m"
    ),
    "PileusNodeBreakerOpen": gauge(
        f'pileus_node_breaker_open{{{ONE}, action="delete"}}',
        "0x3 1x30",
        "10m",
        "1x3 0x30",
        "7m",
        action="delete",
    ),
    "PileusPodRangesUsedUp": gauge(
        f'node_ipam_controller_cidrset_usage_cidrs{{{ONE}, clusterCIDR="10.0.0.0/16"}}',
        "0.95x30",
        "16m",
        "0.9x30",
        "14m",
        clusterCIDR="10.0.0.0/16",
    ),
    "PileusRoutesFailing": Case(
        {f'route_controller_route_sync_total{{{ONE}, outcome="error"}}': "0+1x60"},
        "20m",
        {
            f'route_controller_route_sync_total{{{ONE}, outcome="error"}}': "0+1x60",
            f'route_controller_route_sync_total{{{ONE}, outcome="noop"}}': "0+1x60",
        },
        before="10m",
    ),
    "PileusSshKeysFailing": Case(
        {f'pileus_ssh_keys_nodes{{{ONE}, state="failed"}}': "2x60"},
        "16m",
        {
            f'pileus_ssh_keys_nodes{{{ONE}, state="current"}}': "2x60",
            f"pileus_ssh_keys_problems{{{ONE}}}": "0x60",
        },
        before="14m",
    ),
    "PileusServicesFailing": gauge(
        f"pileus_services_failing{{{ONE}}}", "3x60", "16m", "3x10 0x30", "14m"
    ),
    "PileusServicesPending": gauge(
        f'pileus_services_pending{{{ONE}, cloud="east"}}',
        "1x90",
        "61m",
        "1x50 0x40",
        "59m",
        cloud="east",
    ),
    "PileusMembersKept": gauge(f"pileus_services_held{{{ONE}}}", "1x90", "31m", "1x20 0x40", "29m"),
    "PileusOrphanedLoadBalancers": gauge(
        f"pileus_orphaned_load_balancers{{{ONE}}}", "2x90", "61m", "2x50 0x40", "59m"
    ),
    "PileusOrphanDeletionPaused": gauge(
        f"pileus_orphan_deletion_paused{{{ONE}}}", "1x30", "16m", "0x30", "14m"
    ),
    "PileusVolumesFailing": gauge(
        f"pileus_volumes_failing{{{ONE}}}", "2x90", "16m", "2x10 0x40", "14m"
    ),
    "PileusVolumesMissing": gauge(
        f"pileus_volumes_missing{{{ONE}}}", "1x90", "21m", "1x15 0x40", "19m"
    ),
    "PileusOrphanedVolumes": gauge(
        f"pileus_orphaned_volumes{{{ONE}}}", "3x90", "61m", "3x50 0x40", "59m"
    ),
    "PileusServicesVanished": gauge(
        f"pileus_vanished_services_kept_total{{{ONE}}}",
        "0x5 7x20",
        "7m",
        "7x200",
        "5m",
        instance="10.0.0.1:10258",
        job="cloud-controller-manager",
    ),
}
EACH = [pytest.param(each, id=each.name) for group in ALERTS.values() for each in group]


def promtool(*arguments: str, folder: Path) -> str:
    """Run promtool and return what it printed. Fails if promtool does."""
    done = subprocess.run(
        [str(PROMTOOL), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def scene(series: dict[str, str], alert: Alert, moments: dict[str, bool], case: Case) -> Any:
    """One test of promtool: at which moments the alert fires with these series."""
    firing = {"alertname": alert.name, "alertstate": "firing", "severity": alert.severity.value}
    labels = ", ".join(f'{name}="{value}"' for name, value in (firing | case.labels).items())
    expected = {"labels": f"ALERTS{{{labels}}}", "value": 1}
    return {
        "interval": "1m",
        "input_series": [{"series": each, "values": values} for each, values in series.items()],
        "promql_expr_test": [
            {
                "expr": f'ALERTS{{alertname="{alert.name}", alertstate="firing"}}',
                "eval_time": moment,
                "exp_samples": [expected] if fires else [],
            }
            for moment, fires in moments.items()
        ],
    }


def minutes(case: Case) -> list[str]:
    """Every fifth minute for as long as the quiet series last."""
    lengths = [
        sum(int(count or 0) + 1 for _, count in re.findall(r"(\S+?)(?:x(\d+))?(?:\s|$)", values))
        for values in case.quiet.values()
    ]
    return [f"{minute}m" for minute in range(2, max(lengths), 5)]


@pytest.mark.parametrize("alert", EACH)
def test_an_alert_fires_when_it_should_and_only_then(alert: Alert, tmp_path: Path):
    case = CASES[alert.name]
    moments = {case.at: True} | ({case.before: False} if case.before else {})
    # Series that grew within the last hour count: before that, nothing is known of the hour.
    quiet = ["70m", "120m"] if "offset" in alert.expression else minutes(case)
    (tmp_path / "rules.yaml").write_text(rule_file())
    test = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": "1m",
        "tests": [
            scene(case.fires, alert, moments, case),
            scene(case.quiet, alert, dict.fromkeys(quiet, False), case),
        ],
    }
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(test))

    assert "SUCCESS" in promtool("test", "rules", "test.yaml", folder=tmp_path)


def test_every_alert_has_a_case():
    assert CASES.keys() == {each.name for group in ALERTS.values() for each in group}


def test_a_manager_that_has_just_started_sets_off_no_alert(tmp_path: Path):
    metrics = new_metrics()
    add_process_metrics(metrics.registry, this_build())
    metrics.leading.labels("cloud-controller-manager").set(1)
    metrics.lease_transitions.labels("cloud-controller-manager").set(12)
    for action in ("delete", "out_of_service"):
        metrics.node_breaker_open.labels(action).set(0)
    samples = re.findall(
        r"^([a-z]\w*)(?:\{(.*)\})? (\S+)$", prometheus_text(metrics.registry).decode(), re.MULTILINE
    )
    series = {
        f"{name}{{{', '.join(filter(None, (ONE, labels)))}}}": f"{float(value):g}x150"
        for name, labels, value in samples
    }
    assert len(series) > 100
    (tmp_path / "rules.yaml").write_text(rule_file())
    test = {
        "interval": "1m",
        "input_series": [
            {"series": each, "values": values}
            for each, values in (series | {f"up{{{ONE}}}": "1x150"}).items()
        ],
        "promql_expr_test": [
            {"expr": "ALERTS", "eval_time": moment, "exp_samples": []}
            for moment in ("1m", "20m", "70m", "140m")
        ],
    }
    file = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(file))

    assert "SUCCESS" in promtool("test", "rules", "test.yaml", folder=tmp_path)


def test_promtool_accepts_rules_and_texts(tmp_path: Path):
    (tmp_path / "rules.yaml").write_text(rule_file())

    printed = promtool(
        "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", folder=tmp_path
    )

    assert f"{len(EACH)} rules found" in printed


def test_promtool_accepts_every_query_of_the_dashboard(tmp_path: Path):
    queries = [
        target["expr"].replace("$__rate_interval", "5m")
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"panel:{n}", "expr": each} for n, each in enumerate(queries)]
    file = {"groups": [{"name": "dashboard", "rules": rules}]}
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(file))

    assert f"{len(queries)} rules found" in promtool(
        "check", "rules", "rules.yaml", folder=tmp_path
    )

"""Alerts, dashboard and monitors: they name what exists, and Prometheus may read what they name."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from tools.monitoring_files import FILES

from pileus.cloud import errors
from pileus.deployment.alerts import ALERTS, Alert, groups
from pileus.deployment.dashboard import OVERVIEW, ROWS, dashboard, known
from pileus.deployment.monitoring import PATHS
from pileus.server.build import this_build
from pileus.server.process_metrics import add_process_metrics
from pileus.telemetry.instruments import MetricRegistry
from tests.unit.cli.test_manifests import LOCAL, of_kind, printed
from tests.unit.deployment.promql import NotPromql, Query, parsed

TARGET = {"job", "instance", "namespace", "pod", "metrics_path", "cluster"}
"""Labels that Prometheus adds, or one that reads several clusters."""
EACH = [pytest.param(each, id=each.name) for group in ALERTS.values() for each in group]


def series() -> dict[str, frozenset[str]]:
    """Every time series that a manager serves, and `up`, with its labels."""
    found: dict[str, frozenset[str]] = {"up": frozenset()}
    for declaration in known().values():
        found |= declaration.series()
    registry = MetricRegistry()
    add_process_metrics(registry, this_build())
    for reading in registry.read():
        found |= {each.name: frozenset(each.labels) for each in reading.samples}
    return found


SERIES = series()


def wrong(query: Query) -> Iterator[str]:
    """Yields what the query names and no manager serves."""
    known_labels = TARGET | {"cloud"}
    for selector in query.selectors:
        labels = SERIES.get(selector.metric)
        if labels is None:
            yield f"there is no metric {selector.metric}"
            continue
        known_labels |= labels
        for name, _, _ in selector.labels:
            if name not in labels | TARGET | {"cloud"}:
                yield f"{selector.metric} has no label {name}"
    yield from (f"no series has {each}" for each in query.grouping if each not in known_labels)


def panels() -> Iterator[dict[str, Any]]:
    for each in dashboard()["panels"]:
        yield from each["panels"] if each["type"] == "row" else (each,)


@pytest.mark.parametrize("alert", EACH)
def test_an_alert_names_metrics_and_labels_that_exist(alert: Alert):
    query = parsed(alert.expression)

    assert query.selectors
    assert list(wrong(query)) == []


@pytest.mark.parametrize("alert", EACH)
def test_the_text_of_an_alert_names_labels_that_its_expression_keeps(alert: Alert):
    query = parsed(alert.expression)
    named = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))

    aggregated = {"sum", "max", "min", "absent"} & set(query.functions)
    kept = set(query.grouping) if aggregated and alert.name != "PileusRestarting" else None
    every = TARGET | {each for one in query.selectors for each in SERIES[one.metric]}
    assert named <= (every if kept is None else kept)


@pytest.mark.parametrize("alert", EACH)
def test_metrics_that_other_components_have_too_are_selected_by_job(alert: Alert):
    shared = ("workqueue_", "rest_client_", "leader_election_", "process_", "node_ipam_", "up")

    for selector in parsed(alert.expression).selectors:
        if selector.metric.startswith((*shared, "kubernetes_")):
            assert ("job", "=", "cloud-controller-manager") in selector.labels


def test_results_of_calls_are_named_as_errors_are():
    words = {
        word
        for group in ALERTS.values()
        for alert in group
        for selector in parsed(alert.expression).selectors
        for name, _, value in selector.labels
        if name == "result"
        for word in value.split("|")
    }

    assert words >= {"Throttled", "Unauthorized", "QuotaExceeded", "NotFound"}
    assert all(hasattr(errors, word) for word in words - {"success", "cancelled"})


def test_every_panel_names_metrics_and_labels_that_exist():
    queries = [target["expr"] for panel in panels() for target in panel["targets"]]

    assert len(queries) > 80
    assert [problem for each in queries for problem in wrong(parsed(each))] == []


def test_every_metric_has_a_panel():
    shown = {panel.metric for row in ROWS.values() for panel in row}

    assert shown | {stat.metric for stat in OVERVIEW} == known().keys()


def test_panels_do_not_overlap_and_have_their_own_ids():
    outer = dashboard()["panels"]
    rows = [each for each in outer if each["type"] == "row"]
    for shown in (outer, *(row["panels"] for row in rows)):
        cells = [
            (x, y)
            for place in (each["gridPos"] for each in shown)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        ]

        assert len(cells) == len(set(cells))
        assert max(x for x, _ in cells) < 24
    for row in rows:
        assert all(each["gridPos"]["y"] > row["gridPos"]["y"] for each in row["panels"])
    everything = [*outer, *(each for row in rows for each in row["panels"])]
    assert len({each["id"] for each in everything}) == len(everything)


def test_rows_are_collapsed_and_every_query_is_of_the_chosen_clusters():
    rows = [each for each in dashboard()["panels"] if each["type"] == "row"]
    (cluster,) = [each for each in dashboard()["templating"]["list"] if each["name"] == "cluster"]
    selectors = [
        selector
        for panel in panels()
        for target in panel["targets"]
        for selector in parsed(target["expr"]).selectors
    ]

    assert [row["title"] for row in rows] == [*ROWS]
    assert all(row["collapsed"] and row["panels"] for row in rows)
    assert all(("cluster", "=~", "$cluster") in each.labels for each in selectors)
    assert cluster["allValue"] == ".*", "series without the label are shown too"


@pytest.mark.parametrize(
    ("query", "problems"),
    [
        ("sum by (action) (pileus_node_breaker_open)", []),
        ("pileus_node_braker_open == 1", ["there is no metric pileus_node_braker_open"]),
        ('workqueue_depth{queue="x"}', ["workqueue_depth has no label queue"]),
        ("sum by (verb) (rate(workqueue_adds_total[5m]))", ["no series has verb"]),
        ("rate(pileus_cloud_call_duration_seconds[5m])",
         ["there is no metric pileus_cloud_call_duration_seconds"]),
        ("sum(rate(pileus_cloud_call_duration_seconds_count[5m])) by (le)", ["no series has le"]),
    ],
)  # fmt: skip
def test_a_wrong_name_is_found(query: str, problems: list[str]):
    assert list(wrong(parsed(query))) == problems


def test_what_is_not_promql_is_refused():
    with pytest.raises(NotPromql):
        parsed("up ~ 1")


@pytest.mark.parametrize("path", FILES)
def test_the_files_for_prometheus_and_grafana_are_up_to_date(path: Any):
    assert path.read_text(encoding="utf-8") == FILES[path](), "run `make docs`"


def test_a_service_monitor_reads_with_the_account_of_prometheus():
    found = printed(LOCAL, "--monitoring=service", "--prometheus-account=mon/prom")

    monitor, service = of_kind(found, "ServiceMonitor"), of_kind(found, "Service")
    selected = monitor["spec"]["selector"]["matchLabels"]
    assert selected.items() <= service["metadata"]["labels"].items()
    pod = of_kind(found, "Deployment")["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert [each["path"] for each in monitor["spec"]["endpoints"]] == list(PATHS)
    assert {each["port"] for each in monitor["spec"]["endpoints"]} == {
        service["spec"]["ports"][0]["name"]
    }
    reader = {"kind": "ServiceAccount", "name": "prom", "namespace": "mon"}
    assert readers(found) == [reader]


def test_a_pod_monitor_reads_with_an_account_that_can_do_nothing_else():
    found = printed(LOCAL, "--monitoring=pod", "--secure-port=1234", "--daemonset")

    monitor, secret = of_kind(found, "PodMonitor"), of_kind(found, "Secret")
    account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
    pod = of_kind(found, "DaemonSet")["spec"]["template"]
    labels = monitor["spec"]["selector"]["matchLabels"]
    assert labels.items() <= pod["metadata"]["labels"].items()
    for endpoint in monitor["spec"]["podMetricsEndpoints"]:
        assert endpoint["authorization"]["credentials"]["name"] == secret["metadata"]["name"]
        assert [
            re.fullmatch(each["regex"], ip) and each["replacement"].replace("$1", ip)
            for ip, each in zip(("10.0.0.1", "fd00::1"), endpoint["relabelings"], strict=False)
        ] == ["10.0.0.1:1234", "[fd00::1]:1234"]
    assert [each["name"] for each in readers(found)] == [account]
    bound = [subject["name"] for each in found for subject in each.get("subjects", ())]
    assert bound.count(account) == 1


def readers(found: list[dict[str, Any]]) -> list[dict[str, str]]:
    """The accounts that may read the metrics."""
    roles = {
        each["metadata"]["name"]
        for each in found
        if each["kind"] == "ClusterRole"
        for rule in each["rules"]
        if set(PATHS) <= set(rule.get("nonResourceURLs", ())) and rule["verbs"] == ["get"]
    }
    bindings = [each for each in found if each["kind"] == "ClusterRoleBinding"]
    return [
        subject
        for each in bindings
        if each["roleRef"]["name"] in roles
        for subject in each["subjects"]
    ]


def test_alerts_and_dashboard_can_be_selected_by_labels():
    found = printed(
        LOCAL,
        "--monitoring=service",
        "--monitoring-labels=release=prometheus,team=cloud",
        "--runbook-url=https://wiki.example/",
    )

    rule, shown = of_kind(found, "PrometheusRule"), of_kind(found, "ConfigMap")
    for each in (rule, shown, of_kind(found, "ServiceMonitor")):
        assert {"release": "prometheus", "team": "cloud"}.items() <= each["metadata"][
            "labels"
        ].items()
    assert rule["spec"]["groups"] == groups("https://wiki.example/")
    assert shown["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(shown["data"]["pileus.json"]) == dashboard()


def test_outside_of_the_cluster_there_is_nothing_to_discover():
    kinds = {each["kind"] for each in printed(LOCAL, "--external", "--monitoring=service")}

    assert {"PrometheusRule", "ConfigMap"} <= kinds
    assert not {"Service", "ServiceMonitor", "PodMonitor"} & kinds


def test_nothing_of_it_is_printed_unless_asked_for():
    kinds = {each["kind"] for each in printed(LOCAL)}

    assert not {"PrometheusRule", "ConfigMap", "Service", "ServiceMonitor"} & kinds

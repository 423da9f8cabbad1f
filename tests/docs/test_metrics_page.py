"""The reference page of the metrics is generated, and never behind the declarations."""

from tools import metrics_reference

from pileus.server.metrics import prometheus_text
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics


def test_the_page_in_the_repository_is_what_the_declarations_say():
    shown = metrics_reference.PAGE.read_text(encoding="utf-8")

    assert shown == metrics_reference.page(), "run `make docs`"


def test_metrics_have_the_names_under_which_they_are_served():
    metrics = Metrics(MetricRegistry())
    metrics.authentications.labels("success").inc()
    metrics.queue_adds.labels("Nodes").inc()
    served = prometheus_text(metrics.registry).decode()

    rows = [line for line in metrics_reference.page().splitlines() if line.startswith("| `")]
    names = {row.split("`")[1] for row in rows}

    assert {line.split()[2] for line in served.splitlines() if line.startswith("# TYPE")} <= names
    assert all(row.count(" | ") == 3 for row in rows)

"""Metrics as scrapers see them: names, labels and types of the Go framework."""

import math
import os
import re
from pathlib import Path
from typing import cast

import pytest
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from pileus.server.build import this_build
from pileus.server.health import Kind, Outcome, Slis
from pileus.server.metrics import open_metrics_text, prometheus_text
from pileus.server.process_metrics import add_process_metrics
from pileus.telemetry import metrics as metrics_module
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.metrics import Metrics


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(MetricRegistry())


def test_no_name_ends_in_total_twice_and_nothing_tells_when_it_was_created(metrics: Metrics):
    metrics.requests.labels("200", "GET", "api").inc()
    metrics.queue_wait.labels("node").observe(1)

    text = prometheus_text(metrics.registry).decode()

    assert "# TYPE rest_client_requests_total counter" in text
    assert 'rest_client_requests_total{code="200",host="api",method="GET"} 1\n' in text
    assert "_total_total" not in text
    assert "_created" not in text


def test_counters_that_kubernetes_names_without_total_are_so_named(metrics: Metrics):
    metrics.authentications.labels("success").inc()

    text = prometheus_text(metrics.registry).decode()

    assert (
        '# TYPE authentication_attempts counter\nauthentication_attempts{result="success"}' in text
    )
    assert "authentication_attempts_total" not in text


def test_a_metric_without_samples_is_left_out_as_in_go(metrics: Metrics):
    assert "workqueue_depth" not in prometheus_text(metrics.registry).decode()

    metrics.queue_depth.labels("node").set(3)

    assert 'workqueue_depth{name="node"} 3\n' in prometheus_text(metrics.registry).decode()


def test_any_label_value_survives(metrics: Metrics):
    registry = MetricRegistry()
    odd = 'a"b\\c\nd'
    registry.gauge("odd", "text\nof \\ two lines", ("label",)).labels(odd).set(float("inf"))

    text = prometheus_text(registry).decode()

    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"label": odd}
    assert family.documentation == "text\nof \\ two lines"


def test_the_process_tells_of_itself(metrics: Metrics):
    add_process_metrics(metrics.registry, this_build())

    text = prometheus_text(metrics.registry).decode()

    for name in ("process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"):
        assert re.search(rf"^{name} \d", text, re.MULTILINE)
    assert re.search(
        r'^kubernetes_build_info\{.*git_version="v1\.37\.1\+pileus', text, re.MULTILINE
    )


def test_metrics_are_counted_by_their_stability(metrics: Metrics):
    add_process_metrics(metrics.registry, this_build())
    text = prometheus_text(metrics.registry).decode()
    declared = re.findall(r'"(\[ALPHA\]|\[BETA\]) ', Path(metrics_module.__file__).read_text())

    def count(level: str) -> float | None:
        labels = {"stability_level": level, "deprecated_version": ""}
        return metrics.registry.value("registered_metrics_total", labels)

    assert count("ALPHA") == declared.count("[ALPHA]") + 1, "the build is beside the others"
    assert count("BETA") == declared.count("[BETA]")
    assert 'registered_metrics_total{deprecated_version="",stability_level="BETA"} 1\n' in text


def test_open_metrics_end_as_they_must(metrics: Metrics):
    metrics.queue_adds.labels("node").inc()

    text = open_metrics_text(metrics.registry).decode()

    assert 'workqueue_adds_total{name="node"} 1.0' in text
    assert "_created" not in text
    assert text.endswith("# EOF\n")


def test_the_process_is_described_as_by_the_library(metrics: Metrics):
    library = CollectorRegistry()
    ProcessCollector(registry=library)
    GCCollector(registry=library)
    PlatformCollector(registry=library)
    add_process_metrics(metrics.registry, this_build())

    shown = open_metrics_text(metrics.registry).decode().splitlines()

    expected = cast("bytes", generate_latest(library)).decode().splitlines()
    assert {_without_value(line) for line in expected} <= {_without_value(line) for line in shown}


def _without_value(line: str) -> str:
    return line if line.startswith("#") else line.rpartition(" ")[0]


def test_values_of_the_process(tmp_path: Path):
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1000\n")
    process = tmp_path / "self"
    (process / "fd").mkdir(parents=True)
    (process / "fd" / "0").touch()
    fields = [str(each) for each in range(3, 53)]
    (process / "stat").write_text(f"7 (a) b) S {' '.join(fields[1:])}\n")
    (process / "limits").write_text(
        "Max open files            1024    unlimited    files\n"
        "Max address space         unlimited    unlimited    bytes\n"
    )
    (process / "net").mkdir()
    (process / "net" / "netstat").write_text(
        "TcpExt: A InOctets\nTcpExt: 1 2\nIpExt: X InOctets OutOctets\nIpExt: 3 40 50\n"
    )
    registry = MetricRegistry()

    add_process_metrics(registry, this_build(), tmp_path)

    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert registry.value("process_cpu_seconds_total") == 14 / ticks + 15 / ticks
    assert registry.value("process_start_time_seconds") == 22 / ticks + 1000
    assert registry.value("process_virtual_memory_bytes") == 23
    assert registry.value("process_resident_memory_bytes") == 24 * page
    assert registry.value("process_open_fds") == 1
    assert registry.value("process_max_fds") == 1024
    assert registry.value("process_virtual_memory_max_bytes") == float(2**64 - 1)
    assert registry.value("process_network_receive_bytes_total") == 40
    assert registry.value("process_network_transmit_bytes_total") == 50


def test_files_without_a_limit_and_files_that_may_not_be_read(tmp_path: Path):
    (tmp_path / "stat").write_text("btime 1000\n")
    process = tmp_path / "self"
    (process / "fd").mkdir(parents=True)
    (process / "stat").write_text(f"7 (a) S {' '.join(['0'] * 49)}\n")
    registry = MetricRegistry()
    add_process_metrics(registry, this_build(), tmp_path)

    assert registry.value("process_open_fds") is None
    assert registry.value("process_virtual_memory_bytes") == 0

    (process / "limits").write_text("Max open files   unlimited    unlimited    files\n")

    assert registry.value("process_max_fds") == math.inf


def test_a_system_without_proc_has_no_metrics_of_it(tmp_path: Path):
    registry = MetricRegistry()

    add_process_metrics(registry, this_build(), tmp_path / "absent")

    text = prometheus_text(registry).decode()
    assert "process_" not in text
    assert "python_gc_collections_total" in text


def test_slis_count_outcomes_until_reset():
    slis = Slis()
    slis.observe(Kind.HEALTHZ, Outcome("lease"))
    slis.observe(Kind.HEALTHZ, Outcome("lease", "too old"))

    text = prometheus_text(slis.registry).decode()

    assert 'kubernetes_healthcheck{name="lease",type="healthz"} 0' in text
    for status in ("success", "error"):
        labels = f'name="lease",status="{status}",type="healthz"'
        assert f"kubernetes_healthchecks_total{{{labels}}} 1\n" in text

    slis.reset()

    assert prometheus_text(slis.registry) == b""

"""Metrics of the process itself, with the names that Prometheus' client libraries give them."""

import gc
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import inf
from pathlib import Path

import msgspec

from pileus.server.build import Build
from pileus.telemetry.instruments import Family, MetricRegistry, Reading, Sample

PROC = Path("/proc")
_UNLIMITED = "unlimited"
_LEVEL = re.compile(r"\[([A-Z]+)\] ")
_NO_LIMIT = float(2**64 - 1)
"""How client_golang shows memory without a limit."""


def add_process_metrics(registry: MetricRegistry, build: Build, proc: Path = PROC) -> None:
    """Add metrics of the process: build, CPU, memory, files, garbage collection.

    Without those of the operating system where there is no `/proc`.
    """
    boot = _boot_time(proc)
    if boot is not None:
        registry.add_source(lambda: _of_process(proc / "self", boot))
    registry.add_source(_of_collector)
    version = sys.version.split()[0]
    major, minor, patch_level = version.split(".")
    python = {
        "implementation": "CPython",
        "version": version,
        "major": major,
        "minor": minor,
        "patchlevel": patch_level,
    }
    _add_info(registry, "python_info", "Python platform information", python)
    text = "[ALPHA] Always 1; the labels say which build this is"
    _add_info(registry, "kubernetes_build_info", text, msgspec.structs.asdict(build))
    registry.add_source(lambda: _of_registry(registry))


_NEVER = (
    ("disabled_metrics_total", "[BETA] Always 0: no metric can be disabled"),
    ("hidden_metrics_total", "[BETA] Always 0: no metric is hidden"),
    (
        "cardinality_enforcement_unexpected_categorizations_total",
        "[ALPHA] Always 0: label values are not restricted",
    ),
)
"""What Kubernetes components count about their metrics, and what does not happen here."""


def _of_registry(registry: MetricRegistry) -> Iterator[Reading]:
    """Returns how many metrics are declared, by stability level: `[ALPHA]` in their texts."""
    levels = Counter(match[1] for one in registry.families() if (match := _LEVEL.match(one.text)))
    text = "[BETA] Number of registered metrics, by stability level and deprecation version"
    labels = ("stability_level", "deprecated_version")
    family = Family("registered_metrics_total", "counter", labels, text)
    values = sorted(levels.items())
    yield Reading(
        family, [Sample(family.name, dict(zip(labels, (k, ""), strict=True)), n) for k, n in values]
    )
    for name, text in _NEVER:
        yield Reading(Family(name, "counter", (), text), [Sample(name, {}, 0)])


def _add_info(registry: MetricRegistry, name: str, text: str, labels: dict[str, str]) -> None:
    registry.gauge(name, text, tuple(labels)).labels(*labels.values()).set(1)


def _boot_time(proc: Path) -> float | None:
    """Returns the time at which the machine was started; None if this system does not say."""
    try:
        lines = (proc / "stat").read_text().splitlines()
    except OSError:
        return None
    return next((float(line.split()[1]) for line in lines if line.startswith("btime ")), None)


def _of_process(process: Path, boot: float) -> Iterator[Reading]:
    """Returns what can be read now: the limits of a process may be hidden from it."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    fields = [int(each) for each in (process / "stat").read_text().rpartition(")")[2].split()[1:]]
    user, system, start, virtual, resident = (fields[each] for each in (10, 11, 18, 19, 20))
    yield _gauge("process_virtual_memory_bytes", "Virtual memory size in bytes.", virtual)
    yield _gauge("process_resident_memory_bytes", "Resident memory size in bytes.", resident * page)
    text = "Start time of the process since unix epoch in seconds."
    yield _gauge("process_start_time_seconds", text, start / ticks + boot)
    name, text = "process_cpu_seconds_total", "Total user and system CPU time spent in seconds."
    used = Sample(name, {}, user / ticks + system / ticks)
    yield Reading(Family(name, "counter", (), text), [used])
    yield from _of_network(process / "net" / "netstat")
    try:
        limits = (process / "limits").read_text().splitlines()
        files = len(os.listdir(process / "fd"))
    except OSError:
        return
    yield _gauge("process_open_fds", "Number of open file descriptors.", files)
    most = _limit(limits, "Max open files")
    yield _gauge("process_max_fds", "Maximum number of open file descriptors.", most or inf)
    most, text = _limit(limits, "Max address space"), "Maximum amount of virtual memory available"
    yield _gauge("process_virtual_memory_max_bytes", f"{text} in bytes.", most or _NO_LIMIT)


def _limit(lines: Sequence[str], name: str) -> float | None:
    """Returns the soft limit of that name; None if there is none."""
    found = (line.removeprefix(name).split()[0] for line in lines if line.startswith(name))
    most = next(found, _UNLIMITED)
    return None if most == _UNLIMITED else float(most)


def _of_network(netstat: Path) -> Iterator[Reading]:
    """Returns the traffic of the network namespace: names in one line, values in the next."""
    try:
        lines = [line.split() for line in netstat.read_text().splitlines()]
    except OSError:
        return
    counts: dict[str, str] = {}
    for names, values in pairwise(lines):
        if names[:1] == values[:1] == ["IpExt:"]:
            counts = dict(zip(names, values, strict=False))
    for key, name, what in (
        ("InOctets", "receive", "received"),
        ("OutOctets", "transmit", "sent"),
    ):
        text = f"Number of bytes {what} by the process over the network."
        family = Family(f"process_network_{name}_bytes_total", "counter", (), text)
        yield Reading(family, [Sample(family.name, {}, float(counts.get(key, 0)))])


def _gauge(name: str, text: str, value: float) -> Reading:
    return Reading(Family(name, "gauge", (), text), [Sample(name, {}, value)])


def _of_collector() -> Iterator[Reading]:
    """Returns counters of the garbage collector, by generation."""
    stats = gc.get_stats()
    for key, name, text in (
        ("collected", "objects_collected", "Objects collected during gc"),
        ("uncollectable", "objects_uncollectable", "Uncollectable objects found during GC"),
        ("collections", "collections", "Number of times this generation was collected"),
    ):
        family = Family(f"python_gc_{name}_total", "counter", ("generation",), text)
        yield Reading(
            family,
            [
                Sample(family.name, {"generation": str(generation)}, stat[key])
                for generation, stat in enumerate(stats)
            ],
        )

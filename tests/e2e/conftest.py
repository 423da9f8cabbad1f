"""One bed for all tests, which build on each other and run in the order of the file."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.node_bed.bed import LOGS, NODES, Bed

from tests.e2e.installation import STORY, Installation

VARIABLE = "PILEUS_NODE_BED"
STEPS = pytest.StashKey[list[tuple[str, str, float]]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("e2e") and VARIABLE not in os.environ:
            reason = "THE MANAGER WAS NOT DEPLOYED ON REAL NODES. Include it: make e2e (needs root)"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def installation() -> Iterator[Installation]:
    started = time.monotonic()
    STORY.unlink(missing_ok=True)
    with Bed(Path(os.environ[VARIABLE])) as bed:
        made = Installation(bed)
        made.report(f"control plane and local cloud run ({time.monotonic() - started:.0f} s)")
        for node in NODES:
            bed.start_node(node)
            made.report(f"{node.name} runs: containerd and kubelet --cloud-provider=external")
        yield made
        made.keep_logs(LOGS)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STEPS] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    report = yield
    if report.when == "call" and item.get_closest_marker("e2e"):
        title = item.name.removeprefix("test_").replace("_", " ")
        item.config.stash[STEPS].append((report.outcome, title, report.duration))
        outcome = f"{report.outcome}: {title} ({report.duration:.0f} s)"
        sys.stderr.write(f"e2e: {outcome}\n\n")
        with STORY.open("a") as story:
            story.write(f"         {outcome}\n\n")
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    steps = terminalreporter.config.stash[STEPS]
    if not steps:
        return
    terminalreporter.section("end to end")
    for outcome, title, seconds in steps:
        terminalreporter.write_line(f"{outcome:8}{seconds:6.0f} s  {title}")
    terminalreporter.write_line(f"story, logs and audit log: {LOGS}")

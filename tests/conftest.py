"""Every async test runs in virtual time unless it is marked `real_time`, or in `real`."""

import asyncio
import gc
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from pileus.testing.virtual_time import VirtualTimeLoop

REAL = Path(__file__).parent / "real"

# A loaded machine is slow, and that is no reason for a property test to fail. `make test` is to
# be quick, and to fail because of a change and never by chance: it has the same examples each time.
# `pytest --hypothesis-profile=thorough` looks for what is rare.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("pileus", PATIENT, max_examples=50, derandomize=True)
settings.register_profile("thorough", PATIENT, max_examples=1000)
settings.load_profile("pileus")


@pytest.fixture(autouse=True)
def thawed() -> Iterator[None]:
    """The manager's informers freeze what they listed; no other test should live with that."""
    yield
    gc.unfreeze()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if REAL in item.path.parents or item.get_closest_marker("real_time"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualTimeLoop}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin what takes a minute early: begun last, it would keep one worker idle that long."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse to run tests of one group on several workers: two beds would be in each other's way.

    pytest-xdist writes the group into the ID of a test, which some versions of pytest ignore.
    """
    if getattr(session.config.option, "loadgroup", False):
        for item in session.items:
            if item.get_closest_marker("xdist_group") and "@" not in item.nodeid:
                raise pytest.UsageError(f"the group of {item.nodeid} has no effect: check xdist")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Leave word of skipped tests for `make test`, which says it last and loudly."""
    skipped = terminalreporter.stats.get("skipped", [])
    where = os.environ.get("PILEUS_SKIPPED")
    if skipped and where:
        reasons = sorted({str(report.longrepr[2]) for report in skipped})
        lines = [f"*** {len(skipped)} TESTS WERE SKIPPED:", *reasons]
        Path(where).write_text("\n*** ".join(lines) + "\n")

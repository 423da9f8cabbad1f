import asyncio
import time

import pytest

from pileus.runtime.watchdog import watched_loop
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.log import VALUES
from pileus.telemetry.metrics import Metrics

pytestmark = pytest.mark.real_time
LIMIT = 0.1


def standstills(metrics: Metrics) -> float:
    name = "pileus_event_loop_standstills_total"
    return metrics.registry.value(name) or 0.0


def a_provider_that_blocks(until: float, metrics: Metrics) -> None:
    """Until it was told, so that no machine is too slow for this test."""
    while standstills(metrics) == 0 and time.monotonic() < until:
        time.sleep(LIMIT)


async def test_a_blocked_loop_is_told_with_the_line_that_blocks_it(caplog):
    metrics = Metrics(MetricRegistry())

    with watched_loop(metrics, limit=LIMIT):
        a_provider_that_blocks(time.monotonic() + 30, metrics)
        while "no longer blocked" not in caplog.text:
            await asyncio.sleep(LIMIT)

    told = next(r for r in caplog.records if "Event loop is blocked" in r.message)
    place = vars(told)[VALUES]["at"]
    assert f"{__name__.split('.')[-1]}.py:" in place
    assert "a_provider_that_blocks" in place
    assert standstills(metrics) >= 1


async def test_a_loop_that_only_waits_is_left_alone(caplog):
    metrics = Metrics(MetricRegistry())

    with watched_loop(metrics, limit=5):
        await asyncio.sleep(0.05)

    assert standstills(metrics) == 0
    assert "event loop" not in caplog.text.lower()

"""Counts and times every call to the cloud."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import TypeVar

from prometheus_client import Counter, Histogram

from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, wrap
from pileus.telemetry.metrics import Metrics

T = TypeVar("T")


def measured(cloud: Cloud, metrics: Metrics) -> Cloud:
    """Each call counts once, by how it ended: success, an error's name, or cancelled."""
    # Found once: finding an instrument by its labels costs more than using it.
    figures = cache(partial(_figures, metrics, cloud.name))

    async def around(call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        began = asyncio.get_running_loop().time()
        result = "success"
        try:
            return await proceed()
        except CloudError as error:
            result = type(error).__name__
            raise
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        except BaseException:
            result = "crash"
            raise
        finally:
            elapsed = asyncio.get_running_loop().time() - began
            found = figures(call.capability, call.method, result)
            found.calls.inc()
            found.items.inc(call.items)
            found.duration.observe(elapsed)

    return wrap(cloud, around)


@dataclass(frozen=True, slots=True)
class _Figures:
    """What is measured of the calls of one method that end in one way."""

    calls: Counter
    items: Counter
    duration: Histogram


def _figures(
    metrics: Metrics, provider: str, capability: str, method: str, result: str
) -> _Figures:
    place = (provider, capability, method)
    return _Figures(
        calls=metrics.cloud_calls.labels(*place, result),
        items=metrics.cloud_call_items.labels(*place),
        duration=metrics.cloud_call_duration.labels(*place),
    )

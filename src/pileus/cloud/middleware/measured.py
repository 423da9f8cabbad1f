"""Counts and times every call to the cloud."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from pileus.cloud.errors import CloudError
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, wrap
from pileus.telemetry.metrics import Metrics

T = TypeVar("T")


def measured(cloud: Cloud, metrics: Metrics) -> Cloud:
    """Each call counts once, by how it ended: success, an error's name, or cancelled."""

    async def around(call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        place = (call.provider, call.capability, call.method)
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
            metrics.cloud_calls.labels(*place, result).inc()
            metrics.cloud_call_items.labels(*place).inc(call.items)
            metrics.cloud_call_duration.labels(*place).observe(elapsed)

    return wrap(cloud, around)

"""Every async test runs in virtual time unless it is marked `real_time`."""

import asyncio
from collections.abc import Callable, Mapping

import pytest

from pileus.testing.virtual_time import VirtualTimeLoop


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    if item.get_closest_marker("real_time") or item.get_closest_marker("real_cluster"):
        return {"real": asyncio.new_event_loop}
    return {"virtual": VirtualTimeLoop}

"""Lets no write leave a process that may no longer be the leader."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, wrap
from pileus.cloud.permission import permitted_by
from pileus.fence import Fence

T = TypeVar("T")


def fenced(cloud: Cloud, fence: Fence) -> Cloud:
    """Errors: `Fenced` for a write without a young lease; the provider is then not called.

    A provider that makes several requests for one call asks anew, by `check_permission`.
    """

    async def around(call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        if not call.writes:
            return await proceed()
        fence.check()
        with permitted_by(fence.check):
            return await proceed()

    return wrap(cloud, around)

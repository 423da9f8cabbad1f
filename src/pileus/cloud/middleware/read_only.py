"""A cloud of which everything can be read and nothing changed: writes are refused, not sent."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from pileus.cloud.errors import Unsupported
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, T, wrap


def read_only(cloud: Cloud) -> Cloud:
    """The same cloud; each write raises `Unsupported` and never reaches the provider.

    Controllers that the provider brings along are left out: what they write goes past us.
    """
    return replace(wrap(cloud, _refusing_writes), controllers=())


async def _refusing_writes(call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
    if call.writes:
        raise Unsupported(
            f"{call.name}: not done, for this process may only look at the cloud; "
            "that it was tried is a bug, please report it"
        )
    return await proceed()

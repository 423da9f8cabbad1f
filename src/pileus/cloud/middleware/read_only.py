"""A cloud of which everything can be read and nothing changed: writes are refused, not sent."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from pileus.cloud.errors import Unsupported
from pileus.cloud.interface import Cloud
from pileus.cloud.middleware.calls import Call, wrap

T = TypeVar("T")


def read_only(cloud: Cloud, *, but: frozenset[str] = frozenset()) -> Cloud:
    """The same cloud; each write raises `Unsupported` and never reaches the provider.

    `but` names methods that may write after all, such as `balancers.apply`. Controllers that the
    provider brings along are left out: what they write goes past us.
    """

    async def around(call: Call, proceed: Callable[[], Awaitable[T]]) -> T:
        if call.writes and call.name not in but:
            raise Unsupported(
                f"{call.name}: not done, for this process may only look at the cloud; "
                "that it was tried is a bug, please report it"
            )
        return await proceed()

    return replace(wrap(cloud, around), controllers=())

"""Errors of a cloud, by what the caller does about them.

CloudError            anything else that a provider raises is a bug of that provider
├── NotFound          the object does not exist; its deletion is done
├── Conflict          it was changed meanwhile, or is busy; observe again
├── Throttled         wait `retry_after` seconds; None: retry with exponential back-off
├── Unavailable       the cloud is at fault, or did not answer in time; retry with back-off
├── Unsupported       this cloud cannot do that; do without
└── Rejected          the request is invalid; retrying does not help until something changes
    ├── QuotaExceeded   free something, or raise the quota
    ├── Unauthorized    fix the credentials or their rights
    └── Misconfigured   fix the configuration, annotation or option that the message names
        └── NeedsMembers  wait until the load balancer has members, or fix what the message names
"""

from collections.abc import Awaitable, Callable, Sequence
from math import isfinite
from typing import TypeVar

from pileus.telemetry.mask import masked

T = TypeVar("T")
LONGEST_RETRY_AFTER = 120.0
"""Seconds of a `Retry-After` that are honoured; a cloud that asks for more is asked again then."""


class CloudError(Exception):
    """Base of everything that a provider may raise.

    Its text often quotes an answer of the cloud. Events, conditions, logs, plans and explanations
    show it, so it has no secrets and is bounded: see `masked`.
    """

    def __str__(self) -> str:
        return masked(super().__str__())

    asked: tuple[tuple[str, str], ...] = ()
    """See `pileus.cloud.model.Asked`."""


class NotFound(CloudError):
    pass


class Conflict(CloudError):
    pass


class Throttled(CloudError):
    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        if retry_after is not None:
            retry_after = min(retry_after, LONGEST_RETRY_AFTER) if isfinite(retry_after) else None
        self.retry_after = retry_after
        """Seconds that the cloud asked to wait, `LONGEST_RETRY_AFTER` at most. None if it did not
        say: the pass is retried with exponential back-off, and other calls go on."""


class Unavailable(CloudError):
    pass


class Unsupported(CloudError):
    pass


class Rejected(CloudError):
    pass


class QuotaExceeded(Rejected):
    pass


class Unauthorized(Rejected):
    pass


class Misconfigured(Rejected):
    pass


class NeedsMembers(Misconfigured):
    """A load balancer cannot be created before a member is known, for example its subnet.

    It is tried again as soon as the members change, and reported only if it lasts.
    """


async def errors_of(
    items: Sequence[T], act: Callable[[T], Awaitable[object]]
) -> dict[T, CloudError]:
    """Act on one item after the other. Returns the errors of those that failed.

    For methods that return errors by item, of clouds with one request per item. A failed item does
    not keep the next ones from being tried. After `Throttled` no further request is made: the
    remaining items have this error.
    """
    errors: dict[T, CloudError] = {}
    for number, item in enumerate(items):
        try:
            await act(item)
        except Throttled as error:
            return errors | dict.fromkeys(items[number:], error)
        except CloudError as error:
            errors[item] = error
    return errors

"""Properties of errors that end a pass: whether they are expected, and when to retry."""

import math
from collections.abc import Iterator
from typing import cast

from pileus.cloud.errors import CloudError, Throttled
from pileus.fence import Fenced
from pileus.kube.errors import ApiError, KubeError

MOST_CAUSES = 10
"""Causes of an error that are checked: an error that was raised from itself is its own cause."""
SHORTEST_HINT = 1.0
"""Seconds. A server that asks for less (`Retry-After: 0`) must not cause a busy loop."""


class PassTooLong(Exception):
    """A pass did not end by its deadline and was cancelled."""


_EXPECTED = (CloudError, KubeError, Fenced, PassTooLong)


def is_expected(error: BaseException) -> bool:
    """Returns whether cloud, API server or leadership cause such errors; any other is a bug."""
    return all(isinstance(each, _EXPECTED) for each in leaves(error))


def is_fenced(error: BaseException) -> bool:
    """Returns whether the pass ended because this process is not the leader."""
    return any(isinstance(each, Fenced) for each in leaves(error))


def hint(error: BaseException) -> float | None:
    """Returns the seconds that the error asks to wait (`retry_after`); of several the longest.

    An error that was raised from one of the API server, or from a throttled call, asks for as long.
    """
    return max((wait for each in leaves(error) for wait in _waits(each)), default=None)


def server_pause(error: BaseException) -> float:
    """Returns the seconds for which the API server asks not to repeat a request; 0: it does not.

    Pauses that the cloud asks for are not included: its call budget enforces them for all calls.
    """
    answers = (answer for each in leaves(error) for answer in _answers(each))
    return max(
        (each.retry_after or 0.0 for each in answers if isinstance(each, ApiError)), default=0.0
    )


def all_ask_to_wait(error: BaseException) -> bool:
    """Returns whether every error of the group asks for a delay, so that `hint` covers them all."""
    return all(any(True for _ in _waits(each)) for each in leaves(error))


def _waits(error: BaseException) -> Iterator[float]:
    for each in (error, *_answers(error)):
        asked: object = getattr(each, "retry_after", None)
        if isinstance(asked, int | float) and math.isfinite(asked):
            yield max(float(asked), SHORTEST_HINT)


def _answers(error: BaseException) -> Iterator[ApiError | Throttled]:
    """Returns the answers of API server and cloud that the error is, or was raised from.

    Other causes do not count: the error that was raised from them decides when to retry.
    """
    cause: BaseException | None = error
    for _ in range(MOST_CAUSES):
        if isinstance(cause, ApiError | Throttled):
            yield cause
        cause = cause and cause.__cause__


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Returns the errors inside an exception group at any depth; otherwise the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(each)
    else:
        yield error

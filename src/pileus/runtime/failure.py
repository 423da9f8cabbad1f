"""Properties of errors that end a pass: whether they are expected, and when to retry."""

import math
from collections.abc import Iterator
from typing import cast

from pileus.cloud.errors import CloudError
from pileus.fence import Fenced
from pileus.kube.errors import ApiError, KubeError

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
    """Returns the seconds that the error asks to wait (`retry_after`); of several the longest."""
    return max(filter(None, map(_hint, leaves(error))), default=None)


def server_pause(error: BaseException) -> float:
    """Returns the seconds for which the API server asks not to repeat a request; 0: it does not.

    Pauses that the cloud asks for are not included: its call budget enforces them for all calls.
    """
    asked = (each.retry_after or 0.0 for each in leaves(error) if isinstance(each, ApiError))
    return max(asked, default=0.0)


def all_ask_to_wait(error: BaseException) -> bool:
    """Returns whether every error of the group asks for a delay, so that `hint` covers them all."""
    return all(_hint(each) is not None for each in leaves(error))


def _hint(error: BaseException) -> float | None:
    asked: object = getattr(error, "retry_after", None)
    if not isinstance(asked, int | float) or not math.isfinite(asked):
        return None
    return max(float(asked), SHORTEST_HINT)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Returns the errors inside an exception group at any depth; otherwise the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(each)
    else:
        yield error

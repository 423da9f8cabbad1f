"""What a failed pass says about itself: whose fault it is, and when to try again."""

import math
from collections.abc import Iterator
from typing import cast

from pileus.cloud.errors import CloudError
from pileus.fence import Fenced
from pileus.kube.errors import KubeError

SHORTEST_HINT = 1.0
"""Seconds; a server that asks for less (say, `Retry-After: 0`) must not make us spin."""


class PassTooLong(Exception):
    """A pass did not end by its deadline and was cancelled."""


_EXPECTED = (CloudError, KubeError, Fenced, PassTooLong)


def is_expected(error: BaseException) -> bool:
    """Whether the error is one that the world may cause; any other is a bug of ours."""
    return all(isinstance(each, _EXPECTED) for each in leaves(error))


def is_fenced(error: BaseException) -> bool:
    """Whether the pass ended because this process does not lead (any more)."""
    return any(isinstance(each, Fenced) for each in leaves(error))


def hint(error: BaseException) -> float | None:
    """The seconds that the error asks to wait (`retry_after`); of several the longest."""
    return max(filter(None, map(_hint, leaves(error))), default=None)


def says_all(error: BaseException) -> bool:
    """Whether `hint` speaks for all that failed: each error of the group asks to wait."""
    return all(_hint(each) is not None for each in leaves(error))


def _hint(error: BaseException) -> float | None:
    asked: object = getattr(error, "retry_after", None)
    if not isinstance(asked, int | float) or not math.isfinite(asked):
        return None
    return max(float(asked), SHORTEST_HINT)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The errors inside an exception group, however deep; else the error itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(each)
    else:
        yield error

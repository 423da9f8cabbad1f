"""For methods that make several requests: whether the next one may still leave this process.

The fence is asked before a method is called. One that goes on for a while, be it that the process
was frozen in the midst of it, could write when somebody else leads already.
"""

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from pileus.cloud.errors import Unavailable
from pileus.fence import Fence, Fenced

_FENCE: ContextVar[Fence | None] = ContextVar("fence", default=None)


def check_permission() -> None:
    """To be called right before each request that changes something, but a method's first.

    Errors: `Unavailable` if this process may no longer lead; what is left is the next one's.
    """
    fence = _FENCE.get()
    try:
        if fence is not None:
            fence.check()
    except Fenced as error:
        raise Unavailable(f"left undone: {error}") from error


@contextmanager
def permitted_by(fence: Fence) -> Generator[None]:
    """Let `check_permission` ask this fence within the block, and in tasks started there."""
    token = _FENCE.set(fence)
    try:
        yield
    finally:
        _FENCE.reset(token)

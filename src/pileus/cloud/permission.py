"""Whether one more request of a method that makes several may still leave this process.

All is asked before a method is called. In the midst of one that goes on for a while somebody else
may come to lead, be it that this process was frozen; and the cloud may ask for silence, be it in
answer to another caller.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from pileus.cloud.errors import CloudError, Throttled, Unavailable
from pileus.fence import Fenced

Check = Callable[[], None]
Hear = Callable[[float], None]
"""What is to be called with the seconds for which the cloud wants silence."""

_ASKED: ContextVar[tuple[tuple[Check, Hear], ...]] = ContextVar("asked", default=())


def check_permission() -> None:
    """To be called right before each request; best in the one place where all of them leave.

    Errors: `Throttled` while the cloud wants silence; and `Unavailable`, in a method that changes
    something, if this process may no longer lead. What is left undone is for later, or for others.
    """
    try:
        for check, _ in _ASKED.get():
            check()
    except Fenced as error:
        raise Unavailable(f"left undone: {error}") from error


def pass_on(error: CloudError) -> None:
    """For methods that make requests side by side: what one is told holds for the others at once.

    Without it they hear of the cloud's wish for silence when the method has ended.
    """
    if isinstance(error, Throttled) and error.retry_after is not None:
        for _, hear in _ASKED.get():
            hear(error.retry_after)


@contextmanager
def permitted_by(check: Check, hear: Hear = lambda _: None) -> Generator[None]:
    """Let the functions above ask and tell these, too, in the block and in tasks started there."""
    token = _ASKED.set((*_ASKED.get(), (check, hear)))
    try:
        yield
    finally:
        _ASKED.reset(token)

"""Whether a provider may send one more request, in a method that makes several.

The fence and the call budget are checked before a method is called. While the method runs, another
process may become the leader, for example because this one was suspended; and the cloud may ask
another caller to pause. So providers call `check_permission` right before each request.
"""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar

from pileus.cloud.errors import CloudError, Throttled, Unavailable
from pileus.fence import Fenced

Check = Callable[[], None]
Pause = Callable[[float], None]
"""Is called with the seconds for which the cloud asks to pause."""

_ACTIVE: ContextVar[tuple[tuple[Check, Pause], ...]] = ContextVar("permission", default=())


def check_permission() -> None:
    """Call right before each request, best in the one place that sends all of them.

    Works in tasks and threads of the method, too. Raises `Throttled` during a pause that the cloud
    asked for; `Unavailable` in a method that writes, if this process may no longer be the leader,
    and in a thread whose call was cancelled.
    """
    try:
        for check, _ in _ACTIVE.get():
            check()
    except Fenced as error:
        raise Unavailable(f"request not sent: {error}") from error


def pass_on(error: CloudError) -> None:
    """Call with an error of one of several concurrent requests: a pause then holds for all at once.

    Without it, the pause begins when the method has ended. Other errors have no effect.
    """
    if isinstance(error, Throttled) and error.retry_after is not None:
        for _, pause in _ACTIVE.get():
            pause(error.retry_after)


@contextmanager
def permitted_by(check: Check, pause: Pause = lambda _: None) -> Generator[None]:
    """Add a check and a listener, in the block and in tasks and threads that it starts."""
    token = _ACTIVE.set((*_ACTIVE.get(), (check, pause)))
    try:
        yield
    finally:
        _ACTIVE.reset(token)

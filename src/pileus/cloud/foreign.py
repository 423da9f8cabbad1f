"""Foreign code on a short leash: a provider's context managers, whatever they do wrong.

One that hangs, exits the process, cancels itself or swallows our errors is told from one that
works, and harms nobody but itself.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

from pileus.cloud.errors import CloudError, Unavailable
from pileus.telemetry.log import Log

T = TypeVar("T")
log = Log(__name__)

ENTERING = 60.0
"""Seconds that a provider has for connecting, and again for its start when we lead."""
LEAVING = 15.0
"""Seconds that it has for its end; the process does not wait any longer."""


def is_its_own(error: BaseException) -> bool:
    """Whether foreign code raised it by itself; no: we cancelled it, or the user pressed Ctrl-C."""
    match error:
        case asyncio.CancelledError():
            task = asyncio.current_task()
            return task is not None and not task.cancelling()
        case KeyboardInterrupt() | GeneratorExit():
            return False
        case _:
            return True


@asynccontextmanager
async def entered(
    failed: str, make: Callable[[], AbstractAsyncContextManager[T]]
) -> AsyncGenerator[T]:
    """Hold what `make` returns open for as long as the block lasts.

    Guarantees: an error of the block is raised on, also if the provider would swallow it; what
    goes wrong on leaving is logged, and no more.
    Errors: while entering, the provider's `CloudError`, with `failed` as a note; anything else,
    and a lack of answer, is `Unavailable`, beginning with `failed`.
    """
    manager, value = await _enter(failed, make)
    try:
        yield value
    except BaseException as error:
        await _leave(failed, manager, error)
        raise
    await _leave(failed, manager, None)


async def _enter(
    failed: str, make: Callable[[], AbstractAsyncContextManager[T]]
) -> tuple[AbstractAsyncContextManager[T], T]:
    timer = asyncio.timeout(ENTERING)
    try:
        manager = make()
        _verify(manager)
        async with timer:
            return manager, await manager.__aenter__()
    except CloudError as error:
        error.add_note(failed)
        raise
    except BaseException as error:
        if timer.expired():
            raise Unavailable(f"{failed}: no answer within {ENTERING:g} s") from error
        if is_its_own(error):
            raise Unavailable(f"{failed}: {type(error).__name__}: {error}") from error
        raise


def _verify(made: object) -> None:
    if isinstance(made, AbstractAsyncContextManager):
        return
    if inspect.iscoroutine(made):
        made.close()
    raise TypeError(
        f"a {type(made).__name__} is no async context manager; "
        "contextlib.asynccontextmanager makes one of an async generator function"
    )


async def _leave(
    failed: str, manager: AbstractAsyncContextManager[T], error: BaseException | None
) -> None:
    timer = asyncio.timeout(LEAVING)
    trace = error.__traceback__ if error else None
    try:
        async with timer:
            await manager.__aexit__(type(error) if error else None, error, trace)
    except BaseException as raised:
        if timer.expired():
            log.error("The cloud provider did not end; it is abandoned", before=failed)
        elif raised is not error and not is_its_own(raised):
            raise
        elif raised is not error:
            log.exception("The cloud provider failed while it ended", error=raised)

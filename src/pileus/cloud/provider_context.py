"""Enters and leaves the context managers of providers, whatever they do wrong.

A provider that hangs, exits the process, cancels itself or swallows errors fails by itself and
affects nothing else.
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
"""Seconds that a provider has to connect, and again to start when this process is the leader."""
LEAVING = 15.0
"""Seconds that it has to end. The process does not wait any longer."""


def is_its_own(error: BaseException) -> bool:
    """Whether the provider raised it by itself. False for our cancellation and for Ctrl-C."""
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
    """Enter what `make` returns, while the block lasts.

    Guarantees: an error of the block is raised, also if the provider swallows it. What goes wrong
    on leaving is only logged.
    Raises, on entering, the `CloudError` of the provider, with `failed` as a note; `Unavailable`,
    beginning with `failed`, for anything else and if there is no answer in time.
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
        f"{type(made).__name__} is not an async context manager; "
        "decorate an async generator function with contextlib.asynccontextmanager"
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
            log.error("Cloud provider did not stop, abandoning it", provider_context=failed)
        elif raised is not error and not is_its_own(raised):
            raise
        elif raised is not error:
            log.exception("Cloud provider failed while stopping", error=raised)

"""Runs one blocking call in a thread of its own, which nobody waits for when the process ends.

A pool would be joined at exit: a provider that hangs for ever must not keep the process alive.
"""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from threading import Thread
from typing import TypeVar, cast

T = TypeVar("T")


async def in_thread(call: Callable[[], T], ended: Callable[[], None] = lambda: None) -> T:
    """Await its answer or error. `ended` is called in the loop when the thread has really ended.

    Who is cancelled stops waiting; the thread cannot be stopped, and goes on.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()

    def settle(answer: T | None, error: BaseException | None) -> None:
        ended()
        if outcome.done():
            return
        if error is None:
            outcome.set_result(cast("T", answer))
        else:
            outcome.set_exception(error)

    work = (copy_context().run, call, loop, settle)
    Thread(target=_work, args=work, daemon=True).start()
    return await outcome


def _work(
    run: Callable[[Callable[[], T]], T],
    call: Callable[[], T],
    loop: asyncio.AbstractEventLoop,
    settle: Callable[[T | None, BaseException | None], None],
) -> None:
    answer: T | None = None
    error: BaseException | None = None
    try:
        answer = run(call)
    except StopIteration as raised:
        error = RuntimeError(f"raised StopIteration: {raised}")
    except BaseException as raised:  # noqa: BLE001 -- carried to the one who called
        error = raised
    try:
        loop.call_soon_threadsafe(settle, answer, error)
    except RuntimeError:
        return  # the loop is closed: nobody waits any more

"""Processes inside one event loop that can be frozen and thawed, as SIGSTOP or a host would."""

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import Any


class Gate:
    """Closed while its process is frozen."""

    def __init__(self) -> None:
        self._thawed = asyncio.Event()
        self._thawed.set()

    @property
    def is_frozen(self) -> bool:
        return not self._thawed.is_set()

    def freeze(self) -> None:
        self._thawed.clear()

    def thaw(self) -> None:
        self._thawed.set()

    async def wait(self) -> None:
        await self._thawed.wait()


_GATE: ContextVar[Gate] = ContextVar("gate")


class _Steps:
    """Awaits a coroutine, but runs none of its steps while the gate is closed."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], gate: Gate) -> None:
        self._coroutine = coroutine
        self._gate = gate

    def __await__(self) -> Generator[Any, Any, Any]:
        error: BaseException | None = None
        value: Any = None
        while True:
            try:
                if error is not None:
                    awaited = self._coroutine.throw(error)
                else:
                    awaited = self._coroutine.send(value)
            except StopIteration as stop:
                return stop.value
            error = None
            try:
                value = yield awaited
            except BaseException as thrown:
                error = thrown
            while self._gate.is_frozen:
                try:
                    yield from self._gate.wait().__await__()
                except asyncio.CancelledError as cancelled:
                    error = cancelled


async def in_process(gate: Gate, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run the coroutine, and every task that comes out of it, as one process with that gate.

    The loop must make its tasks with `task_factory`.
    """
    _GATE.set(gate)
    await _Steps(coroutine, gate)


async def _freezable(coroutine: Coroutine[Any, Any, Any], gate: Gate) -> Any:
    return await _Steps(coroutine, gate)


def task_factory(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any
) -> asyncio.Task[Any]:
    gate = _GATE.get(None)
    if gate is None:
        return asyncio.Task(coroutine, loop=loop, **options)
    task = asyncio.Task(_freezable(coroutine, gate), loop=loop, **options)
    task.add_done_callback(lambda _: coroutine.close())  # it may not have begun
    return task

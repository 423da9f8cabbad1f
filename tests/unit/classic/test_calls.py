import asyncio
from threading import Barrier, Event, Lock, current_thread, get_ident, main_thread
from typing import Any

import pytest

from pileus.classic.calls import Calls
from pileus.classic.errors import InstanceNotFound, RetryError, Unimplemented, translated
from pileus.cloud.errors import Conflict, Throttled, Unavailable
from pileus.cloud.permission import permitted_by
from pileus.runtime.failure import hint


async def test_plain_methods_run_in_threads_and_async_ones_in_the_loop():
    threads: list[bool] = []

    def plain() -> int:
        threads.append(current_thread() is main_thread())
        return 1

    async def coroutine() -> int:
        threads.append(current_thread() is main_thread())
        return 2

    def returns_awaitable() -> Any:
        return coroutine()

    calls = Calls()
    answers = [await calls.make(method) for method in (plain, coroutine, returns_awaitable)]

    assert answers == [1, 2, 2]
    assert threads == [False, True, True]


async def test_errors_of_threads_reach_the_caller():
    def fail() -> None:
        raise StopIteration("odd")

    with pytest.raises(RuntimeError, match="odd"):
        await Calls().make(fail)


@pytest.mark.real_time
async def test_an_abandoned_thread_keeps_its_key_and_slot_until_it_ends():
    release, calls = Event(), Calls(at_once=1)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await calls.make_alone("s1", release.wait, 30)
    with pytest.raises(Conflict, match="still running"):
        await calls.make_alone("s1", lambda: None)
    with pytest.raises(Unavailable, match="abandoned calls take all 1 threads"):
        await calls.make(lambda: None)

    release.set()
    async with asyncio.timeout(30):
        while await is_refused(calls):
            await asyncio.sleep(0.001)
    assert await calls.make_alone("s1", lambda: 8) == 8


async def is_refused(calls: Calls) -> bool:
    try:
        return await calls.make(lambda: False)
    except Unavailable:
        return True


async def test_what_one_call_is_told_holds_for_those_beside_it():
    calls, made, silence = Calls(at_once=1), list[int](), list[float]()

    async def busy(number: int) -> None:
        made.append(number)
        raise Throttled("busy", retry_after=7)

    def check() -> None:
        if silence:
            raise Throttled("slow down", retry_after=silence[0])

    with permitted_by(check, silence.append):
        errors = await asyncio.gather(
            *(calls.make(busy, number) for number in range(3)), return_exceptions=True
        )

    assert made == [0]
    assert silence == [7]
    assert [type(error) for error in errors] == [Throttled, Throttled, Throttled]
    with pytest.raises(Throttled):
        await calls.make(busy, 3)


async def test_a_wish_to_retry_one_thing_later_holds_nothing_else_up():
    calls, made, silence = Calls(at_once=1), list[int](), list[float]()

    async def at_work(number: int) -> None:
        made.append(number)
        raise RetryError("it is being built", 7)

    with permitted_by(lambda: None, silence.append):
        errors = await asyncio.gather(
            *(calls.make(at_work, number) for number in range(3)), return_exceptions=True
        )

    assert made == [0, 1, 2]
    assert silence == []
    assert [hint(translated(each)) for each in errors if isinstance(each, RetryError)] == [7, 7, 7]


@pytest.mark.real_time
async def test_as_many_threads_as_allowed_run_at_once_and_no_more():
    calls, lock, together = Calls(at_once=3), Lock(), Barrier(3)
    running: set[int] = set()
    counts: list[int] = []

    def work() -> None:
        with lock:
            running.add(get_ident())
            counts.append(len(running))
        together.wait(30)
        with lock:
            running.discard(get_ident())

    async with asyncio.TaskGroup() as group:
        for _ in range(12):
            group.create_task(calls.make(work))

    assert max(counts) == 3


class Sdk:
    def fetch(self) -> None:
        raise KeyError("zone")

    async def post(self) -> None:
        raise KeyError("zone")


@pytest.mark.parametrize("method", [Sdk().fetch, Sdk().post], ids=["plain", "async"])
async def test_an_unexpected_exception_shows_its_traceback_once(
    caplog: pytest.LogCaptureFixture, method: Any
):
    calls = Calls()
    for _ in range(3):
        with pytest.raises(KeyError):
            await calls.make(method)

    (record,) = caplog.records
    assert record.getMessage() == "Cloud provider raised an unexpected exception"
    assert record.exc_info
    trace = record.exc_info[2]
    while trace and trace.tb_next:
        trace = trace.tb_next
    assert trace
    assert trace.tb_frame.f_code.co_name == method.__name__, "it ends in the provider's own code"


WRAPPED = ValueError("while building")
WRAPPED.__cause__ = RetryError("quota refills", 42)


@pytest.mark.parametrize(
    "error",
    [
        InstanceNotFound(),
        Unimplemented(),
        RetryError("later", 1),
        WRAPPED,
        Throttled("", retry_after=1),
    ],
)
async def test_errors_with_a_meaning_of_their_own_need_no_traceback(
    caplog: pytest.LogCaptureFixture, error: Exception
):
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        await Calls().make(fail)

    assert caplog.records == []


def test_an_error_that_is_its_own_cause_is_translated():
    error = Unavailable("down")
    error.__cause__ = error

    assert translated(error) is error

import asyncio
from itertools import pairwise
from random import Random

import pytest

from pileus.runtime.supervision import DELAYS, Supervised


class Abyss(BaseException):
    pass


async def test_work_that_fails_begins_again_ever_later(caplog):
    begun: list[float] = []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        raise KeyError("zone")

    supervised = Supervised("route-syncer", work, Random(1))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3600):
            await supervised.run()

    pauses = [later - sooner for sooner, later in pairwise(begun)]
    assert pauses[0] >= DELAYS.first
    assert max(pauses) <= DELAYS.last * 1.1
    assert 15 <= len(begun) <= 25  # an hour of failures is a few tries, no busy loop
    assert "Background work failed" in caplog.text
    assert caplog.records[0].exc_info


async def test_the_health_check_says_so_while_it_waits_and_no_longer():
    failing = True

    async def work() -> None:
        if failing:
            raise KeyError("zone")
        await asyncio.Event().wait()

    supervised = Supervised("route-syncer", work, Random(1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(supervised.run())
        await asyncio.sleep(0.5)
        assert supervised.health() == "route-syncer failed 1 times in a row: KeyError('zone')"

        failing = False
        await asyncio.sleep(10)
        assert supervised.health() is None
        task.cancel()


async def test_a_failure_after_a_long_time_counts_as_the_first():
    begun: list[float] = []

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1000)
        raise KeyError("zone")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10_000):
            await Supervised("route-syncer", work, Random(1)).run()

    assert len(begun) == 10


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), Abyss()])
async def test_work_that_exits_or_cancels_itself_has_only_failed(error):
    errors = [error]

    async def work() -> None:
        if errors:
            raise errors.pop()

    await Supervised("route-syncer", work, Random(1)).run()

    assert not errors


async def test_work_that_ends_by_itself_is_left_at_that():
    begun: list[str] = []

    async def work() -> None:
        begun.append("once")

    await Supervised("route-syncer", work, Random(1)).run()
    await asyncio.sleep(1000)

    assert begun == ["once"]


async def test_cancellation_ends_the_work_and_is_awaited():
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            ended.append("cleaned up")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(5):
            await Supervised("route-syncer", work, Random(1)).run()

    assert ended == ["cleaned up"]

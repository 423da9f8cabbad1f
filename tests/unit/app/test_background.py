"""Work beside a block ends with it, and a failure of either ends both."""

import asyncio

import pytest

from pileus.app.background import background


class Work:
    def __init__(self, *, fails_after: float = 1e6) -> None:
        self.ended_at: float | None = None
        self._fails_after = fails_after

    async def run(self) -> None:
        try:
            await asyncio.sleep(self._fails_after)
            raise KeyError("zone")
        finally:
            await asyncio.sleep(2)
            self.ended_at = asyncio.get_running_loop().time()


async def test_the_work_has_ended_when_the_block_has() -> None:
    work = Work()

    async with background(work.run()):
        await asyncio.sleep(10)

    assert work.ended_at == 12


async def test_a_failure_of_the_work_cancels_the_block_and_is_raised() -> None:
    work = Work(fails_after=5)

    with pytest.raises(ExceptionGroup) as caught:
        async with background(work.run()):
            await asyncio.sleep(1000)

    assert [str(error) for error in caught.value.exceptions] == ["'zone'"]
    assert asyncio.get_running_loop().time() == 7


async def test_a_failure_of_the_block_ends_the_work_first() -> None:
    work = Work()

    async def failing() -> None:
        async with background(work.run()):
            await asyncio.sleep(1)
            raise ValueError("x")

    with pytest.raises(ExceptionGroup) as caught:
        await failing()

    assert [str(error) for error in caught.value.exceptions] == ["x"]
    assert work.ended_at == 3

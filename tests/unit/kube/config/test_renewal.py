"""One fetch serves all who wait, and a failure is no reason to fetch in a storm."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest

from pileus.kube.config.credentials import PAUSE, Issued, Renewing
from pileus.kube.errors import CredentialsError
from tests.unit.kube.config.stage import HandClock


class Source:
    """Issues 1, 2, 3, …; each takes a second, lives ten minutes, and is renewed after five."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.fetches = 0
        self.broken = False

    async def fetch(self) -> Issued[int]:
        self.fetches += 1
        number = self.fetches
        await asyncio.sleep(1)
        if self.broken:
            raise CredentialsError(f"failure {number}")
        now = self.clock.now()
        return Issued(number, now, now + timedelta(minutes=5), now + timedelta(minutes=10))


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def source(clock: HandClock) -> Source:
    return Source(clock)


@pytest.fixture
def renewing(source: Source, clock: HandClock) -> Renewing[int]:
    return Renewing(source.fetch, clock)


async def all_of(renewing: Renewing[int], count: int) -> list[int]:
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(renewing.value()) for _ in range(count)]
    return [task.result() for task in started]


async def test_a_hundred_callers_cost_one_fetch(renewing: Renewing[int], source: Source) -> None:
    assert await all_of(renewing, 100) == [1] * 100
    assert source.fetches == 1


async def test_a_hundred_callers_share_one_failure(renewing: Renewing[int], source: Source) -> None:
    source.broken = True

    async def failing() -> str:
        with pytest.raises(CredentialsError) as caught:
            await renewing.value()
        return str(caught.value)

    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(failing()) for _ in range(100)]

    assert {task.result() for task in started} == {"failure 1"}
    assert source.fetches == 1


async def test_after_a_failure_it_is_tried_again_soon(
    renewing: Renewing[int], source: Source, clock: HandClock
) -> None:
    source.broken = True
    with pytest.raises(CredentialsError):
        await renewing.value()

    source.broken = False
    clock.forward(1)

    assert await renewing.value() == 2


async def test_while_one_renews_the_others_use_what_is_still_valid(
    renewing: Renewing[int], source: Source, clock: HandClock
) -> None:
    await renewing.value()
    clock.forward(5 * 60)

    assert sorted(await all_of(renewing, 10)) == [1] * 9 + [2]
    assert source.fetches == 2


async def test_a_failed_renewal_leaves_the_valid_one_in_use_until_it_expires(
    renewing: Renewing[int], source: Source, clock: HandClock
) -> None:
    await renewing.value()
    source.broken = True
    clock.forward(5 * 60)

    kept = [await renewing.value() for _ in range(10)]
    tried = source.fetches
    clock.forward(5 * 60)

    assert kept == [1] * 10
    assert tried == 2
    with pytest.raises(CredentialsError):
        await renewing.value()


async def test_a_rejected_one_is_fetched_anew(renewing: Renewing[int], clock: HandClock) -> None:
    await renewing.value()
    clock.forward(PAUSE.total_seconds())

    renewing.reject()

    assert await renewing.value() == 2


async def test_rejecting_everything_is_no_storm_of_fetches(
    renewing: Renewing[int], source: Source
) -> None:
    for _ in range(100):
        await renewing.value()
        renewing.reject()

    assert source.fetches == 1


async def test_who_gives_up_waiting_harms_nobody(renewing: Renewing[int], source: Source) -> None:
    async def impatient() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await renewing.value()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(impatient())
        await asyncio.sleep(0.1)
        patient = tasks.create_task(renewing.value())

    assert patient.result() == 2


@pytest.mark.parametrize("show", [repr, str])
async def test_what_is_issued_shows_nothing_of_itself(
    clock: HandClock, show: Callable[[object], str]
) -> None:
    assert "hush" not in show(Issued("hush", clock.now()))

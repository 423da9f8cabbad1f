"""Rounds run on the queue and the workers of passes, and are woken, retried and reported."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from pileus.cloud.errors import Throttled, Unavailable
from pileus.fence import Fenced
from pileus.runtime.backoff import JITTER
from pileus.runtime.controller import Limits
from pileus.runtime.periodic import DELAYS, KEEPS_FAILING, Periodic, all_of
from pileus.telemetry.metrics import Metrics, new_metrics

ROUND = "node-refresh"
HOUR = 3600.0


class Abyss(BaseException):
    pass


class Rounds:
    """Runs a `Periodic` and notes when each round begins; `act` is the round."""

    def __init__(self, act: Callable[[], Awaitable[float]], limits: Limits | None = None) -> None:
        self.metrics = new_metrics()
        self.begun: list[float] = []
        self._act = act
        more = () if limits is None else (limits,)
        self.periodic = Periodic(ROUND, self._round, self.metrics, Random(1), *more)

    async def _round(self) -> float:
        self.begun.append(asyncio.get_running_loop().time())
        return await self._act()

    async def run_for(self, seconds: float) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.periodic.run()

    def pauses(self) -> list[float]:
        return [after - before for before, after in zip(self.begun, self.begun[1:], strict=False)]


def failures(metrics: Metrics) -> float:
    return sample(metrics, "pileus_round_failures_total", round=ROUND)


def sample(metrics: Metrics, metric: str, **labels: str) -> float:
    return metrics.registry.value(metric, labels) or 0


def is_backoff(pause: float, delay: float) -> bool:
    return delay <= pause <= delay * (1 + JITTER) + 1e-6


def raising(*errors: BaseException | None) -> Callable[[], Awaitable[float]]:
    """Rounds with these outcomes, then ones that succeed; a minute between them."""
    left = list(errors)

    async def act() -> float:
        error = left.pop(0) if left else None
        if error is not None:
            raise error
        return 60.0

    return act


@pytest.mark.parametrize(
    "error", [KeyError("zone"), SystemExit(3), asyncio.CancelledError(), Abyss()]
)
async def test_a_round_that_raises_is_logged_with_its_traceback_counted_and_made_again(
    caplog, error
):
    rounds = Rounds(raising(error))
    await rounds.run_for(130)

    first, *later = rounds.pauses()
    assert is_backoff(first, DELAYS.first)
    assert later == pytest.approx([60, 60])
    assert failures(rounds.metrics) == 1
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.exc_info
    assert "Pass failed, will be retried" in record.getMessage()


async def test_rounds_that_keep_failing_are_made_ever_more_rarely_and_reported_by_health():
    healthy_at: dict[int, bool] = {}

    async def act() -> float:
        healthy_at[len(rounds.begun) - 1] = rounds.periodic.failing() is None
        raise KeyError("zone")

    rounds = Rounds(act)
    await rounds.run_for(HOUR)

    count = len(rounds.begun)
    assert 15 <= count <= 25
    assert all(healthy_at[n] is (n < KEEPS_FAILING) for n in healthy_at)
    problem = f"node-refresh failed {count} times in a row: KeyError('zone')"
    assert rounds.periodic.failing() == problem


async def test_one_success_ends_the_complaint_and_the_backoff():
    rounds = Rounds(raising(*[KeyError("zone")] * 5, None, KeyError("zone")))
    await rounds.run_for(400)

    assert rounds.periodic.failing() is None
    assert rounds.pauses()[5] == pytest.approx(60)
    assert is_backoff(rounds.pauses()[6], DELAYS.first)


async def test_a_round_waits_for_as_long_as_the_error_asks():
    rounds = Rounds(raising(*[Throttled("slow down", retry_after=40)] * 9))
    await rounds.run_for(100)

    assert len(rounds.pauses()) == 2
    assert all(is_backoff(pause, 40) for pause in rounds.pauses())


async def test_a_fenced_round_is_no_failure(caplog):
    rounds = Rounds(raising(*[Fenced("not leader")] * 200))
    await rounds.run_for(100)

    assert (failures(rounds.metrics), rounds.periodic.failing()) == (0, None)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]


async def test_a_round_beyond_its_deadline_is_cancelled_counted_and_made_again():
    async def act() -> float:
        await asyncio.sleep(HOUR)
        return 60.0

    rounds = Rounds(act, Limits(deadline=30))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rounds.periodic.run())
        await asyncio.sleep(20)
        assert rounds.periodic.stuck(15) == "a pass of node-refresh has been running for 20 s"
        assert rounds.periodic.stuck(25) is None
        await asyncio.sleep(20)
        assert [round(at) for at in rounds.begun] == [0, 31]
        assert failures(rounds.metrics) == 1
        task.cancel()


async def test_a_round_that_is_under_way_when_told_to_stop_may_finish_and_is_no_failure():
    ended: list[str] = []

    async def act() -> float:
        await asyncio.sleep(3)
        ended.append("round")
        return 60.0

    rounds = Rounds(act)
    await rounds.run_for(1)
    await asyncio.sleep(HOUR)

    assert (ended, len(rounds.begun), failures(rounds.metrics)) == (["round"], 1, 0)


async def test_a_round_that_is_cancelled_at_the_end_of_the_process_is_no_failure():
    async def act() -> float:
        await asyncio.sleep(HOUR)
        return 60.0

    rounds = Rounds(act)
    await rounds.run_for(1)

    assert failures(rounds.metrics) == 0


async def test_a_wake_up_makes_the_next_round_earlier_and_never_later():
    rounds = Rounds(raising())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rounds.periodic.run())
        await asyncio.sleep(10)
        rounds.periodic.wake()
        await asyncio.sleep(10)
        rounds.periodic.wake(after=5)
        rounds.periodic.wake(after=2)
        await asyncio.sleep(10)
        rounds.periodic.wake(after=HOUR)
        await asyncio.sleep(60)
        task.cancel()

    assert rounds.begun == pytest.approx([0, 10, 22, 82])


async def test_a_wake_up_during_a_round_makes_another_one_after_it():
    async def act() -> float:
        await asyncio.sleep(10)
        return 60.0

    rounds = Rounds(act)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rounds.periodic.run())
        await asyncio.sleep(5)
        rounds.periodic.wake(after=1)
        rounds.periodic.wake(after=2)
        await asyncio.sleep(60)
        task.cancel()

    assert rounds.begun == pytest.approx([0, 11])


async def test_no_wake_up_cuts_a_backoff_short():
    rounds = Rounds(raising(*[Unavailable("no answer")] * 99))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rounds.periodic.run())
        for _ in range(1000):
            rounds.periodic.wake()
            await asyncio.sleep(0.5)
        task.cancel()

    assert len(rounds.begun) < 12


async def test_no_wake_up_cuts_a_rest_short():
    async def act() -> float:
        await asyncio.sleep(1)
        rounds.periodic.rest(20)
        return 300.0

    rounds = Rounds(act)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rounds.periodic.run())
        for _ in range(100):
            await asyncio.sleep(0.7)
            rounds.periodic.wake()
        task.cancel()

    assert rounds.begun == pytest.approx([0, 21, 42, 63])


async def test_rounds_are_seen_in_the_metrics_of_queues():
    rounds = Rounds(raising(KeyError("zone")))
    await rounds.run_for(100)

    assert sample(rounds.metrics, "workqueue_adds_total", name=ROUND) == 3
    assert sample(rounds.metrics, "workqueue_retries_total", name=ROUND) == 1


async def test_parts_of_a_round_all_end_before_the_first_error_is_raised():
    ended: list[str] = []

    async def fails() -> None:
        raise KeyError("zone")

    async def works() -> None:
        await asyncio.sleep(10)
        ended.append("works")

    with pytest.raises(KeyError):
        await all_of([fails, works])
    with pytest.raises(ExceptionGroup):
        await all_of([fails, works, fails])
    assert ended == ["works", "works"]

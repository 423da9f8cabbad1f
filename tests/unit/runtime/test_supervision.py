import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from random import Random

import pytest

from pileus.cloud.errors import Throttled
from pileus.fence import Fenced
from pileus.runtime.supervision import DELAYS, KEEPS_FAILING, Rounds, Supervised, all_of
from pileus.telemetry.metrics import Metrics, new_metrics


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


ROUND = "node-refresh"


def failures(metrics: Metrics) -> float:
    return metrics.registry.get_sample_value("pileus_round_failures_total", {"round": ROUND}) or 0


async def run_for(seconds: float, rounds: Rounds, work: Callable[[], Awaitable[float]]) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(seconds):
            await rounds.run(work)


@pytest.mark.parametrize(
    "error", [KeyError("zone"), SystemExit(3), asyncio.CancelledError(), Abyss()]
)
async def test_a_round_that_raises_is_logged_with_its_traceback_counted_and_made_again(
    caplog, error
):
    metrics, errors, made = new_metrics(), [error], list[float]()

    async def work() -> float:
        made.append(asyncio.get_running_loop().time())
        if errors:
            raise errors.pop()
        return 60.0

    rounds = Rounds(ROUND, metrics)
    await run_for(130, rounds, work)

    assert made == pytest.approx([0, DELAYS.first, DELAYS.first + 60, DELAYS.first + 120])
    assert failures(metrics) == 1
    assert [record.getMessage() for record in caplog.records if record.exc_info] != []
    assert caplog.text.count("Round failed, will be retried") == 1


async def test_rounds_that_keep_failing_are_made_ever_more_rarely_and_reported_by_health():
    healthy_at: dict[int, bool] = {}
    made: list[float] = []
    rounds = Rounds(ROUND, new_metrics())

    async def work() -> float:
        healthy_at[len(made)] = rounds.health() is None
        made.append(asyncio.get_running_loop().time())
        raise KeyError("zone")

    await run_for(3600, rounds, work)

    assert 15 <= len(made) <= 25
    assert all(healthy_at[n] is (n < KEEPS_FAILING) for n in healthy_at)
    assert rounds.health() == f"node-refresh failed {len(made)} times in a row: KeyError('zone')"


async def test_one_success_ends_the_complaint_and_the_backoff():
    metrics, outcomes = new_metrics(), iter([False] * 5 + [True] + [False] + [True] * 99)
    made: list[float] = []

    async def work() -> float:
        made.append(asyncio.get_running_loop().time())
        if not next(outcomes):
            raise KeyError("zone")
        return 60.0

    rounds = Rounds(ROUND, metrics)
    await run_for(400, rounds, work)

    assert rounds.health() is None
    assert made[6] - made[5] == pytest.approx(60)
    assert made[7] - made[6] == pytest.approx(DELAYS.first)


async def test_a_round_waits_for_as_long_as_the_error_asks():
    made: list[float] = []

    async def work() -> float:
        made.append(asyncio.get_running_loop().time())
        raise Throttled("slow down", retry_after=40)

    await run_for(100, Rounds(ROUND, new_metrics()), work)

    assert made == pytest.approx([0, 40, 80])


async def test_a_fenced_round_is_no_failure(caplog):
    metrics = new_metrics()

    async def work() -> float:
        raise Fenced("not leader")

    rounds = Rounds(ROUND, metrics)
    await run_for(100, rounds, work)

    assert (failures(metrics), rounds.health()) == (0, None)
    assert "Round failed" not in caplog.text


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

"""We send as much at once as the server can take, and learn it from its answers."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.kube.errors import NotFound, Status, TooManyRequests, Unreachable
from pileus.kube.exchange import GIVES_WAY, Adaptive, GivingWay, Throttle, TokenBucket, Window

REFUSED = TooManyRequests("GET /", 429, Status())
MISSING = NotFound("GET /", 404, Status())
LATE = Unreachable("GET /", "h", "late", timed_out=True)
LOST = Unreachable("GET /", "h", "lost")


async def attempt(throttle: Throttle, error: Exception | None = None) -> None:
    async with throttle.admission():
        await asyncio.sleep(1)
        if error:
            raise error


async def run(throttle: Throttle, number: int) -> float:
    """The seconds that so many requests of one second each take."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    async with asyncio.TaskGroup() as group:
        for _ in range(number):
            group.create_task(attempt(throttle))
    return loop.time() - began


@given(st.lists(st.sampled_from(["success", "refusal"])))
def test_the_window_stays_between_one_and_the_most(outcomes: list[str]):
    window = Window()

    for outcome in outcomes:
        refused = outcome == "refusal"
        window = window.halved(sent_at=window.halvings) if refused else window.grown()
        assert 1 <= window.size <= 32


def test_a_refusal_halves_and_a_window_of_successes_adds_one():
    window = Window(limit=16).halved(sent_at=0)
    assert window.size == 8

    for _ in range(9):
        window = window.grown()
    assert window.size == 9


def test_one_burst_of_refusals_halves_once():
    window = Window(limit=16)

    for _ in range(16):
        window = window.halved(sent_at=0)

    assert window.size == 8


async def test_sixteen_requests_leave_at_once_and_the_rest_waits():
    assert await run(Adaptive(), 16) == pytest.approx(1)
    assert await run(Adaptive(), 17) == pytest.approx(2)


async def test_a_full_window_that_succeeds_grows():
    throttle = Adaptive()

    await run(throttle, 200)

    assert throttle.window.size > 16


async def test_an_idle_window_does_not_grow():
    throttle = Adaptive()

    for _ in range(100):
        await attempt(throttle)

    assert throttle.window == Window()


@pytest.mark.parametrize(("error", "size"), [(REFUSED, 8), (LATE, 8), (LOST, 16), (MISSING, 16)])
async def test_only_signs_of_overload_halve_the_window(error: Exception, size: int):
    throttle = Adaptive()

    with pytest.raises(type(error)):
        await attempt(throttle, error)

    assert throttle.window.size == size


async def test_a_request_that_is_cancelled_while_it_waits_takes_no_place():
    throttle = Adaptive(Window(limit=1))

    async with throttle.admission():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await attempt(throttle)

    assert await run(throttle, 1) == pytest.approx(1)


async def test_a_request_that_is_cancelled_when_it_is_let_in_gives_its_place_back():
    throttle = Adaptive(Window(limit=1))

    async with asyncio.TaskGroup() as group:
        async with throttle.admission():
            waiting = group.create_task(attempt(throttle))
            await asyncio.sleep(1)
        waiting.cancel()

    assert await run(throttle, 1) == pytest.approx(1)


async def test_requests_that_can_wait_leave_after_all_others():
    shared, ended = Adaptive(Window(limit=2, most=2)), list[str]()

    async def request(throttle: Throttle, name: str) -> None:
        await attempt(throttle)
        ended.append(name)

    async with asyncio.TaskGroup() as group:
        group.create_task(request(shared, "write"))
        for _ in range(3):
            group.create_task(request(GivingWay(shared), "event"))
        for _ in range(4):
            group.create_task(request(shared, "write"))

    assert ended == ["write"] * 5 + ["event"] * 3


async def test_requests_that_can_wait_share_the_window():
    assert await run(GivingWay(Adaptive()), 17) == pytest.approx(2)


async def test_requests_that_can_wait_do_so_for_a_while_only():
    shared = Adaptive()

    async with shared.admission():
        assert await run(GivingWay(shared), 1) == pytest.approx(GIVES_WAY + 1)


async def test_a_refused_request_that_can_wait_halves_the_window_of_all():
    shared = Adaptive()

    with pytest.raises(TooManyRequests):
        await attempt(GivingWay(shared), REFUSED)

    assert shared.window.size == 8


async def test_a_request_that_is_cancelled_while_it_waits_holds_up_no_others():
    shared = Adaptive(Window(limit=1))

    async with shared.admission():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await attempt(shared)

    assert await run(GivingWay(shared), 1) == pytest.approx(1)


async def test_a_bucket_lets_a_burst_out_and_then_the_rate():
    assert await run(TokenBucket(rate=20, burst=30), 30) == pytest.approx(1)
    assert await run(TokenBucket(rate=20, burst=30), 50) == pytest.approx(2)


async def test_a_wait_that_is_given_up_costs_no_token():
    throttle = TokenBucket(rate=1, burst=1)
    await attempt(throttle)
    for _ in range(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await run(throttle, 2)

    assert await run(throttle, 1) <= 2


@pytest.mark.parametrize(("rate", "burst"), [(0, 1), (-1, 1), (1, 0)])
def test_a_bucket_that_lets_nothing_out_is_refused(rate: float, burst: int):
    with pytest.raises(ValueError, match="a rate above 0"):
        TokenBucket(rate, burst)

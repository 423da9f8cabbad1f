"""Workers, retries, deadlines, and what happens when they are told to stop."""

import asyncio
import logging
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pileus.classic.errors import Postponed
from pileus.cloud.errors import LONGEST_RETRY_AFTER, CloudError, Throttled, Unavailable
from pileus.fence import Fenced
from pileus.kube.errors import ApiError, ServiceUnavailable, Status
from pileus.runtime.backoff import SERVICE_RETRIES, RetryPolicy, default_policy, service_policy
from pileus.runtime.controller import DEFAULT_LIMITS, Controller, Limits
from pileus.runtime.queue import WorkQueue
from pileus.runtime.reconcile import DONE, Result, again_in, refresh_in
from pileus.telemetry.instruments import MetricRegistry
from pileus.telemetry.log import VALUES
from pileus.telemetry.metrics import Metrics
from pileus.testing.virtual_time import VirtualTimeLoop

HOUR = 3600.0


class Scripted:
    """A reconciler that notes each pass and then does what it is told."""

    def __init__(self, act: Callable[[str], Awaitable[Result]]) -> None:
        self.passes: list[tuple[str, float]] = []
        self.finished: list[str] = []
        self._act = act

    async def reconcile(self, key: str) -> Result:
        self.passes.append((key, asyncio.get_running_loop().time()))
        result = await self._act(key)
        self.finished.append(key)
        return result


def failing(error: BaseException) -> Scripted:
    async def act(key: str) -> Result:
        raise error

    return Scripted(act)


def chance() -> random.Random:
    return random.Random(1)


def new_queue() -> WorkQueue[str]:
    return WorkQueue("things", Metrics(MetricRegistry()))


@asynccontextmanager
async def running(
    reconciler: Scripted,
    queue: WorkQueue[str],
    limits: Limits = DEFAULT_LIMITS,
    policy: RetryPolicy | None = None,
) -> AsyncGenerator[Controller[str]]:
    policy = policy or service_policy(random.Random(1))
    controller = Controller("things", reconciler, queue, policy, limits)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(controller.run())
        yield controller
        task.cancel()


async def test_a_key_that_succeeds_is_passed_over_once() -> None:
    async def act(key: str) -> Result:
        return DONE

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("a")
        await asyncio.sleep(HOUR)

    assert [key for key, _ in reconciler.passes] == ["a"]


async def test_a_failing_key_holds_up_no_other() -> None:
    async def act(key: str) -> Result:
        if key == "bad":
            raise KeyError(key)
        return DONE

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("bad")
        queue.add("good")
        await asyncio.sleep(1)

    assert reconciler.finished == ["good"]


async def test_retries_follow_the_policy_and_a_success_forgets_the_failures() -> None:
    answers: list[Exception | None] = [Unavailable("1"), Unavailable("2"), None, Unavailable("3")]

    async def act(key: str) -> Result:
        error = answers.pop(0) if answers else None
        if error:
            raise error
        return again_in(100) if answers else DONE

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("a")
        await asyncio.sleep(HOUR)

    times = [at for _, at in reconciler.passes]
    gaps = [after - before for before, after in pairwise(times)]
    assert [round(gap / 5) * 5 for gap in gaps] == [5, 10, 100, 5]


async def test_a_cloud_that_throttles_is_left_alone_for_as_long_as_it_asks() -> None:
    reconciler = failing(Throttled("slow down", retry_after=100))
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("a")
        await asyncio.sleep(HOUR)

    gaps = [after - before for (_, before), (_, after) in pairwise(reconciler.passes)]
    assert gaps
    assert min(gaps) >= 100


async def test_a_cloud_that_asks_for_years_is_asked_again_within_minutes() -> None:
    reconciler = failing(Throttled("slow down", retry_after=999_999_999))
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("a")
        await asyncio.sleep(HOUR)

    gaps = [after - before for (_, before), (_, after) in pairwise(reconciler.passes)]
    assert gaps
    assert max(gaps) <= LONGEST_RETRY_AFTER * 1.1


def busy(seconds: float) -> ApiError:
    """Returns the answer to a write that the API server refuses for some seconds."""
    said = Status(message="the server is overloaded")
    return ServiceUnavailable("PATCH /api/v1/things/a", 503, said, retry_after=seconds)


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        pytest.param(busy(30), [0, 30, 60], id="the API server asks for it"),
        pytest.param(
            ExceptionGroup("two", [busy(30), Unavailable("down")]), [0, 30, 60], id="it and others"
        ),
        pytest.param(Throttled("slow", retry_after=30), [0, 10, 20, 50], id="the cloud asks"),
        pytest.param(Unavailable("down"), [0, 5, 10, 20, 60], id="nothing is asked"),
    ],
)
async def test_a_change_cuts_short_no_pause_that_the_api_server_asks_for(
    error: Exception, passes: list[float]
) -> None:
    """The next pass could send the same request. The cloud's pauses are kept by its budget."""
    reconciler, queue = failing(error), new_queue()
    async with running(reconciler, queue, policy=RetryPolicy(SERVICE_RETRIES, chance(), jitter=0)):
        for _ in range(3):
            queue.add("a")  # as a change of its object does
            await asyncio.sleep(10)
        await asyncio.sleep(35)

    assert [at for _, at in reconciler.passes] == pytest.approx(passes)


async def test_a_pause_that_the_api_server_asks_for_delays_no_other_key() -> None:
    async def act(key: str) -> Result:
        if key == "a":
            raise busy(30)
        return DONE

    reconciler, queue = Scripted(act), new_queue()
    async with running(reconciler, queue):
        queue.add("a")
        await asyncio.sleep(1)
        queue.add("b")
        await asyncio.sleep(1)

    assert reconciler.passes == [("a", 0), ("b", 1)]


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param(Throttled("slow down", retry_after=1), id="native"),
        pytest.param(Postponed("still provisioning", retry_after=1), id="ported"),
        pytest.param(
            ExceptionGroup("all wait", [Throttled("a", retry_after=1)] * 2), id="a group of them"
        ),
    ],
)
async def test_a_delay_that_was_asked_for_does_not_count_as_a_failure(asked: Exception) -> None:
    """As in Go: a RetryError leaves the failure count untouched, and does not reset it either."""
    script = [Unavailable("1"), *[asked] * 8, Unavailable("2"), asked, Unavailable("3")]

    async def act(key: str) -> Result:
        if script:
            raise script.pop(0)
        return DONE

    reconciler, queue = Scripted(act), new_queue()
    async with running(reconciler, queue, policy=RetryPolicy(SERVICE_RETRIES, chance(), jitter=0)):
        queue.add("a")
        await asyncio.sleep(HOUR)

    times = [time for _, time in reconciler.passes]
    assert [later - sooner for sooner, later in pairwise(times)] == [5, *[1] * 8, 10, 1, 20]


async def test_a_fenced_pass_is_tried_again_without_counting_as_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reconciler = failing(ExceptionGroup("writes", [Fenced("lease too old"), ValueError("torn")]))
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("a")
        await asyncio.sleep(60.5)

    assert len(reconciler.passes) == 61
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize(
    ("error", "traceback"),
    [
        pytest.param(CloudError("no answer"), False, id="the-world"),
        pytest.param(ExceptionGroup("two", [CloudError("no answer")]), False, id="worlds"),
        pytest.param(ZeroDivisionError("oops"), True, id="a-bug"),
    ],
)
async def test_each_failure_is_one_line_and_only_a_bug_has_a_traceback(
    error: Exception, traceback: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_queue()
    async with running(failing(error), queue):
        queue.add("shop/web")
        await asyncio.sleep(1)

    (record,) = caplog.records
    assert bool(record.exc_info) is traceback
    values = getattr(record, VALUES)
    assert values["key"] == "shop/web"
    assert values["err"] is error


async def test_a_pass_beyond_its_deadline_is_cancelled_and_retried(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def act(key: str) -> Result:
        await asyncio.sleep(HOUR)
        return DONE

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue, Limits(deadline=30)):
        queue.add("a")
        await asyncio.sleep(40)

    assert [round(at) for _, at in reconciler.passes] == [0, 35]
    assert "cancelled after 30 s" in str(getattr(caplog.records[0], VALUES)["err"])
    assert not caplog.records[0].exc_info


async def test_a_pass_that_times_out_by_itself_is_not_taken_for_one_beyond_its_deadline(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = TimeoutError("socket")
    queue = new_queue()
    async with running(failing(error), queue):
        queue.add("a")
        await asyncio.sleep(1)

    assert getattr(caplog.records[0], VALUES)["err"] is error


async def test_a_pass_that_cancels_itself_costs_no_worker() -> None:
    reconciler = failing(asyncio.CancelledError())
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("a")
        await asyncio.sleep(12)

    assert len(reconciler.passes) == 2


async def test_workers_share_the_keys() -> None:
    async def act(key: str) -> Result:
        await asyncio.sleep(10)
        return DONE

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue, Limits(workers=4)):
        for key in "abcdefgh":
            queue.add(key)
        await asyncio.sleep(20.5)

    assert sorted(reconciler.finished) == list("abcdefgh")


async def test_once_all_workers_were_busy_the_next_passes_start_in_groups() -> None:
    async def act(key: str) -> Result:
        await asyncio.sleep(int(key))
        return DONE

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue, Limits(workers=4, group=2)):
        for key in ("1", "2", "30", "31", "5", "6", "7"):
            queue.add(key)
        await asyncio.sleep(60)

    begun = dict(reconciler.passes)
    starts = [begun[key] - begun["1"] for key in ("1", "2", "30", "31", "5", "6", "7")]
    assert starts == [0, 0, 0, 0, 2, 2, 8]  # at 1 only one worker is free; the last at 2+6


async def test_a_group_larger_than_the_workers_stops_no_pass() -> None:
    async def act(key: str) -> Result:
        return DONE

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue, Limits(workers=1, group=250)):
        for key in "abc":
            queue.add(key)
        await asyncio.sleep(1)

    assert reconciler.finished == list("abc")


async def test_when_stopped_a_pass_in_hand_may_finish_but_none_begins() -> None:
    async def act(key: str) -> Result:
        await asyncio.sleep(3)
        return again_in(1)

    reconciler = Scripted(act)
    queue = new_queue()
    loop = asyncio.get_running_loop()
    async with running(reconciler, queue, Limits(grace=5)):
        queue.add("a")
        queue.add("b")
        await asyncio.sleep(1)
    stopped = loop.time()

    await asyncio.sleep(HOUR)
    assert stopped == pytest.approx(3)
    assert reconciler.finished == ["a"]


async def test_when_stopped_a_slow_pass_is_cancelled_after_the_grace_period() -> None:
    async def act(key: str) -> Result:
        await asyncio.sleep(HOUR)
        return DONE

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue, Limits(grace=5)):
        queue.add("a")
        await asyncio.sleep(1)

    assert asyncio.get_running_loop().time() == pytest.approx(6)
    assert reconciler.finished == []


async def test_a_stuck_pass_is_told_to_the_health_check() -> None:
    async def act(key: str) -> Result:
        await asyncio.sleep(100)
        return DONE

    queue = new_queue()
    async with running(Scripted(act), queue) as controller:
        assert controller.oldest_work() == 0
        queue.add("a")
        await asyncio.sleep(61)
        assert controller.stuck(62) is None
        assert controller.stuck(60) == "a pass of things has been running for 61 s"


async def test_a_reconciler_that_wants_a_key_at_once_cannot_spin() -> None:
    async def act(key: str) -> Result:
        return again_in(0)

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("a")
        await asyncio.sleep(60)

    assert 500 < len(reconciler.passes) <= 601


async def test_a_look_for_drift_waits_for_what_is_more_pressing() -> None:
    after = {"drift": refresh_in(10), "pressing": again_in(11)}

    async def act(key: str) -> Result:
        if key == "long":
            await asyncio.sleep(30)
        return after.pop(key, DONE)

    reconciler = Scripted(act)
    queue = new_queue()
    async with running(reconciler, queue):
        queue.add("drift")
        queue.add("pressing")
        queue.add("long")
        await asyncio.sleep(60)

    assert reconciler.finished == ["drift", "pressing", "long", "pressing", "drift"]


HINTS = (float("nan"), float("inf"), -1.0, 0.0, 0.5, 30.0, 1e6)
ERRORS: st.SearchStrategy[BaseException] = st.one_of(
    st.builds(ValueError),
    st.builds(Unavailable, st.just("down")),
    st.builds(asyncio.CancelledError),
    st.builds(TimeoutError),
    st.sampled_from(HINTS).map(lambda asked: Throttled("slow", retry_after=asked)),
)


@settings(max_examples=25)
@given(ERRORS, st.integers(0, 2**16), st.integers(1, 8), st.booleans())
def test_no_failure_makes_a_busy_loop(
    error: BaseException, seed: int, workers: int, for_services: bool
) -> None:
    policy = (service_policy if for_services else default_policy)(random.Random(seed))
    reconciler = failing(error)

    async def an_hour() -> None:
        queue = new_queue()
        async with running(reconciler, queue, Limits(workers=workers), policy):
            queue.add("a")
            await asyncio.sleep(HOUR)

    logging.disable(logging.CRITICAL)
    try:
        with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
            runner.run(an_hour())
    finally:
        logging.disable(logging.NOTSET)

    # A hint is worth a second at least; without one the delays double.
    hinted = isinstance(error, Throttled) and (error.retry_after or 0.0) < 1000
    assert 1 <= len(reconciler.passes) <= (HOUR + 1 if hinted else 30)

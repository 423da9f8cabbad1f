"""An outer deadline is never shorter than the inner ones, and every deadline is accounted for."""

import ast
import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pileus
from pileus.app.run import PATIENCE as SHUTDOWN
from pileus.cloud.abilities import Batches, Deadlines
from pileus.cloud.abilities import Limits as BudgetLimits
from pileus.deadline import Deadline, covered
from pileus.objects.lookup import DEADLINE as LOOKUP
from pileus.runtime.controller import DEFAULT_LIMITS
from pileus.testing.virtual_time import VirtualTimeLoop

SOURCE = Path(pileus.__file__).parent
TIMERS = {"timeout", "timeout_at", "wait_for", "Deadline", "wait"}


async def expires(deadline: Deadline, parts: Iterable[tuple[float, bool]]) -> bool:
    """Whether the deadline ends work of such parts: seconds, and whether they are covered."""
    with suppress(TimeoutError):
        async with deadline:
            for seconds, is_covered in parts:
                await (covered_sleep(seconds) if is_covered else asyncio.sleep(seconds))
    return deadline.expired


async def covered_sleep(seconds: float) -> None:
    with covered():
        await asyncio.sleep(seconds)


async def test_time_of_its_own_counts_and_covered_time_does_not() -> None:
    loop = asyncio.get_running_loop()
    deadline = Deadline(10)

    assert await expires(deadline, [(4, False), (1000, True), (1000, False)])
    assert deadline.expired
    assert loop.time() == pytest.approx(1010)


async def test_a_timeout_that_the_block_raises_is_not_its_deadline() -> None:
    deadline = Deadline(10)
    with pytest.raises(TimeoutError):
        async with deadline:
            raise TimeoutError

    assert not deadline.expired


async def test_an_inner_deadline_stops_the_outer_one_and_can_expire_alone() -> None:
    async with Deadline(10) as outer:
        with pytest.raises(TimeoutError):
            async with Deadline(50):
                await asyncio.sleep(1000)
        await asyncio.sleep(9)

    assert not outer.expired
    assert outer.spent() == pytest.approx(9)


async def test_tasks_of_the_block_share_its_clock() -> None:
    async def call(seconds: float) -> None:
        with covered():
            await asyncio.sleep(seconds)

    async with Deadline(10) as deadline:
        async with asyncio.TaskGroup() as group:
            group.create_task(call(100))
            group.create_task(call(300))
        await asyncio.sleep(9)

    assert deadline.spent() == pytest.approx(9)


async def test_a_task_that_outlives_the_block_does_no_harm() -> None:
    async def call() -> None:
        with covered():
            await asyncio.sleep(100)

    async with Deadline(10):
        task = asyncio.create_task(call())
        await asyncio.sleep(1)
    await task


async def test_a_block_that_ignores_its_cancellation_goes_on_counting() -> None:
    async def stubborn() -> None:
        for _ in range(5):
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                continue

    deadline = Deadline(10)
    async with deadline:
        await stubborn()

    assert deadline.spent() == pytest.approx(410)


INNER = st.lists(st.tuples(st.floats(0, 1000), st.booleans()), max_size=8)


@given(parts=INNER)
def test_a_pass_is_cancelled_by_its_own_time_alone(parts: list[tuple[float, bool]]) -> None:
    """The law: whatever the number and length of inner steps, only uncovered time counts."""

    async def work() -> bool:
        return await expires(Deadline(300), parts)

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        expired = runner.run(work())

    own = sum(seconds for seconds, is_covered in parts if not is_covered)
    if abs(own - 300) > 0.001:
        assert expired is (own > 300)


# -- every deadline of the product ------------------------------------------------------------

NESTS = "an inner deadline stops it (pileus.deadline)"
INNERMOST = "nothing inside has a deadline of its own"
IMPATIENT = "shorter on purpose: what is inside changes nothing, and is repeated"
ENDING = "part of the shutdown, whose bound is the pod's grace period: the rest is abandoned"

DEADLINES = {
    "runtime/controller.py:_reconcile": NESTS,
    "runtime/controller.py:_report": IMPATIENT,
    "runtime/controller.py:_stop": ENDING,
    "runtime/events.py:_flush": ENDING,
    "runtime/leadership.py:_renewed_in_time": INNERMOST,
    "runtime/leadership.py:_in_time": INNERMOST,
    "runtime/leadership.py:_wait_for_next_attempt": INNERMOST,
    "kube/exchange.py:lull": INNERMOST,
    "cloud/middleware/deadline.py:limited": INNERMOST,
    "cloud/provider_context.py:_enter": INNERMOST,
    "cloud/provider_context.py:_leave": ENDING,
    "classic/stop.py:set": ENDING,
    "objects/lookup.py:_find": "at least the longest read and the budget's patience; see below",
    "controllers/lifecycle/monitor.py:_wait_for_progress": INNERMOST,
    "kube/config/exec.py:run": INNERMOST,
    "http/server.py:read_body": "bounds the client; only the handler waits for it",
    "http/server.py:_written": "bounds the client; its connection alone waits for it",
    "http/server.py:close": ENDING,
    "kube/client.py:listing_in_time": IMPATIENT,
    "cloud/http.py:send": "of the whole request; connecting has its own",
    "http/client.py:new": IMPATIENT,
    "http/client.py:_socket": "one of several addresses; connecting has its own",
    "server/reviews.py:persistently": IMPATIENT,
    "server/health.py:run": IMPATIENT,
    "app/leader.py:wait_for_api_server": IMPATIENT,
    "app/node_assignment.py:ask_all": IMPATIENT,
    "app/orphans.py:_delete": NESTS,
    "cli/top.py:wait": INNERMOST,
    "doctor/cloud_reading.py:_cloud": IMPATIENT,
    "doctor/part.py:reading": IMPATIENT,
    "app/plan.py:_ask": IMPATIENT,
    "providers/openstack/zones.py:current": INNERMOST,
    "csi/registration.py:watch": IMPATIENT,
    "csi/server.py:finish": ENDING,
    "volumes/commands.py:run": INNERMOST,
    "admission/port.py:_in_time": IMPATIENT,
    "flexvolume/run.py:_in_time": "shorter on purpose: kubelet repeats the call, which goes on",
}


def deadlines() -> Iterator[str]:
    """Every place in the product that sets a deadline, as file:function."""
    for path in sorted(SOURCE.rglob("*.py")):
        where = path.relative_to(SOURCE)
        if where.parts[0] == "testing" or where.name == "deadline.py" == str(where):
            continue
        tree = ast.parse(path.read_text())
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and _sets(function):
                yield f"{where}:{function.name}"


def _sets(function: ast.AST) -> bool:
    """Whether the function does so itself; functions inside it are judged by themselves."""
    parts = list(ast.iter_child_nodes(function))
    while parts:
        part = parts.pop()
        if isinstance(part, ast.Call) and _is_timer(part):
            return True
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            parts.extend(ast.iter_child_nodes(part))
    return False


def _is_timer(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(value=ast.Name("asyncio"), attr=name):
            has_limit = name != "wait" or any(each.arg == "timeout" for each in call.keywords)
            return name in TIMERS and has_limit
        case ast.Name("Deadline"):
            return True
        case _:
            return False


def test_every_deadline_of_the_product_says_how_it_nests() -> None:
    assert sorted(set(deadlines())) == sorted(DEADLINES)


def test_a_look_up_may_take_as_long_as_its_call_and_the_wait_for_it() -> None:
    call = Deadlines().of_call(writes=False, items=Batches().size)

    assert call + BudgetLimits().patience + Batches().window <= LOOKUP


def test_the_process_ends_before_its_pod_is_killed() -> None:
    assert DEFAULT_LIMITS.grace < SHUTDOWN < 30

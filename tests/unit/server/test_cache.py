"""Answers are remembered for their time, bounded in number, and asked for once at a time."""

import asyncio

import pytest

from pileus.server.reviews import ReviewCache


class Oracle:
    """Counts questions; each takes a second."""

    def __init__(self, *answers: object) -> None:
        self.asked = 0
        self._answers = list(answers)

    async def __call__(self) -> object:
        self.asked += 1
        await asyncio.sleep(1)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def cache(size: int = 10) -> ReviewCache[str, object]:
    return ReviewCache(lambda value: 10 if value == "yes" else 2, size=size)


async def test_each_answer_lives_for_its_own_time():
    answers = cache()
    yes, no = Oracle("yes", "yes"), Oracle("no", "no")
    await answers.get("y", yes)
    await answers.get("n", no)

    await asyncio.sleep(5)
    assert await answers.get("y", yes) == "yes"
    assert await answers.get("n", no) == "no"

    assert (yes.asked, no.asked) == (1, 2)

    await asyncio.sleep(5)
    await answers.get("y", yes)

    assert yes.asked == 2


async def test_many_who_ask_the_same_are_one_question():
    answers, oracle = cache(), Oracle("yes")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(answers.get("k", oracle)) for _ in range(50)]

    assert oracle.asked == 1
    assert {task.result() for task in tasks} == {"yes"}


async def test_a_failure_reaches_all_who_wait_and_is_not_remembered():
    answers, oracle = cache(), Oracle(OSError("down"), "yes")

    async def get() -> object:
        try:
            return await answers.get("k", oracle)
        except OSError as error:
            return str(error)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(get()) for _ in range(3)]

    assert {task.result() for task in tasks} == {"down"}
    assert oracle.asked == 1
    assert await answers.get("k", oracle) == "yes"


async def test_who_is_cancelled_does_not_take_the_others_answer_away():
    answers, oracle = cache(), Oracle("yes")

    async with asyncio.TaskGroup() as group:
        first = group.create_task(answers.get("k", oracle))
        others = [group.create_task(answers.get("k", oracle)) for _ in range(3)]
        await asyncio.sleep(0.5)
        first.cancel()
        others[0].cancel()

    assert [task.cancelled() for task in others] == [True, False, False]
    assert {task.result() for task in others[1:]} == {"yes"}
    assert oracle.asked == 2


async def test_the_least_recently_used_answer_goes_first():
    answers = cache(size=2)
    for key in ("a", "b"):
        await answers.get(key, Oracle("yes"))
    await answers.get("a", Oracle())

    await answers.get("c", Oracle("yes"))

    assert [answers.known(key) for key in "abc"] == [True, False, True]


async def test_a_failure_that_nobody_waits_for_is_not_reported_as_lost():
    answers = cache()

    with pytest.raises(OSError, match="down"):
        await answers.get("k", Oracle(OSError("down")))

"""A story is told step by step, each checked; the first that does not hold ends it."""

import asyncio
from typing import cast

import pytest

from pileus_lab.demo.environment import Stage
from pileus_lab.demo.run import StepFailed, prepare, run_story
from pileus_lab.demo.scenario import Held, Missing, Step
from pileus_lab.demo.state import Board, Progress


class World:
    """Stands in for a stage: something that is done, and has its effect later."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def act(self, name: str):
        async def act(_: Stage) -> None:
            await asyncio.sleep(1)
            self.done.append(name)

        return act

    def holds_after(self, looks: int):
        left = looks

        async def proof(_: Stage) -> Held | Missing:
            nonlocal left
            left -= 1
            return Missing(f"{left} looks to go") if left > 0 else Held("seen")

        return proof


def announced(*story: Step) -> Board:
    board = Board(asyncio.get_running_loop().time)
    board.announce([*(step.title for step in story), "closing"])
    board.begin(0)
    return board


async def told(board: Board, *story: Step) -> None:
    await run_story(story, cast("Stage", None), board, pause=0.5)


async def test_steps_are_done_in_order_and_looked_at_until_they_hold():
    world = World()
    first = Step("first", world.act("a"), world.holds_after(1))
    second = Step("second", world.act("b"), world.holds_after(5))
    board = announced(first, second)

    await told(board, first, second)

    assert world.done == ["a", "b"]
    assert [step.progress for step in board.steps[:-1]] == [Progress.HELD] * 2
    assert [step.detail for step in board.steps[:-1]] == ["seen", "seen"]
    assert board.steps[1].seconds > board.steps[0].seconds == pytest.approx(1.0)


async def test_a_step_that_does_not_hold_in_time_fails_by_name_and_nothing_follows():
    world = World()
    hopeless = Step("hopeless", world.act("a"), world.holds_after(10**9), within=5.0)
    never = Step("never", world.act("b"), world.holds_after(1))
    board = announced(hopeless, never)

    with pytest.raises(StepFailed, match=r"hopeless: not within 5 s: \d+ looks to go"):
        await told(board, hopeless, never)

    assert world.done == ["a"]
    assert [step.progress for step in board.steps[:-1]] == [Progress.FAILED, Progress.WAITING]


async def test_an_act_that_hangs_fails_too():
    world = World()
    slow = Step("slow", world.act("a"), world.holds_after(1), within=0.5)

    with pytest.raises(StepFailed, match="slow: not within 0.5 s: the action failed"):
        await told(announced(slow), slow)


async def test_a_step_under_way_when_all_breaks_down_is_the_one_that_failed():
    board = announced(Step("only", World().act("a"), World().holds_after(1)))

    board.give_up("the manager ended")

    assert board.steps[0].progress is Progress.FAILED
    assert board.steps[0].detail == "the manager ended"
    assert board.steps[-1].progress is Progress.WAITING


async def test_the_scene_has_the_time_that_the_present_step_has_taken():
    board = announced(Step("only", World().act("a"), World().holds_after(1)))

    await asyncio.sleep(3)

    assert board.scene().steps[0].seconds == pytest.approx(3.0)
    assert board.steps[0].seconds == 0


async def test_what_is_prepared_is_not_told_but_must_hold_too():
    world = World()
    step = Step("encore", world.act("a"), world.holds_after(3))

    await prepare(step, cast("Stage", None))

    assert world.done == ["a"]
    never = Step("encore", world.act("b"), world.holds_after(10**6), within=1)
    with pytest.raises(StepFailed, match="encore: not within 1 s"):
        await prepare(never, cast("Stage", None))

"""Tells a story on a stage: acts, looks until each step holds, and says how it went."""

import asyncio
from collections.abc import Sequence

from pileus_lab.demo.board import Board
from pileus_lab.demo.scene import Progress
from pileus_lab.demo.stage import Stage
from pileus_lab.demo.story import Held, Missing, Step

LOOK_AGAIN = 0.05


class StepFailed(Exception):
    """A step did not hold in time. The board has it."""


async def tell(story: Sequence[Step], stage: Stage, board: Board, pause: float) -> None:
    """Go through the steps, with a pause after each; the first one has begun already.

    Errors: `StepFailed`.
    """
    for index, step in enumerate(story):
        if index:
            board.begin(index)
        verdict = await _performed(step, stage)
        if isinstance(verdict, Missing):
            why = f"not within {step.within:g} s: {verdict.why}"
            board.end(index, Progress.FAILED, why)
            raise StepFailed(f"{step.title}: {why}")
        board.end(index, Progress.HELD, verdict.evidence)
        await asyncio.sleep(pause)


async def prepare(step: Step, stage: Stage) -> None:
    """Do it without telling. Errors: `StepFailed`."""
    verdict = await _performed(step, stage)
    if isinstance(verdict, Missing):
        raise StepFailed(f"{step.title}: not within {step.within:g} s: {verdict.why}")


async def _performed(step: Step, stage: Stage) -> Held | Missing:
    verdict: Held | Missing = Missing("it could not be done")
    try:
        async with asyncio.timeout(step.within):
            await step.act(stage)
            verdict = await step.proof(stage)
            while isinstance(verdict, Missing):
                await asyncio.sleep(LOOK_AGAIN)
                verdict = await step.proof(stage)
    except TimeoutError:
        pass
    return verdict

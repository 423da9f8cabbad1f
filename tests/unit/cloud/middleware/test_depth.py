"""The stack of a call in a running controller stays shallow enough to read in a traceback."""

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from tests.unit.controllers.service.world import World

FRAMES = 20
"""From the first frame of the controller's task to the provider's method, both included."""


def frames() -> list[str]:
    """The caller's stack within its task, innermost first."""
    found: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and Path(frame.f_code.co_filename).parent.name != "asyncio":
        found.append(f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return found


async def test_apply_is_at_most_twenty_frames_deep_in_a_running_controller() -> None:
    world = World()
    plain = world.plainly()
    sound, stacks = plain.apply, list[list[str]]()

    async def apply(change: Any, seen: Any) -> Any:
        stacks.append(frames())
        return await sound(change, seen)

    plain.apply = apply
    await world.add_node("a")
    await world.add()
    async with world.managed():
        await asyncio.sleep(5)

    assert stacks, "the controller applied nothing"
    deepest = max(stacks, key=len)
    assert len(deepest) <= FRAMES, "\n".join(deepest)
    ours = [one for one in deepest if "/pileus/cloud/middleware/" in one]
    assert len(ours) == 1, "the middleware is composed into one function"

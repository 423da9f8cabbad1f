"""Work in the background of a block."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager


@asynccontextmanager
async def background(work: Coroutine[object, object, None]) -> AsyncGenerator[None]:
    """Run `work` during the block, then cancel it and wait for its end.

    If it fails, the block is cancelled and the failure is raised.
    """
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        yield
        task.cancel()

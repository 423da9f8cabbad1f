"""A sign of life on a terminal, for what takes longer than a moment."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from pileus.app.background import background
from pileus.cli.terminal import Terminal

MOMENT = 1.0
STEP = 0.25
CLEAR = "\r\x1b[K"


@asynccontextmanager
async def progress(terminal: Terminal, text: str) -> AsyncGenerator[None]:
    """Show `text` and the seconds while the block lasts, after a moment, if someone can see it."""
    if not terminal.width(terminal.err):
        yield
        return
    async with background(_shown(terminal, text)):
        yield


async def _shown(terminal: Terminal, text: str) -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(MOMENT)
    try:
        while True:
            terminal.err.write(f"{CLEAR}{text} … {loop.time() - began:.0f} s")
            terminal.err.flush()
            await asyncio.sleep(STEP)
    finally:
        terminal.err.write(CLEAR)
        terminal.err.flush()

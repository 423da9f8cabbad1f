"""The demo on a terminal: the whole screen, drawn anew a few times each second."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rich.console import Console
from rich.live import Live

from pileus.app.beside import beside
from pileus_lab.demo.board import Board
from pileus_lab.demo.view import draw

REDRAW = 0.1


@asynccontextmanager
async def screen(board: Board, console: Console) -> AsyncGenerator[None]:
    """Show the board for as long as the block lasts; then the terminal is as it was before."""
    live = Live(
        console=console,
        screen=True,
        auto_refresh=False,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live:
        async with beside(_redraw(live, board, console)):
            yield


async def _redraw(live: Live, board: Board, console: Console) -> None:
    """A terminal that does not take what is written (Ctrl-S) must not stop the others."""
    while True:
        width, height = console.size
        drawn = draw(board.scene(), width, height)
        await asyncio.to_thread(live.update, drawn, refresh=True)
        await asyncio.sleep(REDRAW)

"""One performance: the stage is set, the story told, and then, for an audience, it goes on."""

import asyncio
import shlex
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from rich.console import Console

from pileus_lab.demo.board import Board
from pileus_lab.demo.folder import Folder
from pileus_lab.demo.screen import screen
from pileus_lab.demo.stage import Props, Stage, staged
from pileus_lab.demo.story import ENCORE, NOW, STORY
from pileus_lab.demo.telling import prepare, tell

CLOSING = "all stops, and nothing is left"
PACE = 0.6
"""Seconds for the eye, after each step, on a terminal."""
VISIT_EVERY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    once: bool
    """Tell the story, and end."""
    folder: Path | None
    out: TextIO
    console: Console | None
    """The terminal to draw on; None: there is none, or it cannot."""
    program: str = "pileus"
    """As the user started it."""


class Performance:
    """Runs once; what it knows can be asked for when it is over, however it ended."""

    def __init__(self, options: Options, given: Props) -> None:
        self._options = options
        self._given = given
        self._stage: Stage | None = None

    def places(self) -> set[tuple[str, int]]:
        """Every address and port that something listened on."""
        return self._stage.places() if self._stage else set()

    async def run(self) -> None:
        """Until the story is told, with `once`; else until cancelled.

        Errors: `StepFailed`, and what hinders the start.
        """
        board = self._given.board
        async with _shown(self._options.console, board):
            board.begin(0)
            async with staged(self._given) as self._stage:
                try:
                    await self._play(self._stage)
                finally:
                    board.begin(len(STORY))

    async def _play(self, stage: Stage) -> None:
        board = self._given.board
        await tell(STORY, stage, board, PACE if self._options.console else 0.0)
        if self._options.once:
            return
        await prepare(ENCORE, stage)
        board.invite(hints(self._given.folder, stage.shop.url(), self._options.program))
        while True:
            await stage.shop.visit(1)
            await asyncio.sleep(VISIT_EVERY)


@asynccontextmanager
async def _shown(console: Console | None, board: Board) -> AsyncGenerator[None]:
    if console is None:
        yield
        return
    async with screen(board, console):
        yield


def hints(folder: Folder, url: str, program: str) -> tuple[str, ...]:
    """Commands that work while the demo runs."""
    return (
        f"export KUBECONFIG={shlex.quote(str(folder.kubeconfig))}",
        "kubectl get nodes -o wide",
        f"kubectl describe node {NOW[0]}",
        "kubectl get services",
        "kubectl get events",
        f"curl {url}",
        f"export PILEUS_LOCAL={shlex.quote(str(folder.socket))}",
        f"{shlex.quote(program)} local instances delete {NOW[0]}",
    )

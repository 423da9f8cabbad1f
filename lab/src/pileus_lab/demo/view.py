"""How the demo is shown: a full screen on a terminal, plain lines elsewhere."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import TextIO

from rich.console import Console, Group
from rich.text import Text

from pileus.app.background import background
from pileus.cli.keyboard import Key, keyboard
from pileus.cli.screen import GAP, NONE, FullScreen, Section, aligned, cut, joined, stack
from pileus.cloud.balancer import Effect
from pileus_lab.demo.state import (
    BalancerRow,
    Board,
    EventRow,
    NodeRow,
    NodeState,
    Note,
    Progress,
    Scene,
    StepRow,
)

TWO_COLUMNS = 110
TALL = 36
"""From this height on, commands to try are shown without hiding steps."""
TITLE = "Pileus demo"
ENDING = "q or Ctrl-C stops the demo"

STATES = {
    NodeState.BOOTING: "cyan",
    NodeState.TAINTED: "yellow",
    NodeState.INITIALIZED: "green",
    NodeState.LOST: "red",
}
PROGRESSES = {
    Progress.WAITING: ("·", "dim"),
    Progress.UNDER_WAY: ("▸", "bold cyan"),
    Progress.HELD: ("✓", "green"),
    Progress.FAILED: ("✗", "bold red"),
}
EFFECTS = {
    Effect.CREATE: "green",
    Effect.UPDATE: "yellow",
    Effect.REPLACE: "magenta",
    Effect.DELETE: "red",
}


def draw(scene: Scene, width: int, height: int) -> Group:
    """The whole screen, never wider or higher than the terminal."""
    hints = stack(_hints(scene, width), width, height - 1)
    room = height - 1 - len(hints)
    if width < TWO_COLUMNS:
        is_brief = bool(scene.hints) and height < TALL
        sections = (*_told(scene, is_brief=is_brief), *_there(scene, width))
        lines = stack(_in_one_column(sections), width, room)
    else:
        half = (width - GAP) // 2
        left = stack(_told(scene, is_brief=False), half, room)
        right = stack(_there(scene, half), half, room)
        pairs = zip_longest(left, right, fillvalue=Text())
        lines = [joined(pair, (half, half)) for pair in pairs]
    return Group(_head(scene, width), *lines, *hints)


def _head(scene: Scene, width: int) -> Text:
    head = Text(TITLE, style="bold")
    head.append(f"  {scene.elapsed:.1f} s", style="dim")
    space = width - head.cell_len - len(ENDING)
    if space > 0:
        head.append(" " * space + ENDING, style="dim")
    return cut(head, width)


def _told(scene: Scene, *, is_brief: bool) -> tuple[Section, ...]:
    return (
        Section("Story", _story(scene.steps, is_brief=is_brief)),
        Section("Changes", tuple(_note(note) for note in scene.notes), shrinks=True),
    )


def _there(scene: Scene, width: int) -> tuple[Section, ...]:
    sight = scene.sight
    return (
        Section("Nodes", aligned([_node(row) for row in sight.nodes], width) or NONE),
        Section("Balancers", tuple(_balancer(row) for row in sight.balancers) or NONE),
        Section("Events", tuple(_event(row) for row in sight.events), shrinks=True),
    )


def _hints(scene: Scene, width: int) -> tuple[Section, ...]:
    """Commands to try, in the whole width: nothing else is in the lines that are copied."""
    lines = tuple(line for hint in scene.hints for line in _folded(hint, width))
    return (Section("Try in another terminal", lines),) if lines else ()


def _in_one_column(sections: Sequence[Section]) -> tuple[Section, ...]:
    story, changes, nodes, balancers, *rest = sections
    return (story, nodes, balancers, changes, *rest)


def _folded(text: str, width: int) -> list[Text]:
    """Splits a command into lines that a shell joins: each but the last ends with a backslash."""
    lines: list[Text] = []
    while len(text) > width > 1:
        at = text.rfind(" ", 1, width - 1) + 1 or width - 1
        lines.append(Text(f"{text[:at]}\\"))
        text = text[at:]
    return [*lines, Text(text)]


def _story(steps: Sequence[StepRow], *, is_brief: bool) -> tuple[Text, ...]:
    if is_brief:
        took = sum(step.seconds for step in steps)
        held = sum(step.progress is Progress.HELD for step in steps)
        return (Text(f"{held} steps succeeded in {took:.1f} s", style="green"),)
    return tuple(_step(step) for step in steps)


def _step(step: StepRow) -> Text:
    sign, style = PROGRESSES[step.progress]
    line = Text(f"{sign} {step.title}", style)
    if step.progress is not Progress.WAITING:
        line.append(f"  {step.seconds:.1f} s", style="dim")
    return line


def _node(row: NodeRow) -> tuple[Text, ...]:
    return (
        Text(row.name, style="bold"),
        Text(row.state, style=STATES[row.state]),
        Text(row.ready or "-", style="green" if row.ready == "Ready" else "dim"),
        Text(row.address or "-"),
        Text(row.zone or "-"),
        Text(row.type, style="dim"),
    )


def _balancer(row: BalancerRow) -> Text:
    line = Text(row.name, style="bold")
    line.append(f"  {row.where}", style="cyan")
    for name in row.members:
        line.append(f"  {name} ")
        line.append(str(row.answers.get(name, 0)), style="green")
    return line


def _note(note: Note) -> Text:
    line = Text(f"{note.at:5.1f} ", style="dim")
    line.append(f"{note.source:<8}", style="dim")
    line.append(f"{note.effect} {note.text}", style=EFFECTS[note.effect])
    return line


def _event(row: EventRow) -> Text:
    line = Text(f"{row.about} ")
    line.append(row.reason, style="yellow" if row.is_warning else "green")
    line.append(f" {row.message}", style="dim")
    return line


@dataclass(frozen=True, slots=True)
class Plain:
    """Writes each line as soon as it is known."""

    out: TextIO
    is_brief: bool = False
    """Whether only steps are written, without the changes that they cause."""

    when_gone: Callable[[], None] = lambda: None
    """Called when the reader has closed the pipe, as `| head` does."""

    def say(self, text: str) -> None:
        try:
            self.out.write(f"{text}\n")
            self.out.flush()
        except BrokenPipeError:
            self.when_gone()

    def noted(self, note: Note) -> None:
        if not self.is_brief:
            self.say(f"  {note.at:5.1f} s  {note.source:<7} {note.effect} {note.text}")

    def began(self, step: StepRow) -> None:
        if not self.is_brief:
            self.say(f"{step.title} ...")

    def ended(self, step: StepRow) -> None:
        self.say(f"{_line(step)} ({step.detail})" if step.detail else _line(step))

    def invited(self, hints: Iterable[str]) -> None:
        self.say("\n".join(("Try in another terminal (Ctrl-C here stops the demo):", *hints)))

    def summarize(self, steps: Iterable[StepRow]) -> None:
        """Writes how each step ended, after the screen was closed."""
        for step in steps:
            if step.progress in {Progress.HELD, Progress.FAILED}:
                self.say(_line(step))

    def confess(self, failure: str, last_words: Iterable[str]) -> None:
        """Writes what failed, with the end of the log."""
        self.say(f"\nThe demo failed: {failure}")
        lines = [f"  {line}" for line in last_words]
        if lines:
            self.say("\n".join(("The last lines of its log:", *lines)))


def _line(step: StepRow) -> str:
    return f"{step.progress:<6} {step.seconds:5.1f} s  {step.title}"


REDRAW = 0.1


@asynccontextmanager
async def screen(board: Board, console: Console, stop: Callable[[], None]) -> AsyncGenerator[None]:
    """Shows the board while the block lasts, then restores the terminal. The key q stops."""

    def pressed(key: Key) -> None:
        if key is Key.QUIT:
            stop()

    shown = FullScreen(console)
    with shown.shown():
        async with keyboard(pressed), background(_redraw(shown, board, console)):
            yield


async def _redraw(shown: FullScreen, board: Board, console: Console) -> None:
    """A terminal that does not take output (Ctrl-S) must not stop the demo."""
    while True:
        width, height = console.size
        drawn = draw(board.scene(), width, height)
        await asyncio.to_thread(shown.draw, drawn)
        await asyncio.sleep(REDRAW)

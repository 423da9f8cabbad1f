"""`pileus top`: watches nodes, Services and the decisions of the running manager.

Exit codes: 0 ended by the user, or one frame was printed · 1 an error.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest

from rich.console import Console, Group
from rich.text import Text

from pileus.app.errors import CommandFailed, NoApiServer
from pileus.app.history import HistoryReader, history_reader
from pileus.cli.cluster_command import Command, Request, Runner, run_cluster_command, shown_name
from pileus.cli.explain import age
from pileus.cli.history import OUTPUT, REACH_FLAGS, headline, reach_of
from pileus.cli.keyboard import Key, keyboard
from pileus.cli.screen import (
    GAP,
    NONE,
    FullScreen,
    Section,
    aligned,
    cut,
    joined,
    last_offset,
    stack,
)
from pileus.cli.terminal import Terminal, plain
from pileus.controllers.service.status import CONDITION
from pileus.dataclass import dataclass
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import NODES, SERVICES, Node, Service
from pileus.kube.settings import ClientSettings
from pileus.objects.nodes import addresses_of, is_ready, is_uninitialized
from pileus.settings import flags
from pileus.telemetry.journal import Entry, History, Question, decoded
from pileus.telemetry.metrics import new_metrics

ONCE = flags.switch("once", "Print one frame and exit.")
COMMAND = Command(
    "Watch nodes, Services of type LoadBalancer and the decisions of the running manager. Reads "
    "only, with your own token; no cloud credentials are needed. Objects with problems come first; "
    "arrow keys, Page Up and Page Down scroll, q ends it.\n\n"
    "Exit codes: 0 ended, 1 an error.",
    flags.Group("Top", (*REACH_FLAGS, ONCE, OUTPUT), ours=True),
    needs_cloud=False,
    cloud_flag=None,
    outputs=("text",),
)
PERIOD = 2.0
"""Seconds between two frames."""
KEPT = 200
TWO_COLUMNS = 110
ONE_FRAME = (100, 40)
"""Columns and lines of a frame that is printed to a file."""
ZONE = "topology.kubernetes.io/zone"
RESULTS = {"done": "green", "failed": "bold red"}
KEYS = "↑↓ scroll, q ends"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What one frame shows."""

    history: History
    entries: Sequence[Entry]
    nodes: Sequence[Node] = ()
    services: Sequence[Service] = ()
    problem: str = ""
    """Why nodes and Services, or newer decisions, are not shown."""
    offset: int = 0
    """How many lines the lists of nodes and Services are scrolled."""

    @property
    def now(self) -> datetime:
        return self.history.now


def main(program: str, arguments: Sequence[str], terminal: Terminal) -> int:
    def work(request: Request, run: Runner) -> int:
        if request.values[ONCE] or not terminal.width(terminal.out):
            frame = run(_first(request))
            width = terminal.width(terminal.out) or ONE_FRAME[0]
            console = Console(file=terminal.out, width=width, highlight=False)
            console.print(draw(frame, width, ONE_FRAME[1]))
            return 0
        with suppress(KeyboardInterrupt):
            asyncio.run(_watch(request, Console(file=terminal.out, highlight=False)))
        return 0

    return run_cluster_command(program, COMMAND, arguments, terminal, work)


async def _first(request: Request) -> Frame:
    async with _reader(request) as reader:
        return await Watcher(reader).frame()


async def _watch(request: Request, console: Console) -> None:
    async with _reader(request) as reader:
        watcher, scroll = Watcher(reader), Scroll(console)
        frame = await watcher.frame()
        screen = FullScreen(console)
        async with _shown(screen, scroll):
            while not scroll.is_over:
                drawn = draw(scroll.applied(frame), *console.size)
                await asyncio.to_thread(screen.draw, drawn)
                frame = frame if await scroll.wait(PERIOD) else await watcher.next_frame(frame)


@asynccontextmanager
async def _shown(screen: FullScreen, scroll: "Scroll") -> AsyncGenerator[None]:
    with screen.shown():
        async with keyboard(scroll.press):
            yield


class Scroll:
    """What the keys asked for: the position in the lists, and the end."""

    def __init__(self, console: Console) -> None:
        self.is_over = False
        self._console = console
        self._offset = 0
        self._last = 0
        self._pressed = asyncio.Event()

    def press(self, key: Key) -> None:
        page = max(1, self._console.size.height // 2)
        match key:
            case Key.QUIT:
                self.is_over = True
            case Key.HOME:
                self._offset = 0
            case Key.END:
                self._offset = self._last
            case Key.UP | Key.PAGE_UP:
                self._offset -= 1 if key is Key.UP else page
            case Key.DOWN | Key.PAGE_DOWN:
                self._offset += 1 if key is Key.DOWN else page
        self._offset = min(max(self._offset, 0), self._last)
        self._pressed.set()

    def applied(self, frame: Frame) -> Frame:
        self._last = _last_offset(frame, *self._console.size)
        self._offset = min(self._offset, self._last)
        return replace(frame, offset=self._offset)

    async def wait(self, seconds: float) -> bool:
        """Waits for a key. Returns whether one was pressed before the time is over."""
        try:
            async with asyncio.timeout(seconds):
                await self._pressed.wait()
        except TimeoutError:
            return False
        self._pressed.clear()
        return True


def _reader(request: Request) -> AbstractAsyncContextManager[HistoryReader]:
    world = request.world
    access = world.access(request.config[ClientSettings], world.environ)
    reach, clock = reach_of(request.values), world.times.wall
    return history_reader(access, reach, request.config, clock, new_metrics())


class Watcher:
    """Collects frames: decisions that are new, and the current nodes and Services."""

    def __init__(self, reader: HistoryReader) -> None:
        self._reader = reader
        self._entries = deque[Entry](maxlen=KEPT)
        self._after = 0
        self._identity: str = ""

    async def frame(self) -> Frame:
        """Raises CommandFailed or NoApiServer if the leader cannot be asked."""
        history = await self._reader.read(Question(limit=KEPT, after=self._after))
        if history.identity != self._identity and self._identity:  # another leader, from its start
            self._entries.clear()
            self._after = 0
            history = await self._reader.read(Question(limit=KEPT))
        self._identity, self._after = history.identity, history.sequence
        self._entries.extend(decoded(history))
        try:
            nodes = (await self._reader.client.list(NODES)).items
            services = (await self._reader.client.list(SERVICES)).items
        except KubeError as error:
            return Frame(history=history, entries=[*self._entries], problem=str(error))
        return Frame(history=history, entries=[*self._entries], nodes=nodes, services=services)

    async def next_frame(self, last: Frame) -> Frame:
        """Returns the next frame; the last one with the problem if the leader does not answer."""
        try:
            return await self.frame()
        except (CommandFailed, NoApiServer) as error:
            return Frame(
                history=last.history,
                entries=last.entries,
                nodes=last.nodes,
                services=last.services,
                problem=str(error),
            )


def draw(frame: Frame, width: int, height: int) -> Group:
    """The whole screen, never wider or higher than the terminal."""
    columns, wide, room = _layout(frame, width, height)
    stacks = [stack(sections, wide, room) for sections in columns]
    pairs = zip_longest(*stacks, fillvalue=Text())
    lines = stacks[0] if len(stacks) == 1 else [joined(pair, (wide, wide)) for pair in pairs]
    trouble = [cut(Text(plain(f"! {frame.problem}"), style="red"), width)] if frame.problem else []
    return Group(_head(frame, width), *trouble, *lines)


def _layout(frame: Frame, width: int, height: int) -> tuple[Sequence[Sequence[Section]], int, int]:
    """Returns one or two columns of sections, with their width and height."""
    room = height - 1 - bool(frame.problem)
    decisions = Section("Decisions", tuple(_decisions(frame, width)) or NONE, shrinks=True)
    there = (
        _listed("Nodes", [*map(_node, sorted(frame.nodes, key=_node_order))], width, frame),
        _listed(
            "Services", [*map(_service, sorted(_balanced(frame), key=_service_order))], width, frame
        ),
    )
    if width < TWO_COLUMNS:
        return ((*there, decisions),), width, room
    return ((decisions,), there), (width - GAP) // 2, room


def _last_offset(frame: Frame, width: int, height: int) -> int:
    """Returns how far the lists can be scrolled."""
    columns, _, room = _layout(frame, width, height)
    return max(last_offset(sections, room) for sections in columns)


def _listed(title: str, rows: Sequence[tuple[Text, ...]], width: int, frame: Frame) -> Section:
    return Section(title, aligned(rows, width) or NONE, scrolls=True, offset=frame.offset)


def _node_order(node: Node) -> tuple[bool, str]:
    """Nodes with problems first."""
    return not is_uninitialized(node) and is_ready(node), node.metadata.name


def _service_order(service: Service) -> tuple[bool, bool, str]:
    """Services with problems first: those that are not ready, then those without address."""
    name = shown_name(service.metadata.namespace, service.metadata.name)
    return not _problem_of(service), bool(_ingress_of(service)), name


def _problem_of(service: Service) -> str:
    """Returns the reason of the condition that says that the load balancer is not ready."""
    conditions = (service.status.conditions if service.status else None) or ()
    found = (each for each in conditions if each.type == CONDITION and each.status != "True")
    return next((each.reason for each in found), "")


def _head(frame: Frame, width: int) -> Text:
    head = Text("Pileus", style="bold")
    history = frame.history
    started = f"started {age(history.since, frame.now)} ago"
    head.append(f"  {started}, leader {plain(history.identity)}", style="dim")
    room = width - len(KEYS) - GAP
    if room < len(f"Pileus  {started}"):
        return cut(head, width)
    head = cut(head, room)
    head.append(" " * (width - head.cell_len - len(KEYS)) + KEYS, style="dim")
    return head


def _decisions(frame: Frame, width: int) -> Sequence[Text]:
    rows = [_decision(entry, frame.now) for entry in frame.entries]
    return aligned(rows, max(width, ONE_FRAME[0]) * 4)  # the last column is cut, not dropped


def _decision(entry: Entry, now: datetime) -> tuple[Text, ...]:
    often = f" (x{entry.count})" if entry.count > 1 else ""
    return (
        Text(age(entry.at, now), style="dim"),
        Text(plain(entry.object.title), style="bold"),
        Text(plain(headline(entry)) + often, style=RESULTS.get(entry.result, "yellow")),
    )


def _node(node: Node) -> tuple[Text, ...]:
    is_new = is_uninitialized(node)
    addresses = (each.address for each in addresses_of(node) if each.type == "InternalIP")
    return (
        Text(plain(node.metadata.name), style="bold"),
        Text("uninitialized" if is_new else "initialized", style="yellow" if is_new else "green"),
        Text("Ready", style="green") if is_ready(node) else Text("NotReady", style="red"),
        Text(plain(next(addresses, "-"))),
        Text(plain((node.metadata.labels or {}).get(ZONE, "-")), style="dim"),
    )


def _balanced(frame: Frame) -> Sequence[Service]:
    return [each for each in frame.services if each.spec and each.spec.type == "LoadBalancer"]


def _ingress_of(service: Service) -> list[str]:
    status = service.status.load_balancer if service.status else None
    return [each.ip or each.hostname or "" for each in (status and status.ingress) or ()]


def _service(service: Service) -> tuple[Text, ...]:
    found = _ingress_of(service)
    name = shown_name(service.metadata.namespace, service.metadata.name)
    address = (
        Text(plain(", ".join(found)), style="cyan") if found else Text("pending", style="yellow")
    )
    problem = Text(plain(_problem_of(service)), style="red")
    return Text(plain(name), style="bold"), address, problem

"""`pileus top`: what is shown when there are more objects than rows, and the keys."""

import asyncio
import io
import os
import pty
import sys
import termios
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from pileus.app.errors import CommandFailed, NoApiServer
from pileus.app.history import HistoryReader
from pileus.cli.keyboard import Key, keyboard, keys_of
from pileus.cli.screen import Section
from pileus.cli.top import Frame, Scroll, Watcher, draw
from pileus.kube.model.core_v1 import (
    Condition,
    LoadBalancerIngress,
    LoadBalancerStatus,
    Node,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    Service,
    ServiceSpec,
    ServiceStatus,
    Taint,
)
from pileus.kube.model.meta import ObjectMeta
from pileus.telemetry.journal import History, Journal, Question
from tests.unit.cli.test_history import NOW, journal_with

TAINT = Taint(key="node.cloudprovider.kubernetes.io/uninitialized", effect="NoSchedule")


def node(name: str, *, taints: tuple[Taint, ...] = (), ready: str = "True") -> Node:
    return Node(
        metadata=ObjectMeta(name=name),
        spec=NodeSpec(taints=taints),
        status=NodeStatus(conditions=(NodeCondition(type="Ready", status=ready),)),
    )


def service(name: str, address: str = "192.0.2.1", problem: str = "") -> Service:
    ingress = (LoadBalancerIngress(ip=address),) if address else ()
    condition = Condition(
        type="pileus.dev/Ready", status="False" if problem else "True", reason=problem or "Fine"
    )
    return Service(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ServiceSpec(type="LoadBalancer"),
        status=ServiceStatus(
            load_balancer=LoadBalancerStatus(ingress=ingress), conditions=(condition,)
        ),
    )


MANY = Frame(
    history=journal_with().history(Question(), NOW),
    entries=(),
    nodes=[
        *(node(f"n{number:02}") for number in range(50)),
        node("x-tainted", taints=(TAINT,)),
        node("y-silent", ready="Unknown"),
    ],
    services=[
        *(service(f"s{number:02}") for number in range(30)),
        service("x-waiting", address=""),
        service("y-failing", problem="QuotaExceeded"),
    ],
)


def lines_of(frame: Frame, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height)
    with console.capture() as captured:
        console.print(draw(frame, width, height))
    return captured.get().splitlines()


def part(lines: Sequence[str], title: str) -> list[str]:
    """The lines of a section."""
    start = next(number for number, line in enumerate(lines) if line.startswith(f"{title} "))
    ends = (n for n in range(start + 1, len(lines)) if "───" in lines[n])
    return [line.rstrip() for line in lines[start + 1 : next(ends, len(lines))]]


def test_objects_with_problems_are_first_and_the_others_are_counted():
    lines = lines_of(MANY, 80, 24)
    nodes, services = part(lines, "Nodes"), part(lines, "Services")

    assert len(lines) <= 24
    assert [line.split()[0] for line in nodes[:3]] == ["x-tainted", "y-silent", "n00"]
    assert nodes[-1] == f"… {52 - (len(nodes) - 1)} more"
    assert services[0].split() == ["default/y-failing", "192.0.2.1", "QuotaExceeded"]
    assert services[1].split() == ["default/x-waiting", "pending"]
    assert services[-1] == f"… {32 - (len(services) - 1)} more"
    assert "q ends" in lines[0]


class Unreachable:
    """A leader that cannot be asked any more."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def read(self, question: Question) -> History:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(CommandFailed("there is no leader"), id="leader"),
        pytest.param(NoApiServer("cannot connect", untrusted=True), id="API server"),
    ],
)
async def test_what_was_seen_last_stays_when_nothing_answers(error: Exception):
    watcher = Watcher(cast("HistoryReader", Unreachable(error)))

    frame = await watcher.next_frame(MANY)

    assert (frame.nodes, frame.services) == (MANY.nodes, MANY.services)
    assert lines_of(frame, 80, 24)[1] == f"! {error}"


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_the_keys_are_named_beside_the_identity_of_a_real_leader(width: int):
    host = "control-plane-1.example.org_835baa3b-3ada-4df8-a501-6d59774ff258"
    journal = Journal(NOW - timedelta(hours=1), identity=host)

    first = lines_of(replace(MANY, history=journal.history(Question(), NOW)), width, 24)[0]

    assert len(first) <= width
    assert first.endswith("q ends")
    assert "started 60m ago, leader control-" in first


def test_keys_scroll_the_lists_and_end_it():
    scroll = Scroll(Console(file=io.StringIO(), width=80, height=24))
    scroll.applied(MANY)
    for key in (Key.DOWN, Key.DOWN, Key.UP, Key.PAGE_DOWN):
        scroll.press(key)

    nodes = part(lines_of(scroll.applied(MANY), 80, 24), "Nodes")
    scroll.press(Key.END)
    last = part(lines_of(scroll.applied(MANY), 80, 24), "Nodes")
    scroll.press(Key.HOME)
    scroll.press(Key.UP)
    first = part(lines_of(scroll.applied(MANY), 80, 24), "Nodes")
    scroll.press(Key.QUIT)

    assert nodes[-1].startswith("… 13 above, ")
    assert last[-2].startswith("n49")
    assert last[-1].endswith(" above, 0 below")
    assert first[0].startswith("x-tainted")
    assert scroll.is_over


@pytest.mark.parametrize("size", [(80, 24), (80, 60), (160, 24), (160, 60)])
@pytest.mark.parametrize("down", [(Key.END,), (Key.PAGE_DOWN,) * 20, (Key.DOWN,) * 90])
def test_after_the_end_one_key_goes_back_at_once(size: tuple[int, int], down: tuple[Key, ...]):
    scroll = Scroll(Console(file=io.StringIO(), width=size[0], height=size[1]))
    scroll.applied(MANY)

    for key in down:
        scroll.press(key)
    last = lines_of(scroll.applied(MANY), *size)
    scroll.press(Key.UP)
    before = lines_of(scroll.applied(MANY), *size)
    scroll.press(Key.DOWN)

    assert any("n49" in line for line in last)
    assert any("s29" in line for line in last)
    assert before != last
    assert lines_of(scroll.applied(MANY), *size) == last


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 40))
def test_every_line_is_shown_or_counted(count: int, rows: int, offset: int):
    lines = tuple(Text(str(number)) for number in range(count))

    shown = [str(each) for each in Section("s", lines, scrolls=True, offset=offset).shown(rows)]

    assert len(shown) <= rows
    if rows >= 1 and count > rows:
        told = sum(int(word) for word in shown[-1].split() if word.isdigit())
        assert told + len(shown) - 1 == count


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(b"q", [Key.QUIT], id="q"),
        pytest.param(b"\x1b[A\x1bOB", [Key.UP, Key.DOWN], id="arrows"),
        pytest.param(b"\x1b[5~\x1b[6~", [Key.PAGE_UP, Key.PAGE_DOWN], id="pages"),
        pytest.param(b"\x1b[15~j", [Key.DOWN], id="a function key is skipped"),
        pytest.param(b"xyz\x1b", [], id="others"),
    ],
)
def test_keys_are_what_terminals_send(sent: bytes, expected: list[Key]):
    assert list(keys_of(sent)) == expected


@given(st.binary(max_size=20))
def test_whatever_is_sent_is_read_to_its_end(sent: bytes):
    assert len(list(keys_of(sent))) <= len(sent)


@pytest.mark.real_time
async def test_keys_are_read_without_echo_and_the_terminal_is_restored(
    monkeypatch: pytest.MonkeyPatch,
):
    master, slave = pty.openpty()
    pressed: asyncio.Queue[Key] = asyncio.Queue()
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(terminal)
        async with keyboard(pressed.put_nowait):
            during = termios.tcgetattr(terminal)
            os.write(master, b"q")
            assert await pressed.get() is Key.QUIT
        assert termios.tcgetattr(terminal) == before
    os.close(master)

    assert not during[3] & (termios.ECHO | termios.ICANON)
    assert during[3] & termios.ISIG

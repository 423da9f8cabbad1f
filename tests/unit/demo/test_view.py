"""Whatever there is to see, and however small the screen: it fits, and commands stay whole."""

import io
import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from pileus.cli.screen import FullScreen, Section, shares
from pileus.cloud.balancer import Effect
from pileus_lab.demo.state import (
    BalancerRow,
    EventRow,
    NodeRow,
    NodeState,
    Note,
    Progress,
    Scene,
    Sight,
    StepRow,
)
from pileus_lab.demo.view import TWO_COLUMNS, draw

words = st.text(alphabet="ab -:.é漢", max_size=80)
nodes = st.builds(
    NodeRow, name=words, state=st.sampled_from(NodeState), address=words, zone=words, type=words
)
notes = st.builds(Note, st.floats(0, 1e4), words, st.sampled_from(Effect), words)
sights = st.builds(
    Sight,
    nodes=st.lists(nodes, max_size=12).map(tuple),
    balancers=st.lists(
        st.builds(BalancerRow, name=words, where=words, members=st.tuples(words, words)), max_size=5
    ).map(tuple),
    events=st.lists(
        st.builds(EventRow, about=words, reason=words, message=words, is_warning=st.booleans()),
        max_size=30,
    ).map(tuple),
)
scenes = st.builds(
    Scene,
    elapsed=st.floats(0, 1e5),
    steps=st.lists(
        st.builds(StepRow, title=words, progress=st.sampled_from(Progress)), max_size=10
    ).map(tuple),
    sight=sights,
    notes=st.lists(notes, max_size=60).map(tuple),
    hints=st.lists(words, max_size=8).map(tuple),
)


def drawn(scene: Scene, width: int, height: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(draw(scene, width, height))
    return out.getvalue().splitlines()


def on_a_terminal(scene: Scene, width: int, height: int) -> list[str]:
    """The lines as they are sent to a terminal, with all their blanks."""
    console = Console(file=(out := io.StringIO()), width=width, height=height, force_terminal=True)
    FullScreen(console).draw(draw(scene, width, height))
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", out.getvalue()).splitlines()


def story(*, hints: tuple[str, ...] = ()) -> Scene:
    return Scene(
        elapsed=3.25,
        steps=(
            StepRow(title="nodes come", progress=Progress.HELD, seconds=1.2),
            StepRow(title="a balancer answers", progress=Progress.UNDER_WAY, seconds=0.4),
            StepRow(title="it goes"),
        ),
        sight=Sight(
            nodes=(
                NodeRow(
                    name="web-1",
                    state=NodeState.INITIALIZED,
                    address="127.90.0.1",
                    zone="local-1a",
                    type="small",
                    ready="Ready",
                ),
                NodeRow(name="web-2", state=NodeState.TAINTED),
            ),
            balancers=(
                BalancerRow(
                    name="shop", where="127.90.0.129:8080", members=("web-1",), answers={"web-1": 7}
                ),
            ),
            events=tuple(
                EventRow(about="node/web-1", reason="Synced", message=f"number {n}")
                for n in range(50)
            ),
        ),
        notes=tuple(Note(n / 10, "cluster", Effect.UPDATE, f"change {n}") for n in range(50)),
        hints=hints,
    )


@settings(max_examples=60)
@given(scenes, st.integers(1, 200), st.integers(1, 60))
def test_a_drawing_is_never_larger_than_its_screen(scene: Scene, width: int, height: int):
    lines = drawn(scene, width, height)

    console = Console(width=width)
    assert len(lines) <= height
    assert all(console.measure(line).minimum <= width for line in lines)


@pytest.mark.parametrize(("width", "height"), [(60, 24), (80, 24), (120, 40)])
def test_the_usual_screens_show_everything_that_matters(width: int, height: int):
    text = "\n".join(drawn(story(), width, height))

    for part in ("nodes come  1.2 s", "web-1  initialized", "web-2  tainted", "web-1 7"):
        assert part in text
    assert "127.90.0.129:8080" in text
    assert "change 49" in text
    assert "number 49" in text
    assert "change 0" not in text


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_commands_to_try_can_be_copied_into_a_shell(width: int):
    hints = (
        f"echo KUBECONFIG=/tmp/{'x' * 90}/kubeconfig",
        f"echo /tmp/{'y' * 24}/local.sock second third 'a b' fourth fifth sixth seventh eighth",
        "echo last",
    )

    lines = on_a_terminal(story(hints=hints), width, 24)
    title = next(at for at, line in enumerate(lines) if line.startswith("Try in another terminal"))
    copied = "\n".join(lines[title + 1 :])
    done = subprocess.run(["/bin/sh", "-c", copied], capture_output=True, text=True, check=True)

    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        hint.removeprefix("echo ").replace("'", "") for hint in hints
    ]


def test_columns_that_do_not_fit_are_left_out_whole():
    wide, narrow = (drawn(story(), width, 40) for width in (60, 30))

    assert any(line.startswith("web-1") and line.endswith("local-1a  small") for line in wide)
    assert "web-1  initialized  Ready" in narrow


def test_a_wide_screen_has_two_columns():
    lines = drawn(story(), TWO_COLUMNS, 40)

    assert any("Story" in line and "Nodes" in line for line in lines)


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=6), st.integers(0, 80))
def test_sections_that_shrink_share_what_the_others_leave(sizes: list[tuple[int, bool]], room: int):
    sections = [Section("s", (Text("x"),) * count, shrinks=s) for count, s in sizes]

    given_lines = shares(sections, room)

    for section, height in zip(sections, given_lines, strict=True):
        assert 0 <= height <= section.height
        assert section.shrinks or height == section.height
    fixed = sum(section.height for section in sections if not section.shrinks)
    shrinking = [section for section in sections if section.shrinks]
    if shrinking and fixed + 2 * len(shrinking) <= room:
        wanted = sum(section.height for section in sections)
        assert sum(given_lines) == min(room, wanted)

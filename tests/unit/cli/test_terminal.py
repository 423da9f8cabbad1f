"""What a command writes arrives whole."""

import io
import json
import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pileus.cli.terminal import Ink, Style, Terminal, printable, show_table, table_lines, whole

TEXT = "a line\n" * 1000


class Narrow(io.RawIOBase):
    """A pipe that takes little at a time."""

    def __init__(self) -> None:
        self.taken = b""

    def writable(self) -> bool:
        return True

    def write(self, given: object, /) -> int:
        part = bytes(given)[:100]  # type: ignore[call-overload]
        self.taken += part
        return len(part)


def test_an_unbuffered_stream_loses_nothing_when_a_pipe_takes_only_a_part():
    pipe, lossy = Narrow(), Narrow()
    unbuffered = io.TextIOWrapper(pipe, write_through=True)  # type: ignore[type-var]

    whole(unbuffered).write(TEXT)
    io.TextIOWrapper(lossy, write_through=True).write(TEXT)  # type: ignore[type-var]

    assert pipe.taken.decode() == TEXT
    assert lossy.taken.decode() != TEXT, "Python has mended this: `whole` is no longer needed"


def test_a_stream_that_has_a_buffer_or_is_none_stays_as_it_is():
    for stream in (io.TextIOWrapper(io.BytesIO()), io.StringIO()):
        assert whole(stream) is stream


HOSTILE = "\x1b]0;title\x07\x1b[2J\x1b[8mhidden\x1b[0K\rshown\x9b31m\u202etxt.exe\udc80"


@given(st.text(st.characters()))
def test_no_text_of_others_controls_the_terminal(text: str):
    shown = printable(text).replace("\n", "").replace("\t", "")
    for ink in ("0", *Ink):
        shown = shown.replace(f"\x1b[{ink}m", "")
    assert shown.isprintable()
    assert shown.encode().decode() == shown


def test_colours_and_line_breaks_of_a_command_stay():
    text = f'{Style(80, has_colour=True).inked("error", Ink.RED)}\n\tnext "x" \\ ü\n'
    assert printable(text) == text


FORGED = "\x1b[32mNo changes.\x1b[0m\nPlan: nothing to do\r"
"""A text with line breaks and colours of the commands."""


@pytest.mark.parametrize("width", [0, 80])
def test_a_text_of_others_has_neither_colours_nor_lines_of_its_own(width: int):
    style = Style(width, has_colour=True)
    (line,) = style.lines(FORGED, 0)
    (_, row) = table_lines(("a", "b"), [(FORGED, "x")], 0)
    for shown in (line, row.rstrip()):
        assert shown.isprintable()
        assert printable(shown) == shown
    assert style.inked(FORGED, Ink.RED) == f"\x1b[31m{line}\x1b[0m"
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    terminal.refuse("no", HOSTILE)
    assert isinstance(terminal.err, io.StringIO)
    assert terminal.err.getvalue().replace("\n", "").isprintable()


def test_a_document_in_json_keeps_its_meaning():
    document = {"message": HOSTILE + "\U000e0001"}
    text = json.dumps(document, ensure_ascii=False, indent=2)
    assert json.loads(printable(text)) == document


def test_tables_errors_and_texts_are_written_without_control_characters():
    terminal = Terminal(io.StringIO(), io.StringIO(), {})
    show_table(terminal, ("name",), [(HOSTILE,)])
    terminal.show(HOSTILE)
    terminal.refuse(HOSTILE)
    for stream in (terminal.out, terminal.err):
        assert isinstance(stream, io.StringIO)
        assert stream.getvalue().replace("\n", "").isprintable()


def typed(word: str, quote: str) -> str:
    """Returns how a user may write a word: in single quotes, double quotes, or with escapes."""
    if quote == '"':
        return '"' + "".join(f"\\{one}" if one in '"\\$`' else one for one in word) + '"'
    if quote == "\\" and word and "\n" not in word:
        return "".join(f"\\{one}" for one in word)
    return shlex.quote(word)


PLAIN = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"])
WORDS = st.lists(
    st.builds(
        typed,
        st.text(st.sampled_from("   '\"\\$`#&|;,:{}[]") | PLAIN, min_size=9, max_size=60),
        st.sampled_from("'\"\\"),
    ),
    min_size=9,
    max_size=20,
)
"""Of a command that is longer than a line."""
PATCH = json.dumps([
    {"op": "test", "path": "/subjects/1/name", "value": "pileus-cloud-controller-manager"},
    {"op": "remove", "path": "/subjects/1"},
])
IMAGE = f"registry.example.org/platform/{'mirror/' * 8}pileus@sha256:{'0' * 64}"
COMMANDS = [
    f"kubectl --context=a patch clusterrolebinding 'b c' --type=json --patch='{PATCH}'",
    f"pileus manifests '--controllers=*,-node' --image={IMAGE} --replicas=2 | kubectl apply -f -",
    "kubectl taint nodes " + " ".join(f"node-{n}.shop.example" for n in range(9)) + " a/b=true:C",
]


def received(command: str) -> list[bytes]:
    """Returns the arguments of a command, as a shell passes them on."""
    shell = ["bash", "--norc", "-c", f"printf '%s\\0' {command}"]
    return subprocess.run(shell, capture_output=True, check=True).stdout.split(b"\0")[:-1]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", COMMANDS, ids=["patch", "manifests", "taint"])
def test_a_wrapped_fix_means_the_same_to_a_shell(command: str, width: int):
    plain = command.replace(" | ", " '|' ")  # what a pipe is given has no arguments of its own

    lines = Style(width).command_lines("fix: ", plain, 6)

    assert len(lines) > 1
    assert received("\n".join(lines).removeprefix("fix: ")) == received(plain)
    assert any(IMAGE in line for line in lines) == (IMAGE in command)
    assert any(PATCH in line for line in lines) == (PATCH in command)


@given(words=WORDS, width=st.sampled_from((60, 80, 120)), indent=st.integers(0, 30))
@pytest.mark.real_time
def test_a_wrapped_command_means_the_same_to_a_shell(words: list[str], width: int, indent: int):
    command = " ".join(words)

    lines = Style(width).command_lines("run: ", command, indent)
    pasted = "\n".join(f"{' ' * indent}{line}" for line in lines)

    assert received(pasted.partition("run: ")[2]) == received(command)
    fits = (line for line in lines if " " in line.removeprefix("run: ").removesuffix(" \\"))
    if not set("'\"\\") & set(command):
        assert all(indent + len(line) <= max(width, indent + 40) for line in fits)


def test_the_command_at_the_end_of_a_message_is_wrapped_for_a_shell():
    command = f"kubectl annotate service web pileus.dev/members='{'a=b c ' * 9}' --namespace=shop"
    text = f"annotation pileus.dev/members: unknown label. Fix: {command} (or remove it)"

    lines = Style(60).message_lines(text, 0)

    assert Style(400).message_lines(text, 0) == Style().message_lines(text, 0) == [text]
    assert (lines[0], lines[-1]) == (
        "annotation pileus.dev/members: unknown label.",
        "(or remove it)",
    )
    assert received("\n".join(lines[1:-1]).removeprefix("Fix: ")) == received(command)

"""What a command writes arrives whole."""

import io
import json

from hypothesis import given
from hypothesis import strategies as st

from pileus.cli.terminal import Ink, Style, Terminal, printable, show_table, whole

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

"""What a command writes arrives whole."""

import io

from pileus.cli.terminal import whole

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

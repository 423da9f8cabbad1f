"""Lines out of chunks that are cut anywhere, at a cost that does not grow with a line's length."""

from pileus.kube.errors import TooLong


class LineSplitter:
    """Feed it chunks; it gives back the lines that are complete, without their ends."""

    def __init__(self, limit: int) -> None:
        """`limit` is the number of bytes that one line may have."""
        self._limit = limit
        self._begun = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without blank ones.

        Raises `TooLong` as soon as a line has more bytes than the limit.
        """
        first, *others = chunk.split(b"\n")
        if max(len(self._begun) + len(first), *map(len, others), 0) > self._limit:
            raise TooLong(f"a line has more than {self._limit} bytes")
        self._begun += first
        if not others:
            return []
        lines = [bytes(self._begun), *others]
        self._begun = bytearray(lines.pop())
        return [line for line in lines if line and not line.isspace()]

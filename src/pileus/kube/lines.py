"""Lines out of chunks that are cut anywhere, at a cost that does not grow with a line's length."""


class LineSplitter:
    """Feed it chunks; it gives back the lines that are complete, without their ends."""

    def __init__(self) -> None:
        self._begun: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes; blank ones are left out."""
        if b"\n" not in chunk:
            self._begun.append(chunk)
            return []
        first, *others = chunk.split(b"\n")
        lines = [b"".join((*self._begun, first)), *others]
        self._begun = [lines.pop()]
        return [line for line in lines if line and not line.isspace()]

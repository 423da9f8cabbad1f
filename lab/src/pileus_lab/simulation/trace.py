"""What happened, line by line: the same for the same seed, byte for byte."""

import hashlib
from collections.abc import Callable

FORMAT = "pileus simulation trace, version 1"


class Trace:
    """Lines with the moment and who acted. It is closed by the first thing that is wrong."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self._open = True
        self.lines: list[str] = []

    def note(self, who: str, what: str) -> None:
        if self._open:
            self.lines.append(f"{self.now():10.3f} {who:<10} {what}")

    def close(self) -> None:
        self._open = False

    def digest(self) -> str:
        """A short word for the whole: equal traces, equal words."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]

"""One operation at a time for each volume: a second one is refused instead of queued."""

from collections.abc import Generator
from contextlib import contextmanager

from pileus.cloud.errors import Conflict


class Busy(Conflict):
    """Another operation on the same volume is under way. The caller tries again later."""


class InProgress:
    """The volumes on which this process works now."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    @contextmanager
    def only(self, *keys: str) -> Generator[None]:
        """Reserve the keys (volume IDs, names) for the block. Raises Busy if one is reserved."""
        taken = [key for key in keys if key in self._keys]
        if taken:
            raise Busy(f"an operation on {', '.join(taken)} is already in progress")
        self._keys.update(keys)
        try:
            yield
        finally:
            self._keys.difference_update(keys)

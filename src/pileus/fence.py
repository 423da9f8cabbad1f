"""Who is not leader writes nothing: each write, to cloud or cluster, asks a fence first."""

from typing import Protocol


class Fenced(Exception):
    """The process may not write now: its lease is too old to be sure that nobody else leads."""


class Fence(Protocol):
    def check(self) -> None:
        """Return if a write may leave this process now; raise `Fenced` otherwise. Cheap."""
        ...


class Open:
    """The fence of a process that needs no lease (`--leader-elect=false`)."""

    def check(self) -> None:
        return

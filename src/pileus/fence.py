"""Fencing: every write, to cloud or cluster, first checks that this process is the leader."""

from typing import Protocol


class Fenced(Exception):
    """The process may not write now: its lease is too old to rule out another leader."""


class Fence(Protocol):
    """Decides whether this process may write."""

    def check(self) -> None:
        """Raises `Fenced` unless this process may write now. Cheap."""
        ...


class Open:
    """The fence of a process without leader election (`--leader-elect=false`)."""

    def check(self) -> None:
        return

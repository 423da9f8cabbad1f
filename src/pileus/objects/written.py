"""What this process wrote, shown until the watch brings it.

Without that, a pass that comes right after another would see the old state and write again.
"""

import asyncio
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pileus.kube.model.meta import KubeObject

CATCH_UP = 30.0
"""Seconds in which a watch brings us what we have written ourselves, or else is not waited for."""

Key = TypeVar("Key", bound=Hashable)
T = TypeVar("T", bound=KubeObject)


@dataclass(frozen=True, slots=True)
class _Note(Generic[T]):
    written: T
    until: float


class Written(Generic[Key, T]):
    """The answers to our own writes, by the object's key."""

    def __init__(self) -> None:
        self._notes: dict[Key, _Note[T]] = {}

    def note(self, key: Key, written: T) -> T:
        self._notes[key] = _Note(written, asyncio.get_running_loop().time() + CATCH_UP)
        return written

    def newest(self, key: Key, seen: T | None) -> T | None:
        """What was written, if that is later than what the watch shows; else what it shows."""
        note = self._notes.get(key)
        if note is None:
            return seen
        late = asyncio.get_running_loop().time() > note.until
        if seen is None or late or not is_older(seen, note.written):
            del self._notes[key]
            return seen
        return note.written


def is_older(seen: KubeObject, written: KubeObject) -> bool:
    """Whether both are one object, of which `written` is the later version."""
    if seen.metadata.uid != written.metadata.uid:
        return False
    before, after = seen.metadata.resource_version, written.metadata.resource_version
    return before.isdecimal() and after.isdecimal() and int(before) < int(after)

"""What this process knows of objects that lists of OpenStack may lack. A restart loses it.

The database of Octavia or Neutron may be a cluster whose parts differ for a moment. An object that
was observed or created before, and that a list lacks, is read by its ID: nothing is created again,
and nothing is left behind, because of one list.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import field
from datetime import datetime
from typing import TypeVar

from pileus.clock import Clock
from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Conflict, NotFound
from pileus.dataclass import dataclass
from pileus.providers.openstack.neutron import Resource

R = TypeVar("R", bound=Resource)

UNLISTED = 60.0
"""Seconds for which something that was just created may be missing from answers."""


@dataclass(frozen=True, slots=True)
class Recent:
    """For whom this process created something a moment ago."""

    _made: dict[Owner, datetime] = field(default_factory=dict[Owner, datetime])

    def add(self, owner: Owner, now: datetime) -> None:
        for each in [each for each in self._made if not self.has(each, now)]:
            del self._made[each]
        self._made[owner] = now

    def forget(self, owner: Owner) -> None:
        self._made.pop(owner, None)

    def has(self, owner: Owner, now: datetime) -> bool:
        made = self._made.get(owner)
        return made is not None and abs((now - made).total_seconds()) < UNLISTED


@dataclass(frozen=True, slots=True)
class Known:
    """IDs of the objects of one kind that Services have: as last observed, or changed since."""

    kind: str
    """In words, such as `floating IP`."""
    clock: Clock
    _ids: dict[Owner, frozenset[str]] = field(default_factory=dict[Owner, frozenset[str]])
    _created: Recent = field(default_factory=Recent)

    def observed(self, owner: Owner, found: Iterable[Resource]) -> None:
        """Remember all that the owner has. What it had before and has no more is forgotten."""
        self._created.forget(owner)
        self._set(owner, found)

    def changed(self, owner: Owner, found: Iterable[Resource]) -> None:
        """Remember what the owner has after a change. Answers may lack what is new for a while."""
        before = self._ids.get(owner, frozenset())
        self._set(owner, found)
        if self._ids.get(owner, frozenset()) - before:
            self._created.add(owner, self.clock.now())

    def _set(self, owner: Owner, found: Iterable[Resource]) -> None:
        ids = frozenset(one.id for one in found)
        if ids:
            self._ids[owner] = ids
        else:
            self._ids.pop(owner, None)

    async def unlisted(
        self,
        owner: Owner,
        own: Iterable[Resource],
        listed: Iterable[Resource],
        read: Callable[[str], Awaitable[R]],
    ) -> tuple[R, ...]:
        """Returns what the owner had and the list lacks, if it still exists. They may be changed.

        `own` are those of the `listed` ones that are the owner's. Raises `Conflict` if something
        was created a moment ago and is not found yet: another one would be created otherwise.
        """
        missing = self._ids.get(owner, frozenset()) - {one.id for one in own}
        if missing:
            missing -= {one.id for one in listed}
        found: list[R] = []
        for id_ in sorted(missing):
            try:
                found.append(await read(id_))
            except NotFound:
                if self._created.has(owner, self.clock.now()):
                    why = f"{self.kind} {id_} was just created and is not found"
                    raise Conflict(why) from None
        return tuple(found)

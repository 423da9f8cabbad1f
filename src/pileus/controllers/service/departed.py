"""Services that are gone while something in the cloud may still be there for them.

A Service that goes in the regular way is released first and is not among these. One whose
finalizer was taken off by force is; and so would be all of them if the cluster's memory was lost
or replaced. Hence a pause, in which it shows how many they are: of many at once nothing is
concluded, and what they leave is for the search for orphans.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from pileus.kube.model.core_v1 import Service
from pileus.kube.model.meta import ObjectMeta
from pileus.runtime.memory import PerObject

PAUSE = 10.0
"""Seconds between the news that one is gone and the first thing that is done about it."""
SUSPICION = 300.0
"""Seconds for which no other that goes is believed either, once many went."""
WINDOW = 600.0
"""Seconds in which Services that vanish are counted together."""
FEW = 5
"""So many may always vanish within a window."""
FRACTION = 0.2
"""More may if they are no larger a part of those that we serve."""


@dataclass(frozen=True, slots=True)
class Gone:
    service: Service
    """As it was known last; of an orphan nothing but its UID."""
    since: float


@dataclass(slots=True)
class Departed:
    _gone: PerObject[str, Gone] = field(default_factory=lambda: PerObject("services/deleted"))
    _cleaned_up: dict[str, float] = field(default_factory=dict[str, float])
    """By UID: when the clean-up of a Service ended; those of one window."""
    _suspicious_until: float = -inf

    def add(self, service: Service, now: float) -> None:
        self._gone[service.metadata.uid] = Gone(service, now)

    def add_orphan(self, uid: str) -> None:
        """One of which nothing is known but its mark in the cloud, and that it is gone."""
        self._gone.setdefault(uid, Gone(deleted_service(uid), -inf))

    def find(self, uid: str) -> Gone | None:
        return self._gone.get(uid)

    def returned(self, uid: str) -> None:
        """The Service exists after all: it must not count among those that vanished."""
        self._gone.pop(uid, None)

    def cleaned_up(self, uid: str, now: float) -> None:
        """Nothing is left of it. Of a Service, its loss counts for the rest of the window."""
        gone = self._gone.pop(uid, None)
        if gone is not None and not is_orphan(gone.service):
            self._cleaned_up[uid] = now

    def doubt(self, served: int, now: float) -> int:
        """How many must be kept because so many vanished, beside `served`, within one window.

        0: their balancers may be deleted. Else all that vanished are forgotten, and for a while
        so are those that follow them: what they leave behind is orphaned.
        """
        self._cleaned_up = {uid: at for uid, at in self._cleaned_up.items() if now - at < WINDOW}
        gone = [uid for uid, each in self._gone.items() if not is_orphan(each.service)]
        lost = len(gone) + len(self._cleaned_up)
        if lost > max(FEW, FRACTION * (served + lost)):
            self._suspicious_until = now + SUSPICION
        if now >= self._suspicious_until:
            return 0
        for uid in gone:
            del self._gone[uid]
        return len(gone)

    def former(self, service: Service) -> Service | None:
        """Another Service of the same name that is still to be cleaned up."""
        return next((each for each in self if _has_same_name(each, service)), None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._gone

    def __iter__(self) -> Iterator[Service]:
        return (each.service for each in self._gone.values())


def deleted_service(uid: str) -> Service:
    """Returns a Service of which only the UID is known, from its mark in the cloud."""
    return Service(metadata=ObjectMeta(uid=uid))


def is_orphan(service: Service) -> bool:
    return not service.metadata.name


def _has_same_name(one: Service, other: Service) -> bool:
    name, former = other.metadata, one.metadata
    return (name.namespace, name.name) == (former.namespace, former.name) and name.uid != former.uid

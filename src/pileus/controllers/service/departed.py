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

PAUSE = 10.0
"""Seconds between the news that one is gone and the first thing that is done about it."""
SUSPICION = 300.0
"""Seconds for which no other that goes is believed either, once many went."""
FEW = 5
"""So many may always go at once."""
FRACTION = 0.2
"""More may if they are no larger a part of those that we serve."""


@dataclass(frozen=True, slots=True)
class Gone:
    service: Service
    """As it was known last; of an orphan nothing but its UID."""
    since: float


@dataclass(slots=True)
class Departed:
    _gone: dict[str, Gone] = field(default_factory=dict[str, Gone])
    _suspicious_until: float = -inf

    def add(self, service: Service, now: float) -> None:
        self._gone[service.metadata.uid] = Gone(service, now)

    def add_orphan(self, uid: str) -> None:
        """One of which nothing is known but its mark in the cloud, and that it is gone."""
        self._gone.setdefault(uid, Gone(deleted_service(uid), -inf))

    def find(self, uid: str) -> Gone | None:
        return self._gone.get(uid)

    def forget(self, uid: str) -> None:
        self._gone.pop(uid, None)

    def doubt(self, served: int, now: float) -> bool:
        """Whether so many are gone, beside `served` that are not, that it looks like a mistake.

        If so they are all forgotten, and for a while so is whoever follows them.
        """
        gone = [uid for uid, each in self._gone.items() if not is_orphan(each.service)]
        if len(gone) > max(FEW, FRACTION * (served + len(gone))):
            self._suspicious_until = now + SUSPICION
        if now >= self._suspicious_until:
            return False
        for uid in gone:
            del self._gone[uid]
        return True

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

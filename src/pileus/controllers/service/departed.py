"""Services that are gone while something in the cloud may still be there for them.

A Service that goes in the regular way is released first and is not among these. One whose
finalizer was taken off by force is; and so would be all of them if the cluster's memory was lost
or replaced. Hence a limit: of many at once nothing is concluded.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from pileus.kube.model.core_v1 import Service
from pileus.kube.model.meta import ObjectMeta

FEW = 5
"""So many may always go at once."""
FRACTION = 0.2
"""More may if they are no larger a part of those that we serve."""


@dataclass(slots=True)
class Departed:
    _services: dict[str, Service] = field(default_factory=dict[str, Service])

    def add(self, service: Service) -> None:
        self._services[service.metadata.uid] = service

    def add_orphan(self, uid: str) -> None:
        """One of which nothing is known but its mark in the cloud, and that it is gone."""
        self._services.setdefault(uid, Service(metadata=ObjectMeta(uid=uid)))

    def find(self, uid: str) -> Service | None:
        return self._services.get(uid)

    def forget(self, uid: str) -> None:
        self._services.pop(uid, None)

    def is_too_many(self, served: int) -> bool:
        """Whether so many are gone, beside `served` that are not, that it looks like a mistake."""
        gone = sum(1 for each in self if not is_orphan(each))
        return gone > max(FEW, FRACTION * (served + gone))

    def former(self, service: Service) -> Service | None:
        """Another Service of the same name that is still to be cleaned up."""
        return next((each for each in self if _has_same_name(each, service)), None)

    def __contains__(self, uid: str) -> bool:
        return uid in self._services

    def __iter__(self) -> Iterator[Service]:
        return iter(self._services.values())


def is_orphan(service: Service) -> bool:
    return not service.metadata.name


def _has_same_name(one: Service, other: Service) -> bool:
    name, former = other.metadata, one.metadata
    return (name.namespace, name.name) == (former.namespace, former.name) and name.uid != former.uid

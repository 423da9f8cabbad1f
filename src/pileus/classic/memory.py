"""What a ported provider was last given for each Service: Go keeps it, and so must we.

It tells "only the members changed" (update) from "all changed" (ensure), and lets a Service be
cleaned up that is no longer in view. What must outlive the process is in `classic.notes`.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from pileus.cloud.balancer import Owner
from pileus.kube.model.core_v1 import LoadBalancerStatus, Service

Members = frozenset[tuple[str, str]]
"""Names and provider IDs: as Go compares sets of nodes."""


MOST_FORGOTTEN = 1000
"""So many of the last owners whose balancers went are still known to have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    service: Service
    """As last passed in."""
    ensured: str
    """The fingerprint of it."""
    members: str
    """The hash of the members that were passed in with it."""
    status: LoadBalancerStatus | None = None
    """As last answered; None if someone else makes this balancer."""
    is_settled: bool = True
    """False: an attempt failed, and everything is to be ensured again."""

    def unsettled(self) -> "Remembered":
        return replace(self, is_settled=False)


class Memory(Protocol):
    def recall(self, owner: Owner) -> Remembered | None: ...
    def remember(self, owner: Owner, remembered: Remembered) -> None: ...
    def see(self, owner: Owner, service: Service) -> None:
        """It says that an earlier process had it ensured, and may be gone at the next look."""
        ...

    def sight(self, owner: Owner) -> Service | None: ...
    def forget(self, owner: Owner) -> None:
        """There is nothing of it in the cloud any more."""
        ...

    def is_forgotten(self, owner: Owner) -> bool: ...
    def owners(self, cluster: str) -> frozenset[Owner]: ...


class ProcessMemory:
    """Gone with the process; then notes on the Services tell the rest."""

    def __init__(self) -> None:
        self._remembered: dict[Owner, Remembered] = {}
        self._seen: dict[Owner, Service] = {}
        self._forgotten: dict[Owner, None] = {}

    def recall(self, owner: Owner) -> Remembered | None:
        return self._remembered.get(owner)

    def remember(self, owner: Owner, remembered: Remembered) -> None:
        self._remembered[owner] = remembered

    def see(self, owner: Owner, service: Service) -> None:
        self._seen[owner] = service

    def sight(self, owner: Owner) -> Service | None:
        return self._seen.get(owner)

    def forget(self, owner: Owner) -> None:
        self._remembered.pop(owner, None)
        self._seen.pop(owner, None)
        self._forgotten[owner] = None
        while len(self._forgotten) > MOST_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def is_forgotten(self, owner: Owner) -> bool:
        return owner in self._forgotten

    def owners(self, cluster: str) -> frozenset[Owner]:
        known = (*self._remembered, *self._seen)
        return frozenset(owner for owner in known if owner.cluster == cluster)

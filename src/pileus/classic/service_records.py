"""What a ported provider was last given for each Service, as Go remembers it.

From it follows whether only the member nodes have changed (update) or more (ensure), and a Service
can be cleaned up after it was deleted from the API server.

- `fingerprint`, `needs_ensure`, `members_hash`: when a Service has changed. Pure.
- `Memory`: what this process knows.
- `Notes`: what survives it, in an annotation of the Service:

      pileus.dev/ensured: <hash of the Service>.<hash of the members>

While a call that writes is running there is no note. A process that dies during the call leaves
none, and the next one ensures the load balancer again, as Go does. The service controller writes
the note together with the status (`cloud.balancer.record_of`), so that a new Service costs as many
writes as with Go. Only the removal of a note is a write of its own, because it must precede the
call. Both go through `services/status`, the only part of a Service that the usual RBAC rules of a
CCM allow it to write.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

import msgspec

from pileus.cloud.balancer import Owner
from pileus.cloud.errors import Unavailable
from pileus.cloud.fingerprint import digest
from pileus.dataclass import dataclass
from pileus.fence import Fenced
from pileus.kube.client import Client
from pileus.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from pileus.kube.model.core_v1 import SERVICES, LoadBalancerStatus, Service, ServiceSpec
from pileus.kube.patch import MergePatch
from pileus.objects.own_writes import OwnWrites
from pileus.runtime.memory import PerObject
from pileus.telemetry.log import Log

log = Log(__name__)

NOTE = "pileus.dev/ensured"
"""The annotation with the note."""
ELSEWHERE = "elsewhere"
MOST_FORGOTTEN = 1000
"""How many deleted load balancers are remembered as deleted."""

Members = frozenset[tuple[str, str]]
"""Names and provider IDs, by which Go compares sets of nodes."""


# -- when a Service has changed ----------------------------------------------------------------


def needs_ensure(before: Service, after: Service) -> bool:
    """Whether the load balancer must be ensured again: `needsUpdate` of Go, field by field."""
    return fingerprint(before) != fingerprint(after)


def fingerprint(service: Service, *context: str) -> str:
    """Returns a short hash of the fields that `needs_ensure` compares, and of the context."""
    return digest(*context, msgspec.to_builtins(_relevant(service)))


def members_hash(members: Iterable[tuple[str, str]]) -> str:
    """Returns a short hash of a set of nodes, given as names and provider IDs."""
    return digest(sorted(members))


def _relevant(service: Service) -> tuple[object, ...]:
    spec = service.spec or ServiceSpec()
    annotations = service.metadata.annotations or {}
    return (
        service.metadata.uid,
        sorted(item for item in annotations.items() if item[0] != NOTE),
        spec.type,
        spec.load_balancer_class,
        spec.load_balancer_source_ranges or (),
        tuple(msgspec.structs.astuple(port) for port in spec.ports or ()),
        spec.session_affinity,
        spec.session_affinity_config,
        spec.load_balancer_ip,
        spec.external_ips or (),
        spec.external_traffic_policy,
        spec.health_check_node_port,
        len(spec.ip_families or ()),
    )


# -- what this process knows -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    service: Service
    """As last passed to the provider."""
    ensured: str
    """Its fingerprint."""
    members: str
    """The hash of the members that were passed with it."""
    status: LoadBalancerStatus | None = None
    """As last answered; None if the load balancer is implemented elsewhere."""
    is_settled: bool = True
    """False: a call failed or was cut short, and the load balancer must be ensured again."""

    def unsettled(self) -> "Remembered":
        return replace(self, is_settled=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """A Service whose load balancer was deleted, or not found."""

    service: Service
    """As last known: with it the provider can be asked again."""
    is_elsewhere: bool = False
    """Another controller implements it: there is nothing to ask for."""


class Memory(Protocol):
    def recall(self, owner: Owner) -> Remembered | None: ...
    def remember(self, owner: Owner, remembered: Remembered) -> None: ...
    def see(self, owner: Owner, service: Service) -> None:
        """Remember a Service with a note of an earlier process: it may be deleted any time."""
        ...

    def sight(self, owner: Owner) -> Service | None: ...
    def forget(self, owner: Owner, former: Former) -> None:
        """Remember it no longer as an owner, only as a former one."""
        ...

    def former(self, owner: Owner) -> Former | None:
        """Returns what is known of an owner that was forgotten and not remembered since."""
        ...

    def owners(self, cluster: str) -> frozenset[Owner]: ...


class ProcessMemory:
    """Lost when the process ends. The next one reads the notes on the Services."""

    def __init__(self) -> None:
        self._remembered: dict[Owner, Remembered] = {}
        self._seen: dict[Owner, Service] = {}
        self._forgotten: dict[Owner, Former] = {}

    def recall(self, owner: Owner) -> Remembered | None:
        return self._remembered.get(owner)

    def remember(self, owner: Owner, remembered: Remembered) -> None:
        self._remembered[owner] = remembered
        self._forgotten.pop(owner, None)

    def see(self, owner: Owner, service: Service) -> None:
        self._seen[owner] = service

    def sight(self, owner: Owner) -> Service | None:
        return self._seen.get(owner)

    def forget(self, owner: Owner, former: Former) -> None:
        self._remembered.pop(owner, None)
        self._seen.pop(owner, None)
        self._forgotten[owner] = former
        while len(self._forgotten) > MOST_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]

    def former(self, owner: Owner) -> Former | None:
        return self._forgotten.get(owner)

    def owners(self, cluster: str) -> frozenset[Owner]:
        known = (*self._remembered, *self._seen)
        return frozenset(owner for owner in known if owner.cluster == cluster)


# -- what survives the process -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    ensured: str
    """The `fingerprint` of the Service as it was passed to the provider."""
    members: str
    """The `members_hash` of the nodes that were passed with it."""
    is_elsewhere: bool = False
    """The provider raised `ImplementedElsewhere`."""

    def __str__(self) -> str:
        return ".".join((self.ensured, self.members, *((ELSEWHERE,) if self.is_elsewhere else ())))


def note_of(service: Service) -> Note | None:
    """Returns the note on a Service; None if there is none or it is invalid."""
    match (service.metadata.annotations or {}).get(NOTE, "").split("."):
        case [ensured, members] if ensured:
            return Note(ensured, members)
        case [ensured, members, "elsewhere"] if ensured:
            return Note(ensured, members, is_elsewhere=True)
        case _:
            return None


class Notes:
    """Reads, leaves and removes notes while this process is the leader.

    Without the permission to patch `services/status` there are no notes: after a restart every
    load balancer is ensured once.
    """

    def __init__(self, view: Callable[[str], Service | None]) -> None:
        """`view` returns the Service with a UID as the informer has it."""
        self._client: Client | None = None
        self._pending = PerObject[str, str]("services/unwritten-notes", ends_with_object=True)
        self._written = OwnWrites[str, Service](view)

    def bind(self, client: Client | None) -> None:
        self._client = client

    def newest(self, uid: str, seen: Service | None) -> Service | None:
        """Returns the Service after our own writes, also before the watch shows them."""
        return self._written.newest(uid, seen)

    def is_noted(self, service: Service) -> bool:
        return self._client is not None and NOTE in (service.metadata.annotations or {})

    def read(self, service: Service) -> Note | None:
        return note_of(service) if self._client is not None else None

    def leave(self, service: Service, note: Note) -> str | None:
        """Returns the note for the service controller to write. Pending until it is written."""
        if self._client is None:
            return None
        self._pending[service.metadata.uid] = str(note)
        return str(note)

    def pending(self, service: Service) -> str | None:
        """Returns the note that is still to be written on the Service; None if there is none."""
        uid = service.metadata.uid
        if (service.metadata.annotations or {}).get(NOTE) == self._pending.get(uid):
            self._pending.pop(uid, None)
        return self._pending.get(uid)

    def forget(self, service: Service) -> None:
        self._pending.pop(service.metadata.uid, None)

    async def remove(self, service: Service) -> None:
        """Raises `Unavailable` if the note may still exist: the provider must not be called."""
        self.forget(service)
        try:
            await self._patch(service)
        except (KubeError, Fenced) as error:
            raise Unavailable(f"cannot remove the annotation {NOTE}: {error}") from error

    async def _patch(self, service: Service) -> None:
        if self._client is None:
            return
        metadata = service.metadata
        body = {"metadata": {"uid": metadata.uid, "annotations": {NOTE: None}}}
        try:
            after = await self._client.patch(
                SERVICES,
                metadata.name,
                MergePatch(body),
                namespace=metadata.namespace or "",
                subresource="status",
            )
            self._written.note(metadata.uid, after)
        except (NotFound, Conflict):
            pass  # the Service was deleted, and its note with it
        except Invalid as error:
            if not error.is_about_uid:
                raise
            # another Service of its name exists: the note was deleted with the former one
        except Forbidden as error:
            self._client = None
            log.warning(
                "No permission to patch services/status: after a restart every load balancer is "
                "ensured once",
                error=str(error),
            )

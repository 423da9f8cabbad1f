"""What was last ensured, noted on the Service itself: it outlives the process, and the leader.

    pileus.dev/ensured: <hash of what was passed in>.<hash of the members>

While a call that writes is under way there is no note, nor when nothing is built: a process that
dies during the call leaves none, and the next one has all of it ensured, as Go does. The note is
written by the core together with the status (`cloud.balancer.record_of`), so that a new Service
costs as many writes as with Go. Its removal is a write of our own, because it precedes the call.
Both go through `services/status`, the one part of a Service that the usual rights of a CCM let it
write.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pileus.classic.comparison import NOTE
from pileus.cloud.errors import Unavailable
from pileus.fence import Fenced
from pileus.kube.client import Client
from pileus.kube.errors import Conflict, Forbidden, Invalid, KubeError, NotFound
from pileus.kube.model.core_v1 import SERVICES, Service
from pileus.kube.patch import MergePatch
from pileus.objects.own_writes import OwnWrites
from pileus.runtime.memory import PerObject
from pileus.telemetry.log import Log

log = Log(__name__)
ELSEWHERE = "elsewhere"


@dataclass(frozen=True, slots=True)
class Note:
    ensured: str
    """`comparison.fingerprint` of the Service as it was passed in."""
    members: str
    """`comparison.members_hash` of the nodes that were passed in with it."""
    is_elsewhere: bool = False
    """Someone else makes this balancer, the provider said."""

    def __str__(self) -> str:
        return ".".join((self.ensured, self.members, *((ELSEWHERE,) if self.is_elsewhere else ())))


def note_of(service: Service) -> Note | None:
    """The note on a Service; None also for one that makes no sense."""
    match (service.metadata.annotations or {}).get(NOTE, "").split("."):
        case [ensured, members] if ensured:
            return Note(ensured, members)
        case [ensured, members, "elsewhere"] if ensured:
            return Note(ensured, members, is_elsewhere=True)
        case _:
            return None


class Notes:
    """Reads, leaves and removes notes, while this process leads and has the rights to.

    Without the rights there are no notes: then what was ensured is known
    to this process alone, and after a restart everything is ensured once.
    """

    def __init__(self, view: Callable[[str], Service | None]) -> None:
        """`view` returns the Service of a UID as the watch showed it last."""
        self._client: Client | None = None
        self._pending = PerObject[str, str]("services/unwritten-notes", ends_with_object=True)
        self._written = OwnWrites[str, Service](view)

    def bind(self, client: Client | None) -> None:
        self._client = client

    def newest(self, uid: str, seen: Service | None) -> Service | None:
        """The Service as it is after our own writes, before the watch brings them."""
        return self._written.newest(uid, seen)

    def is_noted(self, service: Service) -> bool:
        return self._client is not None and NOTE in (service.metadata.annotations or {})

    def read(self, service: Service) -> Note | None:
        return note_of(service) if self._client is not None else None

    def leave(self, service: Service, note: Note) -> str | None:
        """Returns the note for the core to write; it is pending until it is on the Service."""
        if self._client is None:
            return None
        self._pending[service.metadata.uid] = str(note)
        return str(note)

    def pending(self, service: Service) -> str | None:
        """The note that is to be written on the Service; None if there is none, or it is there."""
        uid = service.metadata.uid
        if (service.metadata.annotations or {}).get(NOTE) == self._pending.get(uid):
            self._pending.pop(uid, None)
        return self._pending.get(uid)

    def forget(self, service: Service) -> None:
        self._pending.pop(service.metadata.uid, None)

    async def remove(self, service: Service) -> None:
        """Errors: `Unavailable` if it may still be there: nothing may be called then."""
        self.forget(service)
        try:
            await self._patch(service)
        except (KubeError, Fenced) as error:
            raise Unavailable(f"the note of what was ensured cannot be removed: {error}") from error

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
            pass  # the Service is gone, and so is its note
        except Invalid as error:
            if not error.is_about_uid:
                raise
            # another of its name is there: the note went with the one that it was on
        except Forbidden as error:
            self._client = None
            log.warning(
                "Without the right to patch services/status, what was ensured is known to this "
                "process alone: after a restart every load balancer is ensured once",
                error=str(error),
            )

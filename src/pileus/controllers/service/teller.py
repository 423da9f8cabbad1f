"""Tells users of a Service how it stands: events, and the condition in its status."""

import asyncio

from pileus.clock import Clock
from pileus.controllers.service.cluster import ClusterServices
from pileus.controllers.service.departed import is_orphan
from pileus.controllers.service.notes import Note
from pileus.controllers.service.plan import Telling, Write, told
from pileus.controllers.service.reasons import Reason, failure_event
from pileus.controllers.service.status import Verdict
from pileus.controllers.service.trouble import (
    is_reported_at_once,
    message_of,
    reason_of,
    verdict_on,
)
from pileus.kube.errors import KubeError
from pileus.kube.model.core_v1 import ObjectReference, Service
from pileus.objects.events import ObjectEvents, shortened
from pileus.telemetry.log import Log

log = Log(__name__)

PATIENCE = 10.0
"""Seconds of failing or waiting before it is told, unless waiting cannot mend it."""
REWORD_AFTER = 300.0
"""Seconds for which a condition's message stands although the wording has changed."""
KUBE_SYSTEM = ObjectReference(api_version="v1", kind="Namespace", name="kube-system")
"""What events are about that concern no single Service."""
FAILURES = (Reason.SYNC_FAILED, Reason.UPDATE_FAILED, Reason.DELETE_FAILED)


class Teller:
    def __init__(self, cluster: ClusterServices, notices: ObjectEvents, clock: Clock) -> None:
        self._cluster = cluster
        self._notices = notices
        self._clock = clock

    def announce(self, service: Service, reason: Reason, message: str) -> None:
        if not is_orphan(service):
            self._notices.announce(about_service(service), reason, message)

    def warn(self, service: Service, reason: Reason, message: str) -> None:
        """Once an hour at most, until it is `well` again."""
        if not is_orphan(service):
            self._notices.warn(about_service(service), reason, shortened(message))

    def well(self, service: Service, *reasons: Reason) -> None:
        for reason in reasons:
            self._notices.forget(about_service(service), reason)

    def tell_of_many(self, kept: int) -> None:
        """Report that the load balancers of Services that vanished are kept, as orphans."""
        log.error("Many Services vanished: keeping their load balancers", count=kept)
        text = (
            f"{kept} Services vanished without their finalizer being removed by the controller, or "
            "soon after many others. Their load balancers are kept as orphans. "
            "List and delete them: pileus orphans"
        )
        self._notices.forget(KUBE_SYSTEM, Reason.VANISHED)
        self._notices.warn(KUBE_SYSTEM, Reason.VANISHED, text)

    def telling(self, note: Note) -> Telling:
        now = asyncio.get_running_loop().time()
        return Telling(self._clock.now(), reword=now - note.reworded >= REWORD_AFTER)

    async def write(self, service: Service, note: Note, write: Write) -> Service:
        """Make the write, if there is anything to it. Errors: what the API server says."""
        if not write:
            return service
        if write.condition is not None:
            note.reworded = asyncio.get_running_loop().time()
        return await self._cluster.write(service, write)

    async def condition(self, service: Service, note: Note, verdict: Verdict) -> None:
        """Write the condition. A refused write is logged, and tried again with a back-off."""
        now = asyncio.get_running_loop().time
        if not note.pacing.is_due(now()):
            return
        try:
            await self.write(service, note, told(service, verdict, self.telling(note)))
            note.pacing.succeeded()
        except KubeError as refused:
            note.pacing.failed(refused, now())
            log.warning(
                "Cannot tell on the Service how it stands", service=name_of(service), err=refused
            )

    async def failure(
        self, service: Service, note: Note, error: Exception, *, since: float | None = None
    ) -> None:
        """Report on the Service why it is not served, by event and condition, once it is time to.

        `since`: when the failed pass began; a pass that took long is reported at once.
        """
        now = asyncio.get_running_loop().time()
        if note.failing_since is None:
            note.failing_since = now if since is None else since
        if now - note.failing_since < PATIENCE and not is_reported_at_once(error):
            return
        self.complain(service, note, error)
        await self.condition(service, note, verdict_on(error))

    def complain(self, service: Service, note: Note, error: Exception) -> None:
        """Once for each kind of error, until it is well again."""
        if note.told != reason_of(error):
            self.well(service, *FAILURES)
            note.told = reason_of(error)
        self.warn(service, *failure_event(note.stage, note.hosts, message_of(error)))


def about_service(service: Service) -> ObjectReference:
    metadata = service.metadata
    return ObjectReference(
        api_version="v1",
        kind="Service",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
    )


def name_of(service: Service) -> str:
    """For the log."""
    metadata = service.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.name else f"UID {metadata.uid}"

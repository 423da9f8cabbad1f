"""One pass over one Service: decide what it wants of us, and do one of three things.

UID ──▶ Service, or what is remembered of it ──▶ serve · withdraw · leave
"""

import asyncio
from collections.abc import Callable

from pileus.cloud import errors as cloud
from pileus.controllers.service.annotations import InvalidAnnotation, Mode, mode_of
from pileus.controllers.service.cluster import ServiceReplaced
from pileus.controllers.service.departed import PAUSE, Departed, Gone, is_orphan
from pileus.controllers.service.notes import Note
from pileus.controllers.service.plan import Leave, Puzzled, Serve, Withdraw, course
from pileus.controllers.service.reasons import Stage
from pileus.controllers.service.serving import Serving
from pileus.controllers.service.status import State, Verdict
from pileus.controllers.service.teller import PATIENCE, name_of
from pileus.controllers.service.tools import Tools
from pileus.controllers.service.trouble import verdict_on
from pileus.controllers.service.withdrawing import Withdrawing
from pileus.kube.errors import ApiError, NotFound
from pileus.kube.model.core_v1 import Service
from pileus.runtime.failure import hint
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.log import Log

log = Log(__name__)

FORMER = 2.0
"""Seconds between two looks whether a former Service of the same name is cleaned up, at first."""
FORMER_MOST = 15.0
"""Seconds between two such looks when it takes long; they come ever more seldom."""


class ServiceReconciler:
    """Key: the Service's UID, which is also the owner's mark on what is in the cloud."""

    def __init__(self, tools: Tools, departed: Departed, finished: Callable[[str], None]) -> None:
        """`finished` is told the key of each pass that has ended, be it well or not."""
        self._tools = tools
        self._finished = finished
        self._departed = departed
        self._serving = Serving(tools)
        self._withdrawing = Withdrawing(tools)

    async def reconcile(self, key: str) -> Result:
        try:
            return await self._reconcile(key)
        finally:
            self._finished(key)

    async def report(self, key: str, error: Exception) -> None:
        """Report on the Service that its pass ran out of time, or ended by a bug."""
        service, note = self._tools.cluster.service(key), self._tools.notes.of(key)
        gone = self._departed.find(key)
        if service is not None:
            await self._tools.teller.failure(service, note, error)
        elif gone is not None:
            self._tools.teller.complain(gone.service, note, error)
        else:
            self._tools.notes.forget(key)

    async def _reconcile(self, key: str) -> Result:
        began = asyncio.get_running_loop().time()
        service = self._tools.cluster.service(key)
        if service is None:
            return await self._bury(key)
        self._departed.returned(key)
        try:
            return await self._pass(service)
        except (NotFound, ServiceReplaced) as error:
            log.info("Service went away meanwhile", v=2, service=name_of(service), why=error)
            return DONE
        except (cloud.Conflict, cloud.NotFound) as error:
            return await self._look_again(service, error)
        except (cloud.CloudError, ApiError) as error:
            note = self._tools.notes.of(key)
            await self._tools.teller.failure(service, note, error, since=began)
            if note.stage is not Stage.UPDATE:
                raise
            return self._ensure_next(service, note, error)

    async def _pass(self, service: Service) -> Result:
        uid = service.metadata.uid
        note = self._tools.notes.find(uid)
        match course(service, self._tools.classes, known=note is not None and note.known):
            case Leave():
                self._leave(uid)
                return DONE
            case Puzzled(message):
                raise cloud.Misconfigured(message)
            case Withdraw(mode):
                return await self._withdrawing.withdraw(service, mode)
            case Serve(mode):
                former = self._departed.former(service)
                if former is not None and mode is Mode.FULL:
                    return await self._wait_for_former(service, former)
                return await self._serving.serve(service, mode)

    def _leave(self, uid: str) -> None:
        if not self._tools.notes.is_released(uid):
            self._tools.notes.forget(uid)

    async def _wait_for_former(self, service: Service, former: Service) -> Result:
        """Some clouds find balancers by the Service's name: the former one's must go first."""
        message = f"A former Service of this name (UID {former.metadata.uid}) is still cleaned up"
        verdict = Verdict(State.FALSE, "WaitsForFormer", message)
        note = self._tools.notes.of(service.metadata.uid)
        await self._tools.teller.condition(service, note, verdict)
        return again_in(self._former_in(former))

    def _former_in(self, former: Service) -> float:
        """Seconds until the next look: nothing is done in the pause; then each wait is doubled."""
        gone = self._departed.find(former.metadata.uid)
        if gone is None:
            return FORMER
        worked = asyncio.get_running_loop().time() - gone.since - PAUSE
        return FORMER - worked if worked < 0 else min(max(worked, FORMER), FORMER_MOST)

    async def _bury(self, uid: str) -> Result:
        """Clean up after a Service that went without being released."""
        gone = self._departed.find(uid)
        if gone is None:
            self._tools.notes.forget(uid)
            return DONE
        if not is_orphan(gone.service):
            doubt = await self._doubt(gone)
            if doubt is not None:
                return doubt
        try:
            result = await self._withdrawing.bury(gone.service, _mode(gone.service))
        except (cloud.Conflict, cloud.NotFound) as error:
            return self._bury_later(gone.service, error)
        except cloud.CloudError as error:
            self._tools.teller.complain(gone.service, self._tools.notes.of(uid), error)
            raise
        if result is DONE:
            self._departed.cleaned_up(uid, asyncio.get_running_loop().time())
            self._tools.notes.forget(uid)
        return result

    def _bury_later(self, service: Service, error: cloud.CloudError) -> Result:
        """The cloud was busy, or someone was quicker: ever more seldom, and told if it lasts."""
        note = self._tools.notes.of(service.metadata.uid)
        now = asyncio.get_running_loop().time()
        delay = note.wait(now, None)
        if note.waited(now) >= PATIENCE:
            self._tools.teller.complain(service, note, error)
        return again_in(delay)

    async def _doubt(self, gone: Gone) -> Result | None:
        """What to do instead of believing that it is gone; None: it is."""
        now = asyncio.get_running_loop().time()
        if now - gone.since < PAUSE:
            return again_in(gone.since + PAUSE - now)
        notes = self._tools.notes
        served = sum(note.known and uid not in self._departed for uid, note in notes.items())
        kept = self._departed.doubt(served, now)
        if kept:
            self._tools.teller.tell_of_many(kept)
            self._tools.metrics.vanished_services_kept.inc(kept)
            notes.forget(gone.service.metadata.uid)
            return DONE
        return again_in(FORMER) if await self._is_there(gone.service) else None

    async def _is_there(self, service: Service) -> bool:
        """Asked of the API server itself: what one view does not show may not be gone."""
        try:
            await self._tools.cluster.read(service)
        except (NotFound, ServiceReplaced):
            return False
        return True

    async def _look_again(self, service: Service, error: cloud.CloudError) -> Result:
        """The cloud was busy, or someone was quicker: no failure, but told if it lasts."""
        note = self._tools.notes.of(service.metadata.uid)
        now = asyncio.get_running_loop().time()
        delay = note.wait(now, None)
        if note.waited(now) >= PATIENCE:
            await self._tools.teller.condition(service, note, verdict_on(error))
        return again_in(delay)

    def _ensure_next(self, service: Service, note: Note, error: Exception) -> Result:
        """After a failed host update everything is ensured at once, as in Go.

        Only once: what fails then is retried with back-off. Raises the error if it asks for a
        delay.
        """
        self._tools.metrics.host_update_errors.inc()
        note.update_failed = True
        if hint(error) is not None:
            raise error
        log.warning(
            "Host update failed, ensuring load balancer", service=name_of(service), err=error
        )
        return again_in(0)


def _mode(service: Service) -> Mode:
    """Of a Service that is gone and cannot be mended: what is not understood is left alone."""
    try:
        return mode_of(service)
    except InvalidAnnotation:
        return Mode.NONE

"""Take away what is in the cloud for a Service that wants it no more; then let the Service go."""

import asyncio

from pileus.cloud.balancer import Effect
from pileus.cloud.errors import Unavailable
from pileus.controllers.service.annotations import MANAGE, Mode
from pileus.controllers.service.departed import is_orphan
from pileus.controllers.service.notes import Note
from pileus.controllers.service.plan import (
    is_claimed,
    is_unready,
    release,
)
from pileus.controllers.service.reasons import Reason, Stage
from pileus.controllers.service.seeing import look_back
from pileus.controllers.service.teller import name_of
from pileus.controllers.service.tools import Tools
from pileus.controllers.service.waiting import wait_for
from pileus.controllers.service.wish import farewell_of
from pileus.controllers.service.workshop import Look
from pileus.kube.errors import NotFound
from pileus.kube.model.core_v1 import Service
from pileus.runtime.reconcile import DONE, Result, again_in
from pileus.telemetry.log import Log

log = Log(__name__)

SECOND_LOOK = 30.0
"""Seconds between two looks that find nothing, before that is believed."""


class Withdrawing:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def withdraw(self, service: Service, mode: Mode) -> Result:
        """One pass for a Service that is still there. Errors: `CloudError`, `KubeError`, `Fenced`.

        The finalizer goes only after the cloud took away what was left, or showed twice that
        there is nothing.
        """
        note = self._tools.notes.of(service.metadata.uid)
        note.stage = Stage.CHECK
        look = await self._clear(service, mode, note)
        if look is not None and is_unfinished(look, mode):
            return await wait_for(self._tools.teller, service, look, note)
        doubt = _doubt(service, look, note, asyncio.get_running_loop().time())
        if doubt is not None:
            log.info("Nothing is found; looking once more", service=name_of(service), after=doubt)
            return again_in(doubt)
        note.stage = Stage.RELEASE
        self._tools.notes.release(service.metadata.uid)
        try:
            write = release(service, self._tools.classes, mode)
            await self._tools.teller.write(service, note, write)
        except NotFound:
            log.info("Service is gone already", v=2, service=name_of(service))
        except BaseException:
            self._tools.notes.recall(service.metadata.uid, note)
            raise
        self._farewell(service, mode, look, note)
        return DONE

    async def bury(self, service: Service, mode: Mode) -> Result:
        """One pass for a Service that is there no more. Errors: `CloudError`, `Fenced`."""
        note = self._tools.notes.of(service.metadata.uid)
        note.stage = Stage.BURY
        look = await self._clear(service, mode, note)
        if look is not None and is_unfinished(look, mode):
            return await wait_for(None, service, look, note)
        is_empty = look is not None and look.balancer is None and not is_orphan(service)
        doubt = _until_second_look(note, asyncio.get_running_loop().time(), is_empty=is_empty)
        if doubt is not None:
            log.info("No load balancer found; checking again", service=name_of(service))
            return again_in(doubt)
        self._farewell(service, mode, look, note)
        return DONE

    async def _clear(self, service: Service, mode: Mode, note: Note) -> Look | None:
        """What is seen after all was taken away that the mode allows; None: nothing was to be."""
        wish = farewell_of(self._tools.wishing, service, mode)
        if wish is None:
            return None
        tools = self._tools
        with tools.turns.queueing(tools.workshop.lock_key(wish)) as turn:
            look = await look_back(tools.workshop, wish)
            if not look.left(mode):
                return look
            async with turn.taken() as moved_on:
                if moved_on:
                    look = await look_back(tools.workshop, wish)
                return await self._delete(service, look, mode, note)

    async def _delete(self, service: Service, look: Look, mode: Mode, note: Note) -> Look:
        if note.stage == Stage.CHECK:
            note.stage = Stage.DELETE
        if mode is Mode.FULL and not note.deleting:
            note.deleting = True
            self._tools.teller.announce(service, Reason.DELETING, "Deleting load balancer")
        for change in look.left(mode):
            log.info(
                "Removing", service=name_of(service), effect=change.effect, what=change.summary
            )
        after = await self._tools.workshop.perform(look, mode)
        note.accepted |= any(change.effect is Effect.DELETE for change in after.done)
        return after

    def _farewell(self, service: Service, mode: Mode, look: Look | None, note: Note) -> None:
        teller = self._tools.teller
        if mode is Mode.FULL:
            if is_claimed(service) or note.deleting:
                teller.announce(service, Reason.DELETED, "Deleted load balancer")
        elif is_claimed(service) or (look is not None and look.done):
            teller.announce(
                service, Reason.KEPT, f"The load balancer stays in the cloud: {MANAGE} is {mode}"
            )


def _doubt(service: Service, look: Look | None, note: Note, now: float) -> float | None:
    """Seconds until the second look; None: none is needed.

    A cloud that shows nothing may show too little, unless we were told that it does as asked.
    """
    return _until_second_look(note, now, is_empty=is_doubtful(service, look))


def _until_second_look(note: Note, now: float, *, is_empty: bool) -> float | None:
    if note.accepted or not is_empty:
        note.missing_since = None
        return None
    if note.missing_since is None:
        note.missing_since = now
    left = note.missing_since + SECOND_LOOK - now
    return left if left > 0 else None


def is_doubtful(service: Service, look: Look | None) -> bool:
    """Returns whether a cloud that shows nothing is asked again before the finalizer is removed."""
    return look is not None and look.balancer is None and is_claimed(service)


def is_unfinished(look: Look, mode: Mode) -> bool:
    """Raises `Unavailable` if a balancer stays and nothing can be done about it."""
    if is_unready(look.balancer) or look.left(mode):
        return True
    if mode is Mode.FULL and look.balancer is not None:
        raise Unavailable(f"load balancer {look.balancer.id} is still there, and cannot be deleted")
    return False

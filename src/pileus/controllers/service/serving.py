"""Give a Service its balancer, and keep it as the Service wants it.

wish ──▶ look ──▶ claim ──▶ second look at the members, if many would go ──▶ change ──▶ publish
           │                                                                             ▲
           └──────────────────────── nothing to change ──────────────────────────────────┘
"""

import asyncio
from math import inf

from pileus.cloud.balancer import Wish, record_of
from pileus.cloud.errors import Misconfigured
from pileus.controllers.service.annotations import Mode
from pileus.controllers.service.holding import SECOND_LOOK, Guard
from pileus.controllers.service.notes import Note
from pileus.controllers.service.plan import (
    Outcome,
    Record,
    Serve,
    check_again_in,
    claim,
    course,
    is_unready,
    needs_claim,
    only_members,
    publication,
)
from pileus.controllers.service.reasons import Reason, Stage, hosts_of
from pileus.controllers.service.seeing import look_at
from pileus.controllers.service.status import published_ingress
from pileus.controllers.service.teller import FAILURES, name_of
from pileus.controllers.service.tools import Tools
from pileus.controllers.service.waiting import wait_for
from pileus.controllers.service.wish import Refusal, differ_in_members
from pileus.controllers.service.workshop import Look, check_health
from pileus.kube.errors import Conflict
from pileus.kube.model.core_v1 import Service
from pileus.runtime.reconcile import DONE, Result, again_in, refresh_in
from pileus.telemetry.log import Log

log = Log(__name__)

CLAIMS = 5
"""Tries to set the finalizer on a Service that others write to."""


class Serving:
    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._guard = Guard(tools)

    async def serve(self, service: Service, mode: Mode) -> Result:
        """One pass. Errors: `CloudError`, `KubeError`, `Fenced`."""
        tools = self._tools
        note = tools.notes.of(service.metadata.uid)
        note.stage = Stage.ENSURE
        self._check_annotations(service)
        wish = tools.wishing.wish(service, tools.membership.now())
        if isinstance(wish, Refusal):
            raise Misconfigured(str(wish))
        with tools.turns.queueing(tools.workshop.lock_key(wish)) as turn:
            look = await self._look(service, wish, note)
            if not look.left(mode):
                return await self._settle(service, look, mode)
            async with turn.taken() as moved_on:
                if moved_on:
                    look = await self._look(service, wish, note)
                return await self._work(service, look, mode)

    def _check_annotations(self, service: Service) -> None:
        """Tell of what was probably misspelt; what is wrong otherwise, the provider refuses."""
        declared = self._tools.wishing.annotations
        given = service.metadata.annotations or {}
        if declared is None:
            return
        known = declared.declared(given)
        problems = declared.problems({k: v for k, v in given.items() if k not in known})
        if problems:
            self._tools.teller.warn(service, Reason.MISSPELT, f"Left out: {'; '.join(problems)}")
        else:
            self._tools.teller.well(service, Reason.MISSPELT)

    async def _look(self, service: Service, wish: Wish, note: Note) -> Look:
        deep = asyncio.get_running_loop().time() >= note.deep_due
        look = await look_at(self._tools.workshop, service, wish, deep=deep)
        if deep:
            self._tools.notes.looked_deeply(note)
        note.known = note.known or look.balancer is not None
        return look

    async def _work(self, service: Service, look: Look, mode: Mode) -> Result:
        note = self._tools.notes.of(service.metadata.uid)
        claimed = await self._claim(service, look, mode)
        if claimed is None:
            return again_in(0)
        note.stage = Stage.ENSURE
        believed = await self._guard.believed(claimed, look, note)
        if believed is None:
            return again_in(SECOND_LOOK)
        if not believed.left(mode):
            return await self._settle(claimed, believed, mode)
        return await self._change(claimed, believed, mode)

    async def _claim(self, service: Service, look: Look, mode: Mode) -> Service | None:
        """The Service with the finalizer, where one is needed; None: it changed, begin anew.

        Errors: `Conflict`, if others keep writing to it.
        """
        note = self._tools.notes.of(service.metadata.uid)
        at_stake = bool(look.left(mode)) or look.balancer is not None
        note.stage = Stage.CLAIM
        tries = 0
        while needs_claim(service, mode, at_stake=at_stake):
            tries += 1
            try:
                now = self._tools.teller.telling(note).now
                return await self._tools.cluster.write(service, claim(service, now))
            except Conflict:
                if tries == CLAIMS:
                    raise
                service = await self._tools.cluster.read(service)
                if course(service, self._tools.classes, known=False) != Serve(mode):
                    return None
        return service

    async def _change(self, service: Service, look: Look, mode: Mode) -> Result:
        note, teller = self._tools.notes.of(service.metadata.uid), self._tools.teller
        only_hosts = only_members(look.left(mode)) or differ_in_members(note.settled, look.wish)
        is_update = look.balancer is not None and only_hosts and not note.update_failed
        note.stage = Stage.UPDATE if is_update else Stage.ENSURE
        note.hosts = (
            hosts_of(each.name for each in look.wish.spec.members) if look.wish.spec else ""
        )
        note.known = True
        if not is_update and not note.ensuring:
            note.ensuring = True
            teller.announce(service, Reason.ENSURING, "Ensuring load balancer")
        for change in look.left(mode):
            log.info(
                "Changing", service=name_of(service), effect=change.effect, what=change.summary
            )
        drift = look.wish == note.settled
        began = asyncio.get_running_loop().time()
        try:
            after = await self._tools.workshop.perform(look, mode)
        finally:
            if is_update:
                self._measure_update(asyncio.get_running_loop().time() - began)
        if drift:
            self._tools.metrics.service_drift_repaired.inc()
        if is_update:
            self._tell_update(service, look)
        return await self._settle(service, after, mode)

    def _measure_update(self, seconds: float) -> None:
        self._tools.metrics.host_updates.inc()
        self._tools.metrics.host_update_duration.observe(seconds)

    def _tell_update(self, service: Service, look: Look) -> None:
        if look.members:
            self._tools.teller.announce(
                service, Reason.UPDATED, "Updated load balancer with new hosts"
            )

    async def _settle(self, service: Service, look: Look, mode: Mode) -> Result:
        """Tell how the Service stands, and when to look again."""
        note = self._tools.notes.of(service.metadata.uid)
        note.stage = Stage.ENSURE
        check_health(look)
        if is_unready(look.balancer) or look.left(mode):
            return await wait_for(self._tools.teller, service, look, note)
        claimed = await self._claim(service, look, mode)
        if claimed is None:
            return again_in(0)
        await self._publish(claimed, look, mode)
        asked = check_again_in(look.balancer)
        until_full = max(note.deep_due - asyncio.get_running_loop().time(), 0.0)
        delay = until_full if asked is None else min(asked, until_full)
        return DONE if delay == inf else refresh_in(delay)

    async def _publish(self, service: Service, look: Look, mode: Mode) -> None:
        note, teller = self._tools.notes.of(service.metadata.uid), self._tools.teller
        if not look.members and look.balancer is not None and mode.writes:
            teller.warn(
                service, Reason.UNAVAILABLE, "There are no available nodes for LoadBalancer"
            )
        record = Record(record_of(look.seen), is_new=bool(look.done))
        outcome = Outcome(look.balancer, look.members, record)
        write = publication(service, outcome, mode, teller.telling(note))
        note.stage = Stage.PUBLISH
        was_ensuring = note.ensuring or (
            write.ingress is not None and not published_ingress(service)
        )
        await teller.write(service, note, write)
        if was_ensuring and look.balancer is not None and mode.writes:
            teller.announce(service, Reason.ENSURED, "Ensured load balancer")
        teller.well(service, *FAILURES, Reason.HELD)
        if look.members:
            teller.well(service, Reason.UNAVAILABLE)
        note.settle(look.wish)
